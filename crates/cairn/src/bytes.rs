//! Bytes at any offset, whatever the device's blocks are.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Cause;

/// Reads `len` bytes, or `None` if they lie beyond the end.
pub(crate) fn read_bytes(
    device: &dyn BlockDevice,
    offset: u64,
    len: usize,
) -> Result<Option<Vec<u8>>, Cause> {
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > device.geometry().size) {
        return Ok(None);
    }
    Ok(Some(device.read_bytes(offset, len)?.to_vec()))
}
