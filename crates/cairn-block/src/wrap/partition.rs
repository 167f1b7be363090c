//! [`Partition`]: a byte window of a device.

use std::ops::Range;
use std::sync::Arc;

use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Geometry, Request};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::Extent;

/// The part of a device from `offset`, `len` bytes long, as a device of its own. A flush flushes
/// the whole device.
pub struct Partition {
    inner: Arc<dyn BlockDevice>,
    offset: u64,
    geometry: Geometry,
}

impl Partition {
    /// The window.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if it does not lie within the device, or breaks the device's
    /// logical block.
    pub fn new(inner: Arc<dyn BlockDevice>, offset: u64, len: u64) -> Result<Self> {
        let outer = inner.geometry();
        let fault = if offset.checked_add(len).is_none_or(|end| end > outer.size) {
            Some(format!("the device ends at byte {}", outer.size))
        } else if [offset, len]
            .iter()
            .any(|n| !n.is_multiple_of(u64::from(outer.logical_block.max(1))))
        {
            Some(format!("not a multiple of the device's block of {} bytes", outer.logical_block))
        } else {
            None
        };
        match fault {
            Some(detail) => {
                Err(Error::new(ErrorKind::OutOfRange, "open partition", detail).at(offset, len))
            }
            None => Ok(Self { inner, offset, geometry: Geometry { size: len, ..outer } }),
        }
    }
}

impl BlockDevice for Partition {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, mut batch: Batch) -> Completion {
        for request in &mut batch.requests {
            if let Err(error) = bounds::check(&self.geometry, request) {
                return Completion::ready(Err(error));
            }
            match request {
                Request::Read { offset, .. }
                | Request::Write { offset, .. }
                | Request::Discard { offset, .. }
                | Request::WriteZeroes { offset, .. } => *offset += self.offset,
            }
        }
        let start = self.offset;
        self.inner.submit(batch).map(move |outcome| {
            outcome.map_err(|error| Error {
                // The caller counts from the partition's start.
                range: error.range.map(|(offset, len)| (offset.saturating_sub(start), len)),
                ..error
            })
        })
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        let end = range.end.min(self.geometry.size);
        let start = range.start.min(end);
        let inner = self.inner.extents(self.offset + start..self.offset + end)?;
        let mut extents = Vec::new();
        for extent in inner {
            // Another partition may follow in the same extent.
            let outer = extent.end().min(self.offset + end) - self.offset;
            let offset = extent.offset - self.offset;
            Extent { offset, len: outer.saturating_sub(offset), ..extent }.push(&mut extents);
        }
        Ok(extents)
    }
}
