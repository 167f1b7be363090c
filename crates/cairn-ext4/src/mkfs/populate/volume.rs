//! [`EmptyVolume`]: the planned volume without the tree.

use cairn_base::Ino;
use cairn_vfs::new_tree::{ROOT, TreeError};

use super::super::files::{self, LOST_AND_FOUND, Table};
use super::super::identity::Identity;
use super::super::options::MkfsOptions;
use super::super::output::Output;
use super::super::plan::Plan;
use super::error::PopulateResult;
use super::stream::Stream;
use super::survey::Survey;
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::layout::inodes;

/// Large values get their inodes, although mounts do not change them. No mount changes a volume
/// that is marked as read-only, or whose files share blocks.
const WRITTEN: Features = Features {
    compat: Compat::empty(),
    incompat: Incompat::EA_INODE,
    ro_compat: RoCompat::READONLY.union(RoCompat::SHARED_BLOCKS),
};

/// Inode numbers of nodes, which follow the ids, and behind them those of values.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    /// The number of node 1, if it is not `lost+found`.
    first: u32,
    lost_found: u32,
    count: u32,
    values: u32,
}

impl Numbers {
    fn new(survey: &Survey, first: u32) -> Self {
        let lost_found = survey.lost_found.unwrap_or(u32::MAX);
        let values = survey.values.list.len() as u32;
        Self { first, lost_found, count: survey.source.count(), values }
    }

    /// The number of a node.
    pub(super) fn ino(&self, id: u32) -> Ino {
        match id {
            ROOT => inodes::ROOT,
            id if id == self.lost_found => LOST_AND_FOUND,
            id => Ino((self.first + (id - 1) - u32::from(id > self.lost_found)).into()),
        }
    }

    /// The node with this number.
    pub(super) fn id(&self, ino: Ino) -> Option<u32> {
        let id = match ino {
            inodes::ROOT => ROOT,
            LOST_AND_FOUND => self.lost_found,
            ino => {
                let number = u32::try_from(ino.get()).ok()?.checked_sub(self.first)?;
                let id = number.checked_add(1)?;
                if id >= self.lost_found { id.checked_add(1)? } else { id }
            }
        };
        (id < self.count).then_some(id)
    }

    /// The number of the first value.
    pub(super) fn first_value(&self) -> u32 {
        let special = 1 + u32::from(self.lost_found < self.count);
        self.first + self.count - special
    }

    /// The value with this number.
    pub(super) fn value(&self, ino: Ino) -> Option<u32> {
        let number = u32::try_from(ino.get()).ok()?.checked_sub(self.first_value())?;
        (number < self.values).then_some(number)
    }

    /// The last number in use.
    pub(super) fn last(&self) -> u32 {
        self.first_value() + self.values - 1
    }
}

/// A planned volume.
pub(super) struct EmptyVolume {
    pub(super) plan: Plan,
    /// The first records of the inode table.
    pub(super) records: Vec<u8>,
    pub(super) output: Output,
    pub(super) stream: Stream,
    pub(super) numbers: Numbers,
}

impl EmptyVolume {
    /// Plans a volume of `bytes`. `output` takes the files without names.
    pub(super) fn new(
        options: &MkfsOptions,
        bytes: u64,
        identity: &Identity,
        survey: &Survey,
        output: impl FnOnce(u32) -> Output,
    ) -> PopulateResult<Self> {
        let mut plan = Plan::new(options, bytes, identity, WRITTEN)?;
        let mut output = output(plan.layout.block_size);
        plan.place_tables()?;
        let mut table = Table::new(&plan);
        if survey.lost_found.is_none() {
            files::lost_and_found(&mut plan, &mut output, &mut table, identity)?;
        }
        files::system(&mut plan, &mut output, &mut table, identity)?;
        let layout = &plan.layout;
        let stream = Stream::new(plan.used.gaps(layout.first_data_block, layout.blocks_count));
        let numbers = Numbers::new(survey, plan.used_inodes + 1);
        let (needed, available) = (numbers.last().into(), layout.inodes_count.into());
        if needed > available {
            return Err(TreeError::NoInodes { needed, available }.into());
        }
        Ok(Self { records: table.bytes, plan, output, stream, numbers })
    }
}

/// A layout with the features of the options, on a volume of any size.
pub(super) fn probe(options: &MkfsOptions, identity: &Identity) -> PopulateResult<Plan> {
    const BYTES: u64 = 1 << 40;
    let options = MkfsOptions { size: None, inodes: None, ..options.clone() };
    Ok(Plan::new(&options, BYTES, identity, WRITTEN)?)
}
