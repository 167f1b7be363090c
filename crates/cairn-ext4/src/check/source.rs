//! [`Source`]: reads blocks of the volume, without a cache.

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt, Error, ErrorKind, IoBuf, Operation};

/// The device as blocks of the volume.
pub(super) struct Source {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
}

impl Source {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self { device, block_size }
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The device failed, or ends before.
    pub(super) fn read(&self, from: Pba, blocks: u64) -> Result<IoBuf, Error> {
        let size = u64::from(self.block_size);
        let place = from.get().checked_mul(size).zip(blocks.checked_mul(size));
        let place = place.and_then(|(at, len)| Some((at, usize::try_from(len).ok()?)));
        let beyond = || Error::new(ErrorKind::Io, Operation::Read, "a block beyond the device");
        let (at, len) = place.ok_or_else(beyond)?;
        let end = at.checked_add(u64::try_from(len).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > self.device.geometry().size) {
            return Err(beyond());
        }
        self.device.read_at(at, len)
    }

    /// Reads one block of another device of the same volume.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(super) fn read_from(&self, device: &dyn BlockDevice, from: Pba) -> Result<Vec<u8>, Error> {
        let at = from.get().saturating_mul(self.block_size.into());
        Ok(device.read_block(at, as_index(self.block_size))?.to_vec())
    }

    /// Reads one block.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(super) fn block(&self, from: Pba) -> Result<IoBuf, Error> {
        self.read(from, 1)
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        as_index(self.block_size)
    }
}
