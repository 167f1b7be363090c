//! Which blocks of a deleted file nobody has used since.

use cairn_base::units::as_index;
use cairn_base::{Pba, bitmap};
use cairn_cache::block::Image;
use cairn_check::BlockSet;
use cairn_check::salvage::Remains;

use crate::format::extent::Extent;
use crate::format::group_desc::GroupFlags;
use crate::raw::RawVolume;

/// The block bitmaps, of which the last one is kept; and what younger deleted files have had.
pub(super) struct Free<'a> {
    volume: &'a RawVolume,
    /// The last group, and its bitmap unless nothing of it is in use.
    group: Option<(u32, Option<Image>)>,
    claimed: Option<BlockSet>,
}

/// What is left of a file.
pub(super) struct Left {
    pub(super) blocks: u64,
    pub(super) free: u64,
    pub(super) extents: Vec<Extent>,
}

impl Left {
    pub(super) fn remains(&self) -> Remains {
        match self.free {
            free if free == self.blocks => Remains::Whole,
            0 => Remains::Overwritten,
            _ => Remains::Part,
        }
    }
}

impl<'a> Free<'a> {
    pub(super) fn new(volume: &'a RawVolume) -> Self {
        let claimed = BlockSet::new(volume.layout.blocks_count).ok();
        Self { volume, group: None, claimed }
    }

    fn is_free(&mut self, pba: Pba) -> bool {
        let Some((group, offset)) = self.volume.layout.group_and_offset(pba) else { return false };
        if self.group.as_ref().is_none_or(|(known, _)| *known != group) {
            let Some(found) = self.volume.desc(group) else { return false };
            let unused = found.desc.flags.contains(GroupFlags::BLOCK_UNINIT);
            let bits = match unused && found.wrong.is_none() {
                true => None,
                false => match self.volume.block(found.desc.block_bitmap) {
                    Ok(bits) => Some(bits),
                    Err(_) => return false,
                },
            };
            self.group = Some((group, bits));
        }
        let Some((_, Some(bits))) = &self.group else { return true };
        let cluster = as_index(offset >> self.volume.layout.cluster_bits);
        cluster < bits.len().saturating_mul(8) && !bitmap::test(bits, cluster)
    }

    /// The parts of extents that are free, and that no younger file has had.
    pub(super) fn left(&mut self, extents: &[Extent]) -> Left {
        let mut left = Left { blocks: 0, free: 0, extents: Vec::new() };
        for extent in extents.iter().filter(|extent| !extent.unwritten) {
            left.blocks = left.blocks.saturating_add(extent.len);
            for (start, number) in (extent.start..extent.end()).zip(extent.pba.get()..) {
                let is_first = self.claimed.as_ref().is_none_or(|claimed| claimed.insert(number));
                if !is_first || !self.is_free(Pba(number)) {
                    continue;
                }
                left.free = left.free.saturating_add(1);
                let next = Extent { start, len: 1, pba: Pba(number), unwritten: false };
                match left.extents.last_mut() {
                    Some(last) if last.continues_with(&next) => {
                        last.len = last.len.saturating_add(1);
                    }
                    _ => left.extents.push(next),
                }
            }
        }
        left
    }
}
