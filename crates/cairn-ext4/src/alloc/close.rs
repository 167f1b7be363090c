//! What is not allocated any more: blocks and inodes behind an address, because the volume will end
//! there, and blocks that were freed while fast commits are replayed.

use std::sync::atomic::Ordering;

use cairn_base::{Pba, bitmap};

use super::blocks::publish;
use super::{Class, Inner, Space};
use crate::error::Result;
use crate::groups::GroupState;

impl Space {
    /// Allocates no block from `end` on, and no inode of a group that begins there. What is freed
    /// behind `end` stays out of use.
    ///
    /// # Errors
    /// A bitmap cannot be read.
    pub(crate) fn close_from(&self, end: Pba) -> Result<()> {
        let inner = &self.inner;
        inner.closed.store(end.get(), Ordering::Relaxed);
        for number in 0..inner.groups.len() {
            let first = inner.layout.group_first_block(number).get();
            let blocks = inner.layout.group_blocks(number);
            if first.saturating_add(blocks.into()) <= end.get() {
                continue;
            }
            let from = u32::try_from(end.get().saturating_sub(first)).unwrap_or(blocks);
            let group = inner.groups.group(number);
            let mut state = group.lock();
            if !inner.load(number, &mut state)? {
                continue;
            }
            let Some(map) = state.map.as_mut() else { continue };
            let runs: Vec<(u32, u32)> = map.runs(from, blocks).collect();
            for (start, len) in runs {
                map.take(start, len);
                inner.reservations.remove_free(len.into());
            }
            publish(group, &state);
        }
        Ok(())
    }
}

impl Space {
    /// Blocks that a map can have now, without a commit.
    pub(crate) fn allocatable(&self) -> u64 {
        self.inner.reservations.available_with(0, Class::Mapping)
    }

    /// From now on, blocks that are freed are not allocated again while this volume is in memory.
    pub(crate) fn keep_freed(&self) {
        self.inner.keeps_freed.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// The part of a freed run that may be allocated again.
    pub(super) fn open_part(&self, number: u32, start: u32, len: u32) -> u32 {
        if self.keeps_freed.load(Ordering::Relaxed) {
            return 0;
        }
        let first = self.layout.group_first_block(number).get().saturating_add(start.into());
        let open = self.closed.load(Ordering::Relaxed).saturating_sub(first);
        u32::try_from(open).unwrap_or(len).min(len)
    }

    /// The parts of a freed run that are in use. While fast commits are replayed, a block may
    /// belong to several files, of which only the last one is to be.
    pub(super) fn parts_to_free(
        &self,
        number: u32,
        state: &GroupState,
        start: u32,
        len: u32,
    ) -> Result<Vec<(u32, u32)>> {
        if !self.keeps_freed.load(Ordering::Relaxed) {
            return Ok(vec![(start, len)]);
        }
        let bits = self.groups.block_bitmap(number, state)?;
        let (mut at, end) = (start as usize, start as usize + len as usize);
        let mut parts = Vec::new();
        while let Some(from) = bitmap::next_set(&bits, at, end) {
            at = bitmap::next_clear(&bits, from, end).unwrap_or(end);
            // Both lie in a group, whose bits have 32-bit numbers.
            parts.push((from as u32, (at - from) as u32));
        }
        Ok(parts)
    }

    /// True if no inode of the group is allocated.
    pub(super) fn is_closed(&self, number: u32) -> bool {
        self.layout.group_first_block(number).get() >= self.closed.load(Ordering::Relaxed)
    }
}
