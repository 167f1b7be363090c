//! Tells the device which blocks are free (`FITRIM`).
//!
//! A group stays locked while its runs are discarded, so that none of them is allocated meanwhile.
//! As in Linux, a group that was trimmed as a whole is skipped until a block in it becomes free or
//! shorter runs are requested. The result counts only blocks that were discarded.

use std::sync::atomic::Ordering;

use cairn_base::Pba;

use super::Space;
use crate::error::Result;

impl Space {
    /// Calls `discard(start, blocks)` for each free run of at least `least` blocks that has a block
    /// in the range. A run begins in the range and may end behind it, in its group. Blocks that are
    /// allocated or pending are skipped, and so are groups that were trimmed before. Returns the
    /// number of discarded blocks.
    ///
    /// # Errors
    /// A bitmap cannot be read, or `discard` failed.
    pub(crate) fn trim(
        &self,
        start: Pba,
        count: u64,
        least: u32,
        discard: &mut dyn FnMut(Pba, u64) -> Result<()>,
    ) -> Result<u64> {
        let inner = &self.inner;
        let layout = &inner.layout;
        let end = start.get().saturating_add(count).min(layout.blocks_count);
        let mut at = start.get().max(layout.first_data_block);
        let mut done = 0;
        while at < end {
            let (number, from) =
                layout.group_and_offset(Pba(at)).expect("the place lies in the volume");
            let first = layout.group_first_block(number).get();
            let stop = (end - first).min(layout.group_blocks(number).into());
            let to = u32::try_from(stop).expect("at most a group");
            let mut state = inner.groups.group(number).lock();
            let known = state.trimmed && least >= inner.least_trimmed.load(Ordering::Relaxed);
            if !known && inner.load(number, &mut state)? {
                let blocks = layout.group_blocks(number);
                let mut whole = from == 0 && to == blocks;
                for (bit, len) in state.map.iter().flat_map(|map| map.runs(from, to)) {
                    whole |= from == 0 && bit + len == blocks;
                    if len >= least.max(1) {
                        discard(Pba(first + u64::from(bit)), len.into())?;
                        done += u64::from(len);
                    }
                }
                state.trimmed |= whole;
            }
            at = first + stop;
        }
        inner.least_trimmed.store(least, Ordering::Relaxed);
        Ok(done)
    }
}
