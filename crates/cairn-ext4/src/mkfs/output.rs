//! Writes a new volume in large batches.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Pba;
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, Request};

use crate::error::Result;
use crate::format::superblock::{OFFSET, SIZE};

/// Bytes collected before they are sent.
const BATCH_BYTES: usize = 4 << 20;
/// Requests collected before they are sent.
const BATCH_REQUESTS: usize = 1024;

pub(super) struct Output {
    device: Arc<dyn BlockDevice>,
    block_size: u64,
    batch: Vec<Request>,
    bytes: usize,
}

impl Output {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self { device, block_size: block_size.into(), batch: Vec::new(), bytes: 0 }
    }

    /// Erases boot sector and superblock first, so that an interrupted run leaves no filesystem.
    pub(super) fn erase_signature(&mut self) -> Result<()> {
        let first = usize::try_from(OFFSET).unwrap_or(0) + SIZE;
        self.device.write_at(0, vec![0; first.max(4096)])?;
        self.device.flush()?;
        Ok(())
    }

    /// Writes whole blocks.
    pub(super) fn blocks(&mut self, pba: Pba, data: Vec<u8>) -> Result<()> {
        self.bytes += data.len();
        self.push(Request::Write {
            offset: pba.get() * self.block_size,
            bufs: vec![Bytes::from(data)],
        })
    }

    /// Makes blocks read as zeros.
    pub(super) fn zeros(&mut self, pba: Pba, count: u64) -> Result<()> {
        self.push(Request::WriteZeroes {
            offset: pba.get() * self.block_size,
            len: count * self.block_size,
        })
    }

    fn push(&mut self, request: Request) -> Result<()> {
        self.batch.push(request);
        if self.bytes >= BATCH_BYTES || self.batch.len() >= BATCH_REQUESTS {
            self.send()?;
        }
        Ok(())
    }

    /// Sends the batch. Requests of one batch have no order, so writes that overlap go to different
    /// batches.
    pub(super) fn send(&mut self) -> Result<()> {
        self.bytes = 0;
        let requests = std::mem::take(&mut self.batch);
        self.device.submit(Batch { requests, durability: Durability::default() }).wait()?;
        Ok(())
    }

    /// Writes everything, then the block with the primary superblock, and flushes both.
    pub(super) fn finish(&mut self, first_block: Pba, data: Vec<u8>) -> Result<()> {
        self.send()?;
        self.device.flush()?;
        self.device.write_at(first_block.get() * self.block_size, data)?;
        self.device.flush()?;
        Ok(())
    }
}
