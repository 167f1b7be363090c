//! Copies bytes from one device to another.

use std::ops::Range;

use cairn_block::{BlockDevice, BlockDeviceExt, Result};

/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

/// Copies a range to the same place.
pub(crate) fn copy(to: &dyn BlockDevice, from: &dyn BlockDevice, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(PIECE);
        let piece = usize::try_from(len).unwrap_or(usize::MAX);
        to.write_at(at, from.read_at(at, piece)?.into_bytes())?;
        at += len;
    }
    Ok(())
}
