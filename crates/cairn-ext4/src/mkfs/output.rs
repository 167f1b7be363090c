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

/// Where batches go.
enum Target {
    Device(Arc<dyn BlockDevice>),
    /// They wait for a device.
    Held(Vec<Vec<Request>>),
    /// They are dropped.
    Nowhere,
}

pub(super) struct Output {
    target: Target,
    block_size: u64,
    batch: Vec<Request>,
    bytes: usize,
}

impl Output {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self::to(Target::Device(device), block_size)
    }

    /// Keeps everything until [`Output::start`] names the device.
    pub(super) fn held(block_size: u32) -> Self {
        Self::to(Target::Held(Vec::new()), block_size)
    }

    /// Drops everything, for a volume that is only planned.
    pub(super) fn nowhere(block_size: u32) -> Self {
        Self::to(Target::Nowhere, block_size)
    }

    fn to(target: Target, block_size: u32) -> Self {
        Self { target, block_size: block_size.into(), batch: Vec::new(), bytes: 0 }
    }

    /// Erases the signature of `device`, then writes what was held and everything that follows to
    /// it.
    pub(super) fn start(&mut self, device: Arc<dyn BlockDevice>) -> Result<()> {
        self.send()?;
        let held = match std::mem::replace(&mut self.target, Target::Device(device)) {
            Target::Held(batches) => batches,
            _ => Vec::new(),
        };
        self.erase_signature()?;
        for requests in held {
            self.batch = requests;
            self.send()?;
        }
        Ok(())
    }

    /// Erases boot sector and superblock first, so that an interrupted run leaves no filesystem.
    pub(super) fn erase_signature(&mut self) -> Result<()> {
        let first = usize::try_from(OFFSET).unwrap_or(0) + SIZE;
        if let Target::Device(device) = &self.target {
            device.write_at(0, vec![0; first.max(4096)])?;
            device.flush()?;
        }
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
        match &mut self.target {
            Target::Device(device) => {
                device.submit(Batch { requests, durability: Durability::default() }).wait()?;
            }
            Target::Held(batches) => batches.push(requests),
            Target::Nowhere => {}
        }
        Ok(())
    }

    /// Writes everything, then the block with the primary superblock, and flushes both.
    pub(super) fn finish(&mut self, first_block: Pba, data: Vec<u8>) -> Result<()> {
        self.send()?;
        if let Target::Device(device) = &self.target {
            device.flush()?;
            device.write_at(first_block.get() * self.block_size, data)?;
            device.flush()?;
        }
        Ok(())
    }
}
