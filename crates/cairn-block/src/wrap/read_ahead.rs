//! [`ReadAhead`]: small reads that follow each other become large ones.
//!
//! A walk over a volume reads its blocks one by one, mostly in the order in which they lie. The
//! page cache of the system makes large reads of that; a device that is used past it, or over a
//! network, does not. This one keeps the last [`WINDOWS`] pieces that it has read. A small read
//! that begins in a piece or soon behind one goes on with it: the next piece is twice as long, as
//! long as at least a quarter of the last one was used. Any other read is as long as it was asked
//! for.
//!
//! A piece that cannot be read says nothing: the part that was asked for is read by itself then,
//! and so is all that lies in that piece. A disk takes seconds for a bad sector, each time.
//!
//! It is for a device that is only read. After the first write, everything goes through.
//!
//! Locking: the mutex is held for a copy, not while the device works.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::IoBuf;
use crate::device::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Durability, Geometry, Request,
};
use crate::error::Result;
use crate::extent::Extent;
use crate::zoned::{Zone, ZoneLimits, ZonedDevice};

/// Pieces that are kept: each thread of a walk goes through several areas of the volume in turn.
const WINDOWS: usize = 8;
/// The first piece that is longer than what was asked for, and the longest.
const SHORTEST: usize = 32 << 10;
const LONGEST: usize = 256 << 10;
/// Longer reads go through.
const SMALL: usize = 64 << 10;

/// A device whose small reads are answered from larger ones.
pub struct ReadAhead {
    inner: Arc<dyn BlockDevice>,
    pieces: Mutex<Pieces>,
}

#[derive(Default)]
struct Pieces {
    /// In the order of their last use.
    kept: Vec<Piece>,
    /// The last pieces that could not be read.
    failed: VecDeque<Range<u64>>,
    /// Something was written.
    is_off: bool,
}

struct Piece {
    start: u64,
    bytes: IoBuf,
    /// Bytes of it that were asked for, each time.
    used: usize,
}

/// What to read for a request.
struct Next {
    len: usize,
    /// Memory of a piece that is no longer kept.
    spare: Option<IoBuf>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn part(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }

    /// Length of a piece that goes on with this one.
    fn next_len(&self) -> usize {
        let len = self.bytes.len();
        let next = if self.used >= len / 4 { len * 2 } else { len / 2 };
        next.clamp(SHORTEST, LONGEST)
    }

    /// True if a read at `offset` goes on with this piece.
    fn leads_to(&self, offset: u64) -> bool {
        let reach = self.end().saturating_add(self.next_len() as u64);
        (self.start..reach).contains(&offset)
    }
}

impl Pieces {
    /// Fills `buf` from a piece that has all of it.
    fn copy(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(place) = self.kept.iter().position(|it| it.part(offset, buf.len()).is_some())
        else {
            return false;
        };
        let mut piece = self.kept.remove(place);
        if let Some(part) = piece.part(offset, buf.len()) {
            buf.copy_from_slice(part);
        }
        piece.used = piece.used.saturating_add(buf.len());
        self.kept.push(piece);
        true
    }

    /// What to read instead of `len` bytes at `offset`. Takes out a piece for it: that which it
    /// goes on with, or the one that was not used for longest.
    fn next(&mut self, offset: u64, len: usize) -> Next {
        let before = self.kept.iter().rposition(|piece| piece.leads_to(offset));
        let is_full = self.kept.len() >= WINDOWS;
        let out = before.or(is_full.then_some(0)).map(|place| self.kept.remove(place));
        let next = match (&out, before) {
            (Some(piece), Some(_)) => self.readable(offset, piece.next_len()).max(len),
            _ => len,
        };
        Next { len: next, spare: out.map(|piece| piece.bytes) }
    }

    /// How much of `len` bytes at `offset` lies before all that could not be read.
    fn readable(&self, offset: u64, len: usize) -> usize {
        let behind = self.failed.iter().filter(|range| offset < range.end);
        let left = behind.map(|range| range.start.saturating_sub(offset)).min();
        left.map_or(len, |left| usize::try_from(left).unwrap_or(len).min(len))
    }

    fn fail(&mut self, range: Range<u64>) {
        if self.failed.len() >= WINDOWS {
            self.failed.pop_front();
        }
        self.failed.push_back(range);
    }

    fn keep(&mut self, piece: Piece) {
        if self.is_off {
            return;
        }
        // Other threads have read meanwhile.
        if self.kept.len() >= WINDOWS {
            self.kept.remove(0);
        }
        self.kept.push(piece);
    }
}

impl ReadAhead {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, pieces: Mutex::new(Rank::Leaf, Pieces::default()) }
    }

    /// What a small read answers; `None` if the request is to go through.
    fn read(&self, offset: u64, buf: &mut IoBuf) -> Option<Result<()>> {
        let len = buf.len();
        let Geometry { size, logical_block, .. } = self.inner.geometry();
        let left = size.checked_sub(offset).filter(|left| *left >= len as u64)?;
        let mut next = {
            let mut pieces = self.pieces.lock();
            if pieces.is_off {
                return None;
            }
            if pieces.copy(offset, buf) {
                return Some(Ok(()));
            }
            pieces.next(offset, len)
        };
        if let Ok(left) = usize::try_from(left)
            && left < next.len
        {
            let unit = usize::try_from(logical_block.max(1)).unwrap_or(1);
            next.len = (left - left % unit).max(len);
        }
        let spare = next.spare.filter(|spare| spare.capacity() >= next.len);
        let mut bytes = spare.map_or_else(|| IoBuf::try_zeroed(next.len), Ok).ok()?;
        bytes.set_len(next.len);
        let bytes = match self.inner.read_into(offset, bytes) {
            Ok(bytes) => bytes,
            Err(error) if next.len == len => return Some(Err(error)),
            Err(_) => {
                let end = offset.saturating_add(next.len as u64);
                self.pieces.lock().fail(offset..end);
                return None;
            }
        };
        let piece = Piece { start: offset, bytes, used: len };
        buf.copy_from_slice(piece.part(offset, len)?);
        self.pieces.lock().keep(piece);
        Some(Ok(()))
    }

    fn turn_off(&self) {
        *self.pieces.lock() = Pieces { is_off: true, ..Pieces::default() };
    }
}

impl BlockDevice for ReadAhead {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, mut batch: Batch) -> Completion {
        if let [Request::Read { offset, buf }] = batch.requests.as_mut_slice()
            && (1..=SMALL).contains(&buf.len())
            && batch.durability == Durability::default()
            && let Some(read) = self.read(*offset, buf)
        {
            if let Err(error) = read {
                return Completion::ready(Err(error));
            }
            let bufs = batch.requests.into_iter().filter_map(|request| match request {
                Request::Read { buf, .. } => Some(buf),
                _ => None,
            });
            return Completion::ready(Ok(bufs.collect()));
        }
        if batch.requests.iter().any(|request| !matches!(request, Request::Read { .. })) {
            self.turn_off();
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        self.inner.extents(range)
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned().map(|_| self as &dyn ZonedDevice)
    }
}

impl ReadAhead {
    fn zoned(&self) -> &dyn ZonedDevice {
        self.inner.as_zoned().expect("a device does not lose its zones")
    }
}

impl ZonedDevice for ReadAhead {
    fn limits(&self) -> ZoneLimits {
        self.zoned().limits()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        self.zoned().report(offset, most)
    }

    fn reset(&self, start: u64) -> Result<()> {
        self.turn_off();
        self.zoned().reset(start)
    }

    fn finish(&self, start: u64) -> Result<()> {
        self.turn_off();
        self.zoned().finish(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::memory::MemoryDevice;
    use crate::wrap::{Fault, Operation, Stats};

    const BLOCK: usize = 4096;
    const BLOCKS: u64 = 2048;

    /// A device of which each block has its number, and what was read of it.
    fn counted() -> (Arc<MemoryDevice>, Arc<Stats>, ReadAhead) {
        let memory = Arc::new(MemoryDevice::new(BLOCKS * BLOCK as u64));
        let numbers = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]);
        memory.write_at(0, numbers.collect::<Vec<u8>>()).unwrap();
        let stats = Arc::new(Stats::new(memory.clone()));
        let ahead = ReadAhead::new(stats.clone());
        (memory, stats, ahead)
    }

    /// Reads blocks one by one. Returns the reads of the device and their blocks.
    fn reads(blocks: impl Iterator<Item = u64>) -> (u64, u64) {
        let (_, stats, ahead) = counted();
        for block in blocks {
            let read = ahead.read_at(block * BLOCK as u64, BLOCK).unwrap();
            assert!(read.len() == BLOCK && read.iter().all(|byte| *byte == block as u8), "{block}");
        }
        let found = stats.snapshot();
        (found.reads, found.read_bytes / BLOCK as u64)
    }

    #[test]
    fn blocks_in_order_are_read_in_large_pieces() {
        let (all, blocks) = reads(0..BLOCKS);
        assert!(all <= 40 && blocks == BLOCKS, "{all} reads of {blocks} blocks");
        // With gaps, in several areas in turn, and with one block between that is always the same.
        let (gaps, blocks) = reads((0..BLOCKS).step_by(3));
        assert!(gaps <= 40 && blocks <= BLOCKS, "{gaps} reads of {blocks} blocks");
        let areas = (0..256).flat_map(|block| [block, 600 + block, 1200 + block, 2000]);
        let (areas, blocks) = reads(areas);
        assert!(areas <= 32 && blocks <= 3 * 320, "{areas} reads of {blocks} blocks");
    }

    #[test]
    fn scattered_blocks_are_read_as_asked_for() {
        let scattered = (0..BLOCKS).step_by(101).map(|block| block * 1009 % BLOCKS);
        let asked = scattered.clone().count() as u64;
        let (all, blocks) = reads(scattered);
        assert!(all <= asked && blocks < 4 * asked, "{all} reads of {blocks} blocks for {asked}");
        // A run that is hardly used gets shorter again.
        let (sparse, blocks) = reads((0..BLOCKS).step_by(7));
        assert!(sparse < 300 && blocks <= BLOCKS, "{sparse} reads of {blocks} blocks");
    }

    #[test]
    fn a_block_ahead_that_cannot_be_read_fails_alone() {
        let memory = Arc::new(MemoryDevice::new(BLOCKS * BLOCK as u64));
        let fault = Arc::new(Fault::new(memory));
        let bad = 20 * BLOCK as u64;
        fault.fail_range(Operation::Read, bad..bad + 1);
        let stats = Arc::new(Stats::new(fault));
        let ahead = ReadAhead::new(stats.clone());
        for block in 0..64 {
            let read = ahead.read_at(block * BLOCK as u64, BLOCK);
            assert_eq!(read.is_ok(), block != 20, "{block}");
        }
        assert_eq!(stats.snapshot().errors, 2, "the piece and the block");
    }

    #[test]
    fn what_is_written_is_read_and_ends_are_kept() {
        let (_, _, ahead) = counted();
        let last = BLOCKS - 1;
        for block in last - 20..=last {
            ahead.read_at(block * BLOCK as u64, BLOCK).unwrap();
        }
        let beyond = ahead.read_at(last * BLOCK as u64, 2 * BLOCK).unwrap_err();
        assert_eq!(beyond.kind, ErrorKind::OutOfRange);
        ahead.write_at(last * BLOCK as u64, vec![3; BLOCK]).unwrap();
        assert_eq!(ahead.read_at(last * BLOCK as u64, 1).unwrap()[0], 3);
    }
}
