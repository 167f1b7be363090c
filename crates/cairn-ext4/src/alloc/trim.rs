//! Telling the device which blocks are free.
//!
//! A group stays locked while its runs are discarded, so nobody is given a block whose discard is under way.

use cairn_base::Pba;

use super::Space;
use crate::error::Result;

impl Space {
    /// Calls `discard(start, blocks)` for each free run of at least `least` blocks in the range. Blocks claimed, or freed
    /// by a transaction that is not durable, are left alone. Returns the number of blocks discarded.
    ///
    /// # Errors
    /// A bitmap cannot be read, or `discard` failed.
    pub fn trim(
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
            let (number, from) = layout.group_and_offset(Pba(at)).expect("the place lies in the volume");
            let first = layout.group_first_block(number).get();
            let stop = (end - first).min(layout.group_blocks(number).into());
            let to = u32::try_from(stop).expect("at most a group");
            let mut state = inner.groups.group(number).lock();
            if inner.load(number, &mut state)? {
                for (bit, len) in state.map.iter().flat_map(|map| map.runs(from, to, least.max(1))) {
                    discard(Pba(first + u64::from(bit)), len.into())?;
                    done += u64::from(len);
                }
            }
            at = first + stop;
        }
        Ok(done)
    }
}
