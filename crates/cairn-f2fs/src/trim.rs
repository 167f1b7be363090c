//! `FITRIM`: tells the device about segments that hold nothing. Blocks freed since the last checkpoint are not among them: a
//! checkpoint that frees a segment may still be needed.

use cairn_block::{Batch, BlockDevice, Durability, Request};
use cairn_vfs::Error as VfsError;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::SegNo;
use crate::format::units::{BLOCK_BYTES, SEGMENT_BYTES};
use crate::volume::Volume;

impl Volume {
    /// Discards free segments that lie in the byte range of the volume, in runs of at least `minimum` bytes. Returns the
    /// bytes discarded.
    ///
    /// # Errors
    /// The device cannot discard or fails, or the volume cannot be written.
    pub fn trim(&self, offset: u64, len: u64, minimum: u64) -> Result<u64> {
        self.check_writable()?;
        let store = self.store()?;
        if !store.device.geometry().discard {
            return Err(VfsError::Unsupported("the device does not discard").into());
        }
        if offset >= store.device.geometry().size || len < BLOCK_BYTES {
            return Err(VfsError::Invalid("trimming takes a range that starts in the volume and has a block").into());
        }
        store.checkpoints.write(Reason::Sync)?;
        // Nobody takes a segment meanwhile.
        let _guard = store.operation_lock.lock_all();
        store.operation_lock.check()?;
        let range = offset..offset.saturating_add(len);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for segno in (0..store.layout.main_segments).map(SegNo) {
            let start = store.layout.address(segno, 0).bytes();
            if !store.segments.segment(segno).free || start < range.start || start + SEGMENT_BYTES > range.end {
                continue;
            }
            match runs.last_mut().filter(|(first, len)| first + len == start) {
                Some((_, len)) => *len += SEGMENT_BYTES,
                None => runs.push((start, SEGMENT_BYTES)),
            }
        }
        runs.retain(|(_, len)| *len >= minimum);
        let total = runs.iter().map(|(_, len)| len).sum();
        let requests: Vec<_> = runs.into_iter().map(|(offset, len)| Request::Discard { offset, len }).collect();
        if !requests.is_empty() {
            store.device.submit(Batch { requests, durability: Durability::default() }).wait()?;
        }
        Ok(total)
    }
}
