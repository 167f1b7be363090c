//! `FITRIM`: tells the device about free blocks.

use cairn_base::Pba;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_vfs::Error as VfsError;

use crate::alloc::Space;
use crate::error::Result;
use crate::mount_state::MountState;

/// Discards free space of a byte range, in runs of at least `minimum` bytes. Returns the number of
/// bytes.
///
/// # Errors
/// [`VfsError::Unsupported`] if the device cannot discard, [`VfsError::Invalid`] if the range is
/// outside the volume or `minimum` is larger than a group; a bitmap is damaged.
pub(crate) fn trim(
    mount: &MountState,
    space: &Space,
    offset: u64,
    len: u64,
    minimum: u64,
) -> Result<u64> {
    mount.check_writable()?;
    let layout = &mount.layout;
    let block_size = u64::from(layout.block_size);
    if !mount.device.geometry().discard {
        return Err(VfsError::Unsupported("the device does not discard").into());
    }
    let (start, least) = (offset / block_size, minimum / block_size);
    let per_group = layout.blocks_per_group;
    if start >= layout.blocks_count || len < block_size || least > per_group.into() {
        let what = "FITRIM needs a range that starts in the volume and has at least one block, and \
            a minimum length of at most one group";
        return Err(VfsError::Invalid(what).into());
    }
    let (start, count, least) =
        (Pba(start), len / block_size, u32::try_from(least).unwrap_or(per_group));
    let done = space.trim(start, count, least, &mut |pba, blocks| {
        Ok(mount.device.discard(pba.get() * block_size, blocks * block_size)?)
    })?;
    Ok(done * block_size)
}
