//! Whole blocks from and to the device, many in one batch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cairn_base::Pba;
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Bytes, Durability, IoBuf, Request};

use crate::error::Result;
use crate::format::BlockAddr;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// Longest single transfer, in blocks.
const MAX_RUN: u64 = 512;
/// Most unneeded blocks that are read to make two runs one transfer.
const GAP: u32 = 4;

/// Reads `count` blocks that follow each other. `count` is bounded by the caller.
///
/// # Errors
/// The device's.
pub(crate) fn read(device: &dyn BlockDevice, start: Pba, count: usize) -> Result<IoBuf> {
    let (offset, len) = (start.get().saturating_mul(BLOCK_BYTES), count * BLOCK_SIZE);
    Ok(if count == 1 { device.read_block(offset, len)? } else { device.read_at(offset, len)? })
}

/// Buffers for further reads: their memory is allocated, and often still in the processor's caches.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// By capacity, powers of two.
    bufs: BTreeMap<usize, Vec<IoBuf>>,
    bytes: usize,
}

impl Spare {
    /// Bytes kept.
    #[must_use]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A buffer of this length with arbitrary contents. It is for metadata or moved blocks, so it
    /// may use the memory set aside for running operations.
    fn take(&mut self, len: usize) -> IoBuf {
        let capacity = len.next_power_of_two();
        let mut buf = match self.bufs.get_mut(&capacity).and_then(Vec::pop) {
            Some(buf) => {
                self.bytes -= capacity;
                buf
            }
            None => IoBuf::zeroed(capacity),
        };
        buf.set_len(len);
        buf
    }

    /// Keeps a buffer. If that exceeds `most` bytes, the other buffers are dropped, so that sizes
    /// that are no longer used do not stay.
    fn keep(&mut self, buf: IoBuf, most: usize) {
        let capacity = buf.capacity();
        if self.bytes + capacity > most {
            *self = Self::default();
        }
        if capacity <= most {
            self.bytes += capacity;
            self.bufs.entry(capacity).or_default().push(buf);
        }
    }
}

/// Blocks that were read together: see [`read_many`].
#[derive(Debug)]
pub(crate) struct Blocks {
    /// First block and contents of each run, in order.
    runs: Vec<(BlockAddr, Arc<IoBuf>)>,
    addrs: Vec<BlockAddr>,
}

/// A part of a run.
struct Piece {
    run: Arc<IoBuf>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.run[self.range.clone()]
    }
}

/// Reads blocks (in rising order of their addresses) in one batch; neighbours, and those with but a
/// few blocks between them, in one transfer. How many there are is bounded by the caller.
///
/// # Errors
/// The device's.
pub(crate) fn read_many(device: &dyn BlockDevice, addrs: &[BlockAddr]) -> Result<Blocks> {
    read_many_into(device, addrs, &mut Spare::default())
}

/// As [`read_many`], into buffers that were used before: see [`Blocks::recycle`].
///
/// # Errors
/// As [`read_many`].
pub(crate) fn read_many_into(
    device: &dyn BlockDevice,
    addrs: &[BlockAddr],
    spare: &mut Spare,
) -> Result<Blocks> {
    debug_assert!(addrs.is_sorted());
    let mut runs: Vec<(BlockAddr, u32)> = Vec::new();
    for addr in addrs {
        match runs.last_mut() {
            Some((start, len)) if addr.get() - start.get() < (*len + GAP).min(MAX_RUN as u32) => {
                *len = addr.get() - start.get() + 1;
            }
            _ => runs.push((*addr, 1)),
        }
    }
    let request = |(start, len): &(BlockAddr, u32)| Request::Read {
        offset: start.bytes(),
        buf: spare.take(*len as usize * BLOCK_SIZE),
    };
    let batch =
        Batch { requests: runs.iter().map(request).collect(), durability: Durability::default() };
    let bufs = device.submit(batch).wait()?;
    let runs = runs.into_iter().zip(bufs).map(|((start, _), buf)| (start, Arc::new(buf))).collect();
    Ok(Blocks { runs, addrs: addrs.to_vec() })
}

impl Blocks {
    /// The contents of all blocks, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.addrs.iter().map(|addr| {
            let (bytes, from) = self.find(*addr);
            &bytes[from..from + BLOCK_SIZE]
        })
    }

    /// The contents of some of them, one after the other: neighbours in one piece.
    ///
    /// # Panics
    /// One of them was not read.
    #[must_use]
    pub(crate) fn pieces(&self, addrs: impl Iterator<Item = BlockAddr>) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut addrs = addrs.peekable();
        while let Some(first) = addrs.next() {
            let (bytes, from) = self.find(first);
            let (mut end, mut last) = (from + BLOCK_SIZE, first.get());
            while end < bytes.len() && addrs.next_if(|next| next.get() == last + 1).is_some() {
                (end, last) = (end + BLOCK_SIZE, last + 1);
            }
            pieces.push(Bytes::from_owner(Piece { run: bytes.clone(), range: from..end }));
        }
        pieces
    }

    /// Keeps buffers without further references for reuse, at most `most` bytes in all.
    pub(crate) fn recycle(self, spare: &mut Spare, most: usize) {
        self.runs
            .into_iter()
            .filter_map(|(_, run)| Arc::into_inner(run))
            .for_each(|buf| spare.keep(buf, most));
    }

    fn find(&self, addr: BlockAddr) -> (&Arc<IoBuf>, usize) {
        let index = self.runs.partition_point(|(start, _)| *start <= addr);
        let (start, bytes) = &self.runs[index.checked_sub(1).expect("a block that was read")];
        (bytes, (addr.get() - start.get()) as usize * BLOCK_SIZE)
    }
}

/// Blocks to be written together; neighbours become one request.
#[derive(Debug, Default)]
pub(crate) struct Writes(Vec<(u64, Bytes)>);

impl Writes {
    /// Nothing to write.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one block, or several that follow each other.
    pub(crate) fn push(&mut self, at: Pba, blocks: impl Into<Bytes>) {
        let blocks = blocks.into();
        debug_assert!(blocks.len().is_multiple_of(BLOCK_SIZE) && !blocks.is_empty());
        self.0.push((at.get(), blocks));
    }

    /// Number of blocks.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> u64 {
        self.0.iter().map(|(_, blocks)| (blocks.len() / BLOCK_SIZE) as u64).sum()
    }

    /// True if there is nothing to write.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The batch that writes them.
    #[must_use]
    pub(crate) fn into_batch(mut self, durability: Durability) -> Batch {
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
    pub(crate) fn write_in_parts(mut self, most: u64, device: &dyn BlockDevice) -> Result<()> {
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
    pub(crate) fn write(self, device: &dyn BlockDevice) -> Result<()> {
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
    fn scattered_blocks_are_read_together() {
        let device = MemoryDevice::new(64 * BLOCK_BYTES);
        let image: Vec<u8> = (0..64_u8).flat_map(|block| [block; BLOCK_SIZE]).collect();
        device.write_at(0, image).unwrap();
        let addrs = [3_u32, 4, 5, 9, 30, 31, 63].map(BlockAddr);
        let blocks = read_many(&device, &addrs).unwrap();
        assert_eq!(blocks.runs.len(), 3);
        assert_eq!(
            blocks.iter().map(|block| block[4095]).collect::<Vec<_>>(),
            [3, 4, 5, 9, 30, 31, 63]
        );
        let pieces = blocks.pieces([31_u32, 3, 4, 5, 9, 63].map(BlockAddr).into_iter());
        let found: Vec<_> =
            pieces.iter().map(|piece| (piece.len() / BLOCK_SIZE, piece[0])).collect();
        assert_eq!(found, [(1, 31), (3, 3), (1, 9), (1, 63)]);
    }

    #[test]
    fn unused_buffers_are_read_into_again() {
        let device = MemoryDevice::new(64 * BLOCK_BYTES);
        device.write_at(0, vec![7; 64 * BLOCK_SIZE]).unwrap();
        let mut spare = Spare::default();
        let read = |addrs: &[u32], spare: &mut Spare| {
            let addrs: Vec<BlockAddr> = addrs.iter().copied().map(BlockAddr).collect();
            let blocks = read_many_into(&device, &addrs, spare).unwrap();
            assert!(blocks.iter().all(|block| *block == [7; BLOCK_SIZE]));
            blocks
        };
        let all = 16 * BLOCK_SIZE;
        // A run of three blocks has room for four.
        let first = read(&[3, 4, 5, 30], &mut spare);
        let places: Vec<_> = first.iter().map(<[u8]>::as_ptr).collect();
        first.recycle(&mut spare, all);
        assert_eq!(spare.bytes(), 5 * BLOCK_SIZE);
        let second = read(&[8, 40, 41, 42, 43], &mut spare);
        assert_eq!(spare.bytes(), 0);
        assert_eq!(
            [second.iter().next(), second.iter().nth(1)].map(|block| block.unwrap().as_ptr()),
            [places[3], places[0]]
        );
        // Buffers with further references are not kept, nor more than `most` bytes.
        let piece = second.pieces([BlockAddr(40)].into_iter());
        second.recycle(&mut spare, all);
        assert_eq!((spare.bytes(), &piece[0][..]), (BLOCK_SIZE, &[7; BLOCK_SIZE][..]));
        read(&(0..16).collect::<Vec<u32>>(), &mut spare).recycle(&mut spare, all);
        assert_eq!(spare.bytes(), all);
        read(&(0..17).collect::<Vec<u32>>(), &mut spare).recycle(&mut spare, all);
        assert_eq!(spare.bytes(), 0);
    }

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
