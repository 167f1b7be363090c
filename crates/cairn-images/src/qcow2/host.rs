//! [`Host`]: the device that holds the image.

use std::sync::Arc;

use bytes::Bytes;
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Durability, Error, ErrorKind, IoBuf, Request, Result,
};

/// A growing file grows to multiples of this: fewer system calls, and holes cost nothing.
const STEP: u64 = 1 << 20;
/// Tables are written in pieces of at least this size and alignment.
const SECTOR: u64 = 512;

/// The device that holds the image.
pub(super) struct Host {
    device: Arc<dyn BlockDevice>,
}

/// An offset or length of something in memory.
pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("what is in memory has a length that fits")
}

impl Host {
    pub(super) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device }
    }

    /// Bytes that it has now.
    pub(super) fn len(&self) -> u64 {
        self.device.geometry().size
    }

    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The unit in which tables are written.
    pub(super) fn unit(&self) -> u64 {
        SECTOR.max(u64::from(self.device.geometry().logical_block))
    }

    /// Makes the device at least `end` bytes long.
    pub(super) fn ensure(&self, end: u64) -> Result<()> {
        let len = self.len();
        if end <= len {
            return Ok(());
        }
        match self.device.as_growable() {
            Some(growable) => growable.grow(end.next_multiple_of(STEP)),
            None => {
                let detail = format!(
                    "the device of {len} bytes that holds the qcow2 image is full: move the image \
                     to a larger one"
                );
                Err(Error::new(ErrorKind::NoSpace, "allocate", detail))
            }
        }
    }

    /// Bytes that it can have.
    pub(super) fn most(&self) -> u64 {
        if self.device.as_growable().is_some() { u64::MAX } else { self.len() }
    }

    /// True if what lies beyond the end now will read as zeros once it exists.
    pub(super) fn is_zero_beyond(&self) -> bool {
        self.device.as_growable().is_some()
    }

    /// Reads a range anywhere; what lies beyond the end is zeros, since a file may end within its
    /// last cluster.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<IoBuf> {
        let there = self.len().saturating_sub(offset).min(len);
        if there == len {
            return self.device.read_bytes(offset, index(len));
        }
        let mut whole = IoBuf::try_zeroed(index(len))?;
        if there > 0 {
            let read = self.device.read_bytes(offset, index(there))?;
            whole[..index(there)].copy_from_slice(&read);
        }
        Ok(whole)
    }

    pub(super) fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.device.write_at(offset, data)
    }

    /// Carries out requests without barriers.
    pub(super) fn submit(&self, requests: Vec<Request>) -> Result<Vec<IoBuf>> {
        self.submit_durable(requests, Durability::default())
    }

    pub(super) fn submit_durable(
        &self,
        requests: Vec<Request>,
        durability: Durability,
    ) -> Result<Vec<IoBuf>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        self.device.submit(Batch { requests, durability }).wait()
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.device.flush()
    }
}
