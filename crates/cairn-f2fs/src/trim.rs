//! `FITRIM`: discards free blocks that are not discarded yet, in whole segments, as Linux does.
//! Blocks freed since the last checkpoint are left out, because recovery may need that checkpoint.

use cairn_block::BlockDevice;
use cairn_vfs::Error as VfsError;

use crate::checkpoint::Reason;
use crate::error::Result;
use crate::format::SegNo;
use crate::format::units::{BLOCK_BYTES, SEGMENT_BYTES};
use crate::mount_state::MountState;

/// Discards free blocks of the segments that the byte range of the volume touches, in runs of at
/// least `minimum` bytes, unless that has been done. Returns the bytes discarded.
///
/// # Errors
/// The device cannot discard or fails, or the volume cannot be written.
pub(crate) fn trim(mount: &MountState, offset: u64, len: u64, minimum: u64) -> Result<u64> {
    mount.check_writable()?;
    let store = mount.store()?;
    if !store.device.geometry().discard {
        return Err(VfsError::Unsupported("the device does not discard").into());
    }
    if offset >= store.device.geometry().size || len < BLOCK_BYTES {
        return Err(VfsError::Invalid(
            "FITRIM needs a range that starts in the volume and has at least one block",
        )
        .into());
    }
    store.checkpoints.write(Reason::Sync)?;
    let range = offset..offset.saturating_add(len);
    let inside = |segno: &SegNo| {
        let start = store.layout.address(*segno, 0).bytes();
        start < range.end && range.start < start + SEGMENT_BYTES
    };
    let segments = || (0..store.layout.main_segments).map(SegNo).filter(inside);
    // Reading the summaries takes long on a large volume: nobody else waits for it.
    for segno in segments() {
        let _op = store.operation_lock.lock_op()?;
        store.segments.ask_undiscarded(std::iter::once(segno))?;
    }
    // No block is allocated meanwhile.
    let _guard = store.operation_lock.lock_all();
    store.operation_lock.check()?;
    store.segments.ask_undiscarded(segments())?;
    let minimum = u32::try_from(minimum.div_ceil(BLOCK_BYTES)).unwrap_or(u32::MAX);
    store.checkpoints.discard(&store.segments.undiscarded_runs(segments(), minimum))
}
