//! [`SparseWriter`]: writes that leave long runs of zeros out.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::device::{Batch, BlockDevice, Durability, Request};
use crate::error::Result;

/// Runs of at least this many blocks of zeros are not written as data.
const ZERO_RUN: usize = 4;

/// Writes blocks for several threads. Long runs of zeros become holes where the device can have
/// some.
pub struct SparseWriter {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    /// Buffers of finished writes.
    buffers: Mutex<Vec<BytesMut>>,
}

impl SparseWriter {
    /// A writer of blocks of this many bytes.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, block_size: usize) -> Self {
        Self { device, block_size, buffers: Mutex::new(Vec::new()) }
    }

    /// A buffer for this many blocks. Its contents have no meaning.
    #[must_use]
    pub fn buffer(&self, blocks: u64) -> BytesMut {
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        buffer.resize(blocks as usize * self.block_size, 0);
        buffer
    }

    /// Writes a buffer to runs of blocks: first block, and number of blocks.
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Panics
    /// The buffer has fewer blocks than the runs.
    pub fn write(
        &self,
        buffer: BytesMut,
        runs: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let bytes = buffer.freeze();
        let (mut requests, mut done) = (Vec::new(), 0);
        for (block, count) in runs {
            let piece = bytes.slice(done..done + count as usize * self.block_size);
            done += piece.len();
            let offset = block * self.block_size as u64;
            self::requests(&piece, offset, self.block_size, &mut requests);
        }
        self.device.submit(Batch { requests, durability: Durability::default() }).wait()?;
        if let Ok(buffer) = bytes.try_into_mut() {
            self.buffers.lock().push(buffer);
        }
        Ok(())
    }
}

/// Requests that write `bytes`, which are whole blocks, at `offset`.
fn requests(bytes: &Bytes, offset: u64, block_size: usize, requests: &mut Vec<Request>) {
    let mut from = 0;
    let mut zeros = 0;
    let blocks = bytes.len() / block_size;
    let mut write = |from: usize, to: usize, zero: bool| {
        let at = offset + (from * block_size) as u64;
        if from == to {
        } else if zero {
            requests
                .push(Request::WriteZeroes { offset: at, len: ((to - from) * block_size) as u64 });
        } else {
            let bufs = vec![bytes.slice(from * block_size..to * block_size)];
            requests.push(Request::Write { offset: at, bufs });
        }
    };
    for (number, block) in bytes.chunks(block_size).enumerate() {
        if is_zero(block) {
            zeros += 1;
            continue;
        }
        if zeros >= ZERO_RUN {
            write(from, number - zeros, false);
            write(number - zeros, number, true);
            from = number;
        }
        zeros = 0;
    }
    let zeros = if zeros >= ZERO_RUN { zeros } else { 0 };
    write(from, blocks - zeros, false);
    write(blocks - zeros, blocks, true);
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_runs_of_zeros_are_left_out() {
        let blocks = [1_u8, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        let bytes: Vec<u8> = blocks.iter().flat_map(|byte| [*byte; 8]).collect();
        let mut all = Vec::new();
        requests(&bytes.into(), 800, 8, &mut all);
        let shape = |request: &Request| match request {
            Request::Write { offset, bufs } => (*offset, bufs[0].len() as u64, true),
            Request::WriteZeroes { offset, len } => (*offset, *len, false),
            _ => panic!("another request"),
        };
        let all: Vec<_> = all.iter().map(shape).collect();
        assert_eq!(all, [(800, 40, true), (840, 32, false), (872, 8, true), (880, 40, false)]);
    }
}
