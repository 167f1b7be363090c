//! Whole blocks from and to the device, many in one batch.

use cairn_base::Pba;
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Bytes, Durability, IoBuf, Request};

use crate::error::Result;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// Longest single transfer, in blocks.
const MAX_RUN: u64 = 512;

/// Reads `count` blocks that follow each other. `count` is bounded by the caller.
///
/// # Errors
/// The device's.
pub fn read(device: &dyn BlockDevice, start: Pba, count: usize) -> Result<IoBuf> {
    Ok(device.read_at(start.get().saturating_mul(BLOCK_BYTES), count * BLOCK_SIZE)?)
}

/// Blocks to be written together; neighbours become one request.
#[derive(Debug, Default)]
pub struct Writes(Vec<(u64, Bytes)>);

impl Writes {
    /// Nothing to write.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one block, or several that follow each other.
    pub fn push(&mut self, at: Pba, blocks: impl Into<Bytes>) {
        let blocks = blocks.into();
        debug_assert!(blocks.len().is_multiple_of(BLOCK_SIZE) && !blocks.is_empty());
        self.0.push((at.get(), blocks));
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.iter().map(|(_, blocks)| (blocks.len() / BLOCK_SIZE) as u64).sum()
    }

    /// Is there nothing to write?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The batch that writes them.
    #[must_use]
    pub fn into_batch(mut self, durability: Durability) -> Batch {
        self.0.sort_by_key(|(at, _)| *at);
        let mut requests: Vec<(u64, u64, Vec<Bytes>)> = Vec::new();
        for (at, block) in self.0 {
            let count = (block.len() / BLOCK_SIZE) as u64;
            match requests.last_mut() {
                Some((start, len, bufs)) if *start + *len == at && *len + count <= MAX_RUN => {
                    *len += count;
                    bufs.push(block);
                }
                _ => requests.push((at, count, vec![block])),
            }
        }
        let request = |(start, _, bufs)| Request::Write { offset: start * BLOCK_BYTES, bufs };
        Batch { requests: requests.into_iter().map(request).collect(), durability }
    }

    /// Writes them, about `most` blocks at once, and waits; does not flush the device.
    ///
    /// # Errors
    /// The device's.
    pub fn write_in_parts(mut self, most: u64, device: &dyn BlockDevice) -> Result<()> {
        self.0.sort_by_key(|(at, _)| *at);
        let mut part = Self::new();
        let mut count = 0;
        for (at, blocks) in self.0 {
            count += (blocks.len() / BLOCK_SIZE) as u64;
            part.0.push((at, blocks));
            if count >= most {
                std::mem::take(&mut part).write(device)?;
                count = 0;
            }
        }
        part.write(device)
    }

    /// Writes them and waits; does not flush the device.
    ///
    /// # Errors
    /// The device's.
    pub fn write(self, device: &dyn BlockDevice) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Ok(device.submit(self.into_batch(Durability::default())).wait().map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use cairn_block::memory::MemoryDevice;

    use super::*;

    #[test]
    fn neighbours_become_one_request() {
        let mut writes = Writes::new();
        for at in [7_u64, 3, 4, 9, 5] {
            writes.push(Pba(at), vec![at as u8; BLOCK_SIZE]);
        }
        assert_eq!(writes.blocks(), 5);
        let batch = writes.into_batch(Durability::default());
        assert_eq!(batch.requests.len(), 3);
        let device = MemoryDevice::new(64 * BLOCK_BYTES);
        device.submit(batch).wait().unwrap();
        let mut again = Writes::new();
        [7_u64, 3, 9].into_iter().for_each(|at| again.push(Pba(at), vec![at as u8; BLOCK_SIZE]));
        again.write_in_parts(2, &device).unwrap();
        let back = read(&device, Pba(3), 7).unwrap();
        let firsts: Vec<u8> = back.chunks_exact(BLOCK_SIZE).map(|block| block[0]).collect();
        assert_eq!(firsts, [3, 4, 5, 0, 7, 0, 9]);
    }
}
