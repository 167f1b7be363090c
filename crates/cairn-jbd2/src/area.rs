//! Where the journal's blocks are: a file's extents, or a whole device.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{FileBlock, Pba};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, IoBuf, Request};

use crate::error::{Error, Result};

/// The journal's place on a device.
#[derive(Clone)]
pub struct JournalArea {
    /// Device that holds it.
    pub device: Arc<dyn BlockDevice>,
    /// Bytes a block.
    pub block_size: u32,
    /// Consecutive runs, in file order: first block in the file, address, length.
    pub extents: Vec<(FileBlock, Pba, u64)>,
}

impl JournalArea {
    /// Blocks of the area.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.iter().map(|(_, _, len)| len).sum()
    }

    /// Device offset of a journal block, and how many blocks follow it there without a gap (itself included).
    fn place(&self, block: u32) -> Result<(u64, u64)> {
        let wanted = u64::from(block);
        let after = self.extents.partition_point(|(start, _, _)| start.get() <= wanted);
        let found = after.checked_sub(1).and_then(|index| self.extents.get(index));
        match found {
            Some((start, pba, len)) if wanted < start.get() + len => {
                let into = wanted - start.get();
                Ok(((pba.get() + into) * u64::from(self.block_size), len - into))
            }
            _ => Err(Error::Corrupt { block, what: "mapping", value: wanted, expected: "a block of the journal file" }),
        }
    }

    /// Reads one block.
    ///
    /// # Errors
    /// The block is outside of the area, or the device failed.
    pub fn read(&self, block: u32) -> Result<IoBuf> {
        let (offset, _) = self.place(block)?;
        Ok(self.device.read_at(offset, self.block_size as usize)?)
    }

    /// Reads up to `count` blocks that lie together on the device; gives at least one.
    ///
    /// # Errors
    /// As [`JournalArea::read`].
    pub fn read_run(&self, block: u32, count: u32) -> Result<IoBuf> {
        let (offset, together) = self.place(block)?;
        let count = together.min(u64::from(count)).max(1);
        Ok(self.device.read_at(offset, usize::try_from(count).unwrap_or(1) * self.block_size as usize)?)
    }

    /// Requests that write consecutive journal blocks.
    ///
    /// # Errors
    /// A block is outside of the area.
    pub fn write_requests(&self, start: u32, blocks: Vec<Bytes>) -> Result<Vec<Request>> {
        let mut requests = Vec::new();
        let mut at = start;
        let mut blocks = blocks.into_iter().peekable();
        while blocks.peek().is_some() {
            let (offset, together) = self.place(at)?;
            let bufs: Vec<Bytes> = blocks.by_ref().take(usize::try_from(together).unwrap_or(usize::MAX)).collect();
            at += u32::try_from(bufs.len()).unwrap_or(u32::MAX);
            requests.push(Request::Write { offset, bufs });
        }
        Ok(requests)
    }

    /// Writes consecutive journal blocks between the given barriers.
    ///
    /// # Errors
    /// A block is outside of the area, or the device failed.
    pub fn write(&self, start: u32, blocks: Vec<Bytes>, durability: Durability) -> Result<()> {
        let requests = self.write_requests(start, blocks)?;
        self.device.submit(Batch { requests, durability }).wait()?;
        Ok(())
    }
}
