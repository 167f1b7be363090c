//! Runs batches on devices that keep their contents in memory and do each request at once.

use bytes::Bytes;

use crate::bounds;
use crate::buffer::IoBuf;
use crate::device::{Batch, Geometry, Request};
use crate::error::Result;

/// Contents that are read and changed in place. The ranges fit the geometry.
pub(crate) trait InPlace {
    /// Fills `buf` from `offset`.
    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes the buffers one after the other from `offset`.
    fn put(&self, offset: u64, bufs: &[Bytes]);

    /// Makes the range read as zeros.
    fn clear(&self, offset: u64, len: u64);
}

/// Checks every request against `geometry`, then does them in order. Returns the buffers of the
/// reads.
pub(crate) fn run(
    contents: &impl InPlace,
    geometry: &Geometry,
    batch: Batch,
) -> Result<Vec<IoBuf>> {
    batch.requests.iter().try_for_each(|request| bounds::check(geometry, request))?;
    let mut read = Vec::new();
    for request in batch.requests {
        match request {
            Request::Read { offset, mut buf } => {
                contents.fill(offset, &mut buf)?;
                read.push(buf);
            }
            Request::Write { offset, bufs } => contents.put(offset, &bufs),
            Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                contents.clear(offset, len);
            }
        }
    }
    Ok(read)
}
