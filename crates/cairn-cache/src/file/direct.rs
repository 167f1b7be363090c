//! Direct I/O: data moves between the caller's memory and the device, coherent with the cache.
//!
//! A request that does not consist of whole blocks goes through the cache.

use std::ops::Range;

use bytes::Bytes;
use cairn_base::FileBlock;
use cairn_block::{Batch, BlockDeviceExt, Durability, Request};

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::mapping::Caller;
use super::read::{copy_inline, zero_beyond};
use crate::mapper::{FileMapper, Place, Run};
use crate::writeback::WritebackMode;

/// Largest single transfer, in bytes.
const MAX_TRANSFER: u64 = 8 << 20;

impl FileCache {
    fn is_aligned(&self, offset: u64, len: usize) -> bool {
        let block_size = self.state.block_size() as u64;
        offset.is_multiple_of(block_size) && (len as u64).is_multiple_of(block_size)
    }

    /// Reads from the device into `buf` without caching. Dirty data of the range is written first.
    /// Returns the number of bytes, which is less than asked only at the end of the file.
    ///
    /// # Errors
    /// The mapper or the device failed, or dirty data of the range could not be written.
    pub fn direct_read(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, CacheError> {
        let Some(left) = size.checked_sub(offset).filter(|left| *left > 0) else { return Ok(0) };
        if !self.is_aligned(offset, buf.len()) {
            return self.read(mapper, size, offset, buf);
        }
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let end = offset + len as u64;
        self.write_back(mapper, offset..end, size, WritebackMode::Sync)?;
        let mut done = 0;
        while done < len {
            done +=
                self.direct_read_run(mapper, size, offset + done as u64, &mut buf[done..len])?;
        }
        Ok(done)
    }

    fn direct_read_run(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        pos: u64,
        out: &mut [u8],
    ) -> Result<usize, CacheError> {
        let file = &self.state;
        let first = file.block_of(pos);
        let asked = file.blocks_for((out.len() as u64).min(MAX_TRANSFER));
        let mapping = self.lookup(Caller::Direct, mapper, first, asked)?;
        let blocks = mapping.run.len.min(asked);
        let n = usize::try_from(file.byte_of(blocks)).map_or(out.len(), |n| n.min(out.len()));
        match mapping.place {
            Place::Hole | Place::Unwritten(_) | Place::Delayed => out[..n].fill(0),
            Place::Inline(bytes) => return Ok(copy_inline(&bytes, pos, out)),
            Place::Mapped(pba) => {
                let len = usize::try_from(blocks).expect("bounded") << file.shift;
                let mut data = file
                    .cache
                    .device
                    .read_at(pba.get() << file.shift, len)
                    .map_err(CacheError::Read)?;
                file.cache.counters().device_read_bytes.add(len as u64);
                zero_beyond(&mut data, pos, size);
                out[..n].copy_from_slice(&data[..n]);
            }
        }
        Ok(n)
    }

    /// Writes to the device without caching. Dirty data of the range is written and dropped from
    /// the cache first. The data is mapped when this returns, and durable after the next flush.
    /// Returns the number of bytes written.
    ///
    /// # Errors
    /// Nothing was written, because the mapper or the device failed.
    pub fn direct_write(
        &self,
        mapper: &dyn FileMapper,
        old_size: u64,
        offset: u64,
        data: &Bytes,
    ) -> Result<usize, CacheError> {
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset + data.len() as u64;
        if !self.is_aligned(offset, data.len()) {
            let n = self.write(mapper, old_size, offset, data)?;
            let end = offset + n as u64;
            let range = offset..end;
            let written = self.write_back(mapper, range, old_size.max(end), WritebackMode::Sync);
            if let Err(error) = written {
                // The file does not grow, so nobody would write what is behind its end.
                let file = &self.state;
                let behind = file.blocks_for(old_size)..file.blocks_for(end);
                if !behind.is_empty() {
                    self.discard(mapper, behind);
                }
                return Err(error);
            }
            return Ok(n);
        }
        self.reset_reservation(mapper);
        let file = &self.state;
        if file.byte_of(file.blocks_for(old_size)) <= offset {
            self.zero_stale_tail(mapper, old_size)?;
        }
        self.write_back(mapper, offset..end, old_size, WritebackMode::Sync)?;
        self.state.drop_blocks(file.block_of(offset)..file.blocks_for(end), false);
        let mut done = 0;
        while done < data.len() {
            match self.direct_write_run(mapper, offset + done as u64, &data.slice(done..)) {
                Ok(n) => done += n,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes the head of `data`, as much as one reserved run holds.
    fn direct_write_run(
        &self,
        mapper: &dyn FileMapper,
        offset: u64,
        data: &Bytes,
    ) -> Result<usize, CacheError> {
        let file = &self.state;
        let first = file.block_of(offset);
        let asked = file.blocks_for((data.len() as u64).min(MAX_TRANSFER));
        let run = self.reserve(Caller::Direct, mapper, first, asked)?.run;
        let written = self.direct_place(mapper, first..first + run.len, data);
        if let Err((done, error)) = written {
            let rest = first + done..first + run.len;
            mapper.release(Run { start: FileBlock(rest.start), len: rest.end - rest.start });
            return if done > 0 { Ok(file.bytes_of(done)) } else { Err(error) };
        }
        Ok(file.bytes_of(run.len))
    }

    /// Places and writes reserved blocks. An error comes with the number of blocks that were
    /// written before.
    fn direct_place(
        &self,
        mapper: &dyn FileMapper,
        blocks: Range<u64>,
        data: &Bytes,
    ) -> Result<(), (u64, CacheError)> {
        let file = &self.state;
        let counters = file.cache.counters();
        let mut cursor = blocks.start;
        while cursor < blocks.end {
            let done = cursor - blocks.start;
            let run = Run { start: FileBlock(cursor), len: blocks.end - cursor };
            let placed = file
                .place_for(Caller::Direct, mapper, run)
                .map_err(|error| (done, error.into()))?;
            let bytes = data.slice(file.bytes_of(done)..file.bytes_of(done + placed.run.len));
            let len = bytes.len() as u64;
            let request =
                Request::Write { offset: placed.start.get() << file.shift, bufs: vec![bytes] };
            let batch = Batch { requests: vec![request], durability: Durability::default() };
            file.cache
                .device
                .submit(batch)
                .wait()
                .map_err(|error| (done, CacheError::Write(error)))?;
            counters.device_written_bytes.add(len);
            cursor += placed.run.len;
            placed.ticket.complete(file.byte_of(cursor)).map_err(|error| (done, error.into()))?;
        }
        Ok(())
    }
}

impl FileState {
    /// Bytes of `blocks` blocks, which are in memory.
    fn bytes_of(&self, blocks: u64) -> usize {
        usize::try_from(blocks).expect("blocks in memory") << self.shift
    }
}
