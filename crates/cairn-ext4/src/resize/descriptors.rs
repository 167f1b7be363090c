//! The group descriptors that change when a volume grows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::BlockDeviceExt;
use zerocopy::little_endian::U16;

use crate::error::Result;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::{SIZE, Superblock};
use crate::offline::{Blocks, Offline};

/// All descriptor blocks of the grown volume.
pub(super) struct Descriptors {
    layout: Layout,
    /// By the first group of each.
    blocks: BTreeMap<u32, Vec<u8>>,
    /// Those that change.
    changed: BTreeSet<u32>,
}

impl Descriptors {
    /// Reads those of the old volume. Blocks of new ones are zeros.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn read(volume: &Offline, new: &Layout) -> Result<Self> {
        let old = &volume.layout;
        let per_block = old.descs_per_block();
        let mut blocks = BTreeMap::new();
        for first in (0..new.groups).step_by(as_index(per_block)) {
            let bytes = if first < old.groups {
                volume.buffers.get(old.descriptor_block(first))?.image().to_vec()
            } else {
                vec![0; as_index(old.block_size)]
            };
            blocks.insert(first, bytes);
        }
        Ok(Self { layout: *new, blocks, changed: BTreeSet::new() })
    }

    fn place(&self, group: u32) -> (u32, Range<usize>) {
        let per_block = self.layout.descs_per_block();
        let offset = self.layout.descriptor_offset(group);
        (group / per_block * per_block, offset..offset + as_index(self.layout.desc_size))
    }

    /// A descriptor of the old volume.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn get(&self, group: u32, old: &Layout) -> Result<GroupDesc> {
        let (first, range) = self.place(group);
        let bytes = self.blocks.get(&first).and_then(|block| block.get(range));
        Ok(GroupDesc::decode(bytes.unwrap_or_default(), group, old)?)
    }

    /// Changes a descriptor.
    pub(super) fn put(&mut self, group: u32, desc: &GroupDesc) {
        let (first, range) = self.place(group);
        let block = self.blocks.get_mut(&first).and_then(|block| block.get_mut(range));
        if let Some(bytes) = block {
            desc.encode(group, &self.layout, bytes);
            self.changed.insert(first);
        }
    }

    fn changed(&self) -> impl Iterator<Item = (u32, &Vec<u8>)> {
        self.changed.iter().filter_map(|first| Some((*first, self.blocks.get(first)?)))
    }

    /// Adds the changed blocks in their first places.
    pub(super) fn add_to(&self, changes: &mut Blocks) {
        for (first, block) in self.changed() {
            changes.insert(self.layout.descriptor_block(first), block.clone());
        }
    }

    /// Writes the backups of superblock and descriptors that lie in these groups.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn write_backups(
        &self,
        volume: &Offline,
        superblock: &Superblock,
        groups: Range<u32>,
    ) -> Result<()> {
        let layout = &self.layout;
        let size = u64::from(layout.block_size);
        let write = |pba: Pba, block: Vec<u8>| volume.device.write_at(pba.get() * size, block);
        for group in groups.clone().filter(|group| layout.backups(*group)) {
            let mut copy = superblock.clone();
            // The field has 16 bits; readers accept 65535 for larger numbers.
            copy.raw.s_block_group_nr = U16::new(u16::try_from(group).unwrap_or(u16::MAX));
            let mut block = copy.encode().to_vec();
            block.resize(as_index(layout.block_size).max(SIZE), 0);
            let start = layout.superblock_block(group);
            write(start, block)?;
            // Groups whose own descriptors lie in them have no others.
            for (index, (first, block)) in (1..).zip(&self.blocks) {
                if !layout.is_meta_bg(*first) && !layout.is_meta_bg(group) {
                    write(Pba(start.get() + index), block.clone())?;
                }
            }
        }
        for (first, block) in self.changed() {
            let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
            let behind = (first + 1..end).filter(|group| groups.contains(group));
            for group in behind.filter(|group| {
                layout.is_meta_bg(first) && layout.holds_metagroup_descriptors(*group)
            }) {
                let at = layout.group_first_block(group).get() + u64::from(layout.backups(group));
                write(Pba(at), block.clone())?;
            }
        }
        Ok(())
    }
}
