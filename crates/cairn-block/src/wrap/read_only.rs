//! [`ReadOnly`]: refuses every write.

use std::ops::Range;
use std::sync::Arc;

use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Durability, Geometry};
use crate::error::{Error, ErrorKind, Result};
use crate::extent::Extent;
use crate::zoned::{Zone, ZoneLimits, ZonedDevice};

/// A device that refuses everything but reads.
pub struct ReadOnly {
    inner: Arc<dyn BlockDevice>,
}

impl ReadOnly {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner }
    }
}

impl BlockDevice for ReadOnly {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: true, ..self.inner.geometry() }
    }

    fn submit(&self, batch: Batch) -> Completion {
        let geometry = self.geometry();
        match batch.requests.iter().try_for_each(|request| bounds::check(&geometry, request)) {
            // Nothing was written here, so there is nothing to flush.
            Ok(()) => self.inner.submit(Batch { durability: Durability::default(), ..batch }),
            Err(error) => Completion::ready(Err(error)),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        self.inner.extents(range)
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned().map(|_| self as &dyn ZonedDevice)
    }
}

impl ReadOnly {
    fn zoned(&self) -> &dyn ZonedDevice {
        self.inner.as_zoned().expect("a device does not lose its zones")
    }

    fn refuse(&self, operation: &str, start: u64) -> Result<()> {
        let len = self.zoned().limits().zone_size;
        Err(Error::new(ErrorKind::ReadOnly, operation, "the device is read-only").at(start, len))
    }
}

impl ZonedDevice for ReadOnly {
    fn limits(&self) -> ZoneLimits {
        self.zoned().limits()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        self.zoned().report(offset, most)
    }

    fn reset(&self, start: u64) -> Result<()> {
        self.refuse("reset zone", start)
    }

    fn finish(&self, start: u64) -> Result<()> {
        self.refuse("finish zone", start)
    }
}
