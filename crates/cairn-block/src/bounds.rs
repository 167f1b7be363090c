//! Checks a request against the bounds of a device. Every device does so before anything else.

use bytes::Bytes;

use crate::device::{Geometry, Request};
use crate::error::{Error, ErrorKind, Operation, Result};

/// Refuses requests beyond the end, off the logical block, or writing to what is read-only.
///
/// # Errors
/// [`ErrorKind::ReadOnly`] or [`ErrorKind::OutOfRange`].
pub fn check(geometry: &Geometry, request: &Request) -> Result<()> {
    let (operation, offset, len) = describe(request);
    if geometry.read_only && !matches!(request, Request::Read { .. }) {
        return Err(
            Error::new(ErrorKind::ReadOnly, operation, "the device is read-only").at(offset, len)
        );
    }
    if offset.checked_add(len).is_none_or(|end| end > geometry.size) {
        let detail = format!("the device ends at byte {}", geometry.size);
        return Err(Error::new(ErrorKind::OutOfRange, operation, detail).at(offset, len));
    }
    let unit = u64::from(geometry.logical_block.max(1));
    if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
        let detail = format!("not a multiple of the device's block of {unit} bytes");
        return Err(Error::new(ErrorKind::OutOfRange, operation, detail).at(offset, len));
    }
    Ok(())
}

/// The sum of the buffers' lengths.
#[must_use]
pub fn total_len(bufs: &[Bytes]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// Leaves the first `len` bytes and returns the rest.
pub(crate) fn split_off(bufs: &mut Vec<Bytes>, len: usize) -> Vec<Bytes> {
    let (mut kept, mut rest, mut left) = (Vec::new(), Vec::new(), len);
    for mut buf in bufs.drain(..) {
        if left == 0 {
            rest.push(buf);
        } else if buf.len() <= left {
            left -= buf.len();
            kept.push(buf);
        } else {
            rest.push(buf.split_off(left));
            kept.push(buf);
            left = 0;
        }
    }
    *bufs = kept;
    rest
}

fn describe(request: &Request) -> (Operation, u64, u64) {
    match request {
        Request::Read { offset, buf } => (Operation::Read, *offset, buf.len() as u64),
        Request::Write { offset, bufs } => (Operation::Write, *offset, total_len(bufs)),
        Request::Discard { offset, len } => (Operation::Discard, *offset, *len),
        Request::WriteZeroes { offset, len } => (Operation::WriteZeroes, *offset, *len),
    }
}
