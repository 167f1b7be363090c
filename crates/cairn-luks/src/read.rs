//! Reading a few bytes of the device at any offset.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::{Error, Result};

/// `len` bytes at `offset`, which a header names as its `place`.
pub(crate) fn bytes(
    device: &dyn BlockDevice,
    place: &'static str,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>> {
    let size = device.geometry().size;
    let fits = offset.checked_add(len).is_some_and(|end| end <= size);
    let len = usize::try_from(len).ok().filter(|_| fits);
    let len = len.ok_or_else(|| {
        let ends = "and the device ends before its end";
        Error::damaged(place, format!("at byte {offset}"), ends)
    })?;
    Ok(device.read_bytes(offset, len)?.to_vec())
}
