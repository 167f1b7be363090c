//! Bytes at any offset, whatever the device's blocks are.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Cause;

/// Reads `len` bytes, or `None` if they lie beyond the end.
pub(crate) fn read_bytes(
    device: &dyn BlockDevice,
    offset: u64,
    len: usize,
) -> Result<Option<Vec<u8>>, Cause> {
    let geometry = device.geometry();
    let unit = u64::from(geometry.logical_block.max(1));
    let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= geometry.size) else {
        return Ok(None);
    };
    let start = offset / unit * unit;
    let whole = end.div_ceil(unit).saturating_mul(unit).min(geometry.size) - start;
    let buf = device.read_at(start, usize::try_from(whole).unwrap_or(usize::MAX))?;
    let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
    Ok(buf.get(skip..).and_then(|tail| tail.get(..len)).map(<[u8]>::to_vec))
}
