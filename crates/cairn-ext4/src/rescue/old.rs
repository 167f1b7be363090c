//! The copies of blocks that the log still has, also of transactions that were checkpointed.

use std::collections::HashMap;

use cairn_base::{Pba, Tid};
use cairn_jbd2::JournalArea;
use cairn_jbd2::survey::{LogContents, LoggedCopy, read_copy, survey};

use crate::raw::{RawVolume, journal};

/// Most copies that are kept: those of a journal of 4 GiB.
const MOST: usize = 1 << 20;

/// Old copies, by the block that they belong to.
#[derive(Default)]
pub(super) struct Old {
    area: Option<JournalArea>,
    /// The newest one first.
    copies: HashMap<Pba, Vec<LoggedCopy>>,
}

impl Old {
    /// All copies in the log of a volume.
    pub(super) fn load(volume: &RawVolume) -> Self {
        let Ok(Some(area)) = journal::area(volume) else { return Self::default() };
        let mut copies: HashMap<Pba, Vec<LoggedCopy>> = HashMap::new();
        let mut count = 0_usize;
        // A journal whose superblock is damaged has no copies that can be told apart.
        let _ = survey(&area, |block| {
            if let LogContents::Descriptor(list) = block.contents {
                for copy in list.into_iter().filter(LoggedCopy::is_sound) {
                    if volume.layout.contains(copy.home, 1) {
                        copies.entry(copy.home).or_default().push(copy);
                        count = count.saturating_add(1);
                    }
                }
            }
            count < MOST
        });
        for list in copies.values_mut() {
            list.sort_by(|one, other| match one.tid.is_after(other.tid) {
                true => std::cmp::Ordering::Less,
                false if one.tid == other.tid => std::cmp::Ordering::Equal,
                false => std::cmp::Ordering::Greater,
            });
        }
        Self { area: Some(area), copies }
    }

    /// The copies of a block, the newest one first.
    pub(super) fn of(&self, pba: Pba) -> impl Iterator<Item = (Tid, Vec<u8>)> + '_ {
        let list = self.copies.get(&pba).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|copy| {
            let area = self.area.as_ref()?;
            Some((copy.tid, read_copy(area, copy).ok()?))
        })
    }

    /// The blocks that have copies.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Pba> + '_ {
        self.copies.keys().copied()
    }
}
