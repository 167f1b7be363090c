//! Blocks are written as they are before a change: a host without room for one of them refuses it
//! while nothing has changed. A log that fails later stops, and the superblock records the error.

use cairn_base::Pba;
use cairn_block::BlockDeviceExt;

use super::{Blocks, Offline};
use crate::error::Result;

/// Blocks of the log that are written at once.
const CHUNK: u64 = 256;
/// Blocks of a transaction besides those that it changes and the descriptors of these.
const BESIDE: u64 = 16;

impl Offline {
    /// Writes blocks as they are. Returns their contents.
    ///
    /// # Errors
    /// The device failed, or has no room for them.
    pub(crate) fn claim(&self, first: Pba, blocks: u64) -> Result<Vec<u8>> {
        let size = u64::from(self.layout.block_size);
        let len = usize::try_from(blocks * size).unwrap_or(usize::MAX);
        let bytes = self.device.read_at(first.get() * size, len)?.to_vec();
        self.device.write_at(first.get() * size, bytes.clone())?;
        Ok(bytes)
    }

    /// Claims what a commit of these blocks writes: their places, and the start of the log.
    ///
    /// # Errors
    /// As [`Offline::claim`].
    pub(super) fn claim_commit(&self, blocks: &Blocks) -> Result<()> {
        for pba in blocks.keys() {
            self.claim(*pba, 1)?;
        }
        // A descriptor block has a tag of at most 32 bytes for each block.
        let changed = blocks.len() as u64 + 1;
        let descriptors = (changed * 32).div_ceil(u64::from(self.layout.block_size));
        self.claim_log(changed + descriptors + BESIDE)
    }

    /// Claims so many blocks of the log, which is empty, from its start on, and makes them durable.
    ///
    /// # Errors
    /// As [`Offline::claim`].
    pub(crate) fn claim_log(&self, blocks: u64) -> Result<()> {
        let mut left = blocks;
        for (_, start, len) in self.journal_extents() {
            let mut at = 0;
            while left > 0 && at < *len {
                let count = CHUNK.min(len - at).min(left);
                self.claim(Pba(start.get() + at), count)?;
                (at, left) = (at + count, left - count);
            }
        }
        Ok(self.device.flush()?)
    }
}
