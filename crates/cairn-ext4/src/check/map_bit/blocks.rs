//! [`Blocks`]: which blocks a file may have, by the bitmaps and by what other files have.

use std::collections::BTreeMap;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Pba, bitmap};
use cairn_block::IoBuf;

use super::super::state::State;
use crate::format::group_desc::GroupFlags;

/// Bitmaps that are kept, at most.
const MOST_BITMAPS: usize = 256;

/// Blocks that a file may have.
pub(in super::super) struct Blocks<'a> {
    state: &'a State,
    /// The blocks that its map has now: where they begin, and how many, in their order.
    own: Vec<(u64, u64)>,
    /// Where these end, in order.
    ends: Vec<u64>,
    /// The bitmaps of groups, if they can be read.
    bitmaps: BTreeMap<u32, Option<IoBuf>>,
    /// The bitmaps are not asked.
    pub(super) is_unmarked: bool,
}

impl<'a> Blocks<'a> {
    pub(in super::super) fn new(state: &'a State, own: Vec<(u64, u64)>) -> Self {
        let mut ends: Vec<u64> = own.iter().map(|(from, len)| from.saturating_add(*len)).collect();
        ends.sort_unstable();
        Self { state, own, ends, bitmaps: BTreeMap::new(), is_unmarked: false }
    }

    /// Are all of these blocks in use by the bitmap, and no other file's?
    pub(in super::super) fn may_have(&mut self, from: u64, len: u64) -> bool {
        let state = self.state;
        if len == 0 || !state.layout.contains(Pba(from), len) {
            return false;
        }
        let is_foreign = |block: u64| {
            let is_own = || match state.twice.contains(block) {
                true => self.times(block) > 1,
                false => self.is_own(block),
            };
            state.system.contains(block) || state.claimed.contains(block) && !is_own()
        };
        let mut all = from..from.saturating_add(len);
        !all.clone().any(is_foreign) && (self.is_unmarked || all.all(|block| self.is_marked(block)))
    }

    /// Has the file alone the block, once?
    pub(super) fn has(&mut self, block: u64) -> bool {
        self.may_have(block, 1) && !self.state.twice.contains(block)
    }

    /// How many of these blocks does the map not have now?
    pub(super) fn others(&self, ranges: &[(u64, u64)]) -> u64 {
        let all = ranges.iter().flat_map(|(from, len)| *from..from.saturating_add(*len));
        as_u64(all.filter(|block| !self.is_own(*block)).count())
    }

    /// Would a block in use, which the file alone has now, be nobody's if it had these ones?
    pub(super) fn would_leak(&mut self, ranges: &[(u64, u64)]) -> bool {
        let stays = |block: u64| {
            let behind = ranges.partition_point(|(from, _)| *from <= block);
            let range = behind.checked_sub(1).and_then(|at| ranges.get(at));
            range.is_some_and(|(from, len)| block < from.saturating_add(*len))
        };
        let own = self.own.clone();
        let mut all = own.into_iter().flat_map(|(from, len)| from..from.saturating_add(len));
        all.any(|block| !stays(block) && self.has(block))
    }

    fn is_own(&self, block: u64) -> bool {
        self.times(block) > 0
    }

    /// How often the map has the block now.
    fn times(&self, block: u64) -> usize {
        let begun = self.own.partition_point(|(from, _)| *from <= block);
        begun.saturating_sub(self.ends.partition_point(|end| *end <= block))
    }

    /// Is the block in use by the bitmap?
    pub(in super::super) fn is_marked(&mut self, block: u64) -> bool {
        let state = self.state;
        let Some((number, bit)) = state.layout.group_and_offset(Pba(block)) else { return false };
        if self.bitmaps.len() >= MOST_BITMAPS && !self.bitmaps.contains_key(&number) {
            self.bitmaps.clear();
        }
        let bits = self.bitmaps.entry(number).or_insert_with(|| {
            let group =
                state.groups.get(as_index(number)).filter(|group| group.has_block_bitmap)?;
            let uninit = group.desc.flags.contains(GroupFlags::BLOCK_UNINIT);
            if group.is_sealed && uninit {
                return None;
            }
            state.source.block(group.desc.block_bitmap).ok()
        });
        bits.as_ref().is_some_and(|bits| {
            as_index(bit) < bits.len().saturating_mul(8) && bitmap::test(bits, as_index(bit))
        })
    }
}
