//! [`ReadOnly`]: no write gets through.

use std::sync::Arc;

use crate::bounds;
use crate::device::{Batch, BlockDevice, Completion, Durability, Geometry};
use crate::error::Result;

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
}
