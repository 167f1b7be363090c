//! Traces of a volume whose superblocks are gone.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::format::checkpoint::verify;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// True if a checkpoint lies where mkfs.f2fs and Cairn place the first ones: in the first two
/// segments behind the one with the superblocks.
#[must_use]
pub fn has_checkpoint(device: &dyn BlockDevice) -> bool {
    let size = device.geometry().size;
    [1, 2_u64].into_iter().any(|segment| {
        let block = segment.saturating_mul(BLOCKS_PER_SEGMENT.into());
        let at = block.saturating_mul(BLOCK_BYTES);
        let fits = at.saturating_add(BLOCK_BYTES) <= size;
        let read = || device.read_bytes(at, BLOCK_SIZE).ok();
        fits && read().is_some_and(|bytes| verify(&bytes, block).is_ok())
    })
}
