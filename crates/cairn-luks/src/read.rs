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
    let geometry = device.geometry();
    let unit = u64::from(geometry.logical_block).max(1);
    let end = offset.checked_add(len).filter(|end| *end <= geometry.size);
    let Some(end) = end else {
        return Err(Error::damaged(place, offset, "beyond the end of the device"));
    };
    let start = offset / unit * unit;
    let whole = device.read_at(start, (end.next_multiple_of(unit) - start) as usize)?;
    let from = (offset - start) as usize;
    Ok(whole[from..from + len as usize].to_vec())
}
