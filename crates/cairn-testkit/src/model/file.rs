//! File data of the oracle: a map from block to bytes. Blocks outside the map read as zeros.
//!
//! Invariant: bytes of a block beyond the size are zero, so that growing the file shows zeros.
//! Blocks beyond the size exist only where `fallocate` put them.

use std::collections::BTreeMap;

use cairn_vfs::{Error, Result, Seek};

/// Bytes a block.
pub(super) const BLOCK: u64 = 4096;
/// Largest size: 2^32 - 1 blocks, as ext4 with 4 KiB blocks.
pub(super) const MAX_SIZE: u64 = ((1 << 32) - 1) * BLOCK;

/// Bytes of a block; `None` is allocated by `fallocate` and never written.
type Block = Option<Box<[u8]>>;

/// A sparse file.
#[derive(Default)]
pub(super) struct SparseFile {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

impl SparseFile {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Blocks allocated.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Blocks of a byte range that are not allocated yet.
    pub(super) fn missing(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / BLOCK, (offset + len - 1) / BLOCK);
        last - first + 1 - self.blocks.range(first..=last).count() as u64
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(buf.len() as u64);
        let len = usize::try_from(len).expect("no longer than the buffer");
        for (block, within, range) in pieces(offset, len) {
            let target = &mut buf[range];
            match self.blocks.get(&block) {
                Some(Some(bytes)) => target.copy_from_slice(&bytes[within..within + target.len()]),
                Some(None) | None => target.fill(0),
            }
        }
        len
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (block, within, range) in pieces(offset, data.len()) {
            let source = &data[range];
            self.bytes_mut(block)[within..within + source.len()].copy_from_slice(source);
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    fn bytes_mut(&mut self, block: u64) -> &mut [u8] {
        self.blocks.entry(block).or_default().get_or_insert_with(|| vec![0; BLOCK as usize].into())
    }

    /// Zeroes the allocated blocks of a range; allocates nothing.
    fn zero(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        for (block, content) in self.blocks.range_mut(offset / BLOCK..end.div_ceil(BLOCK)) {
            let Some(bytes) = content else { continue };
            let from = offset.saturating_sub(block * BLOCK) as usize;
            let to = (end - block * BLOCK).min(BLOCK) as usize;
            bytes[from..to].fill(0);
        }
    }

    /// Truncates or extends; truncation also frees blocks preallocated beyond the size.
    pub(super) fn set_size(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if size < self.size && !size.is_multiple_of(BLOCK) {
            self.zero(size, BLOCK - size % BLOCK);
        }
        self.size = size;
    }

    /// `fallocate`: allocates the missing blocks.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            self.blocks.entry(block).or_default();
        }
    }

    /// Raises the size.
    pub(super) fn grow_to(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Frees whole blocks of the range and zeros the rest of it.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        self.zero(offset, len);
        let (first, last) = (offset.div_ceil(BLOCK), (offset + len) / BLOCK);
        self.blocks.retain(|block, _| !(first..last).contains(block));
    }

    /// Makes the range read as zeros, allocated.
    pub(super) fn zero_range(&mut self, offset: u64, len: u64) {
        self.zero(offset, len);
        let whole = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
        for (_, content) in self.blocks.iter_mut().filter(|(block, _)| whole.contains(block)) {
            *content = None;
        }
        self.allocate(offset, len);
    }

    /// Removes a range of whole blocks.
    pub(super) fn collapse(&mut self, offset: u64, len: u64) -> Result<()> {
        whole_blocks(offset, len)?;
        if offset + len >= self.size {
            return Err(Error::Invalid("the range to collapse reaches the end of the file"));
        }
        let (first, count) = (offset / BLOCK, len / BLOCK);
        let mut tail = self.blocks.split_off(&first);
        let kept = tail.split_off(&(first + count));
        self.blocks.extend(kept.into_iter().map(|(block, content)| (block - count, content)));
        self.size -= len;
        Ok(())
    }

    /// Inserts a hole of whole blocks.
    pub(super) fn insert(&mut self, offset: u64, len: u64) -> Result<()> {
        whole_blocks(offset, len)?;
        if offset >= self.size {
            return Err(Error::Invalid(
                "the place to insert at is at or beyond the end of the file",
            ));
        }
        if self.size.checked_add(len).is_none_or(|size| size > MAX_SIZE) {
            return Err(Error::TooLarge);
        }
        let tail = self.blocks.split_off(&(offset / BLOCK));
        self.blocks.extend(tail.into_iter().map(|(block, content)| (block + len / BLOCK, content)));
        self.size += len;
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE`; preallocated blocks without data are a hole.
    pub(super) fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Error::NoData);
        }
        let mut data = self
            .blocks
            .range(offset / BLOCK..)
            .filter(|(_, content)| content.is_some())
            .map(|(block, _)| *block);
        match what {
            Seek::Data => match data.next() {
                Some(block) if block * BLOCK < self.size => Ok(offset.max(block * BLOCK)),
                _ => Err(Error::NoData),
            },
            Seek::Hole => {
                let mut hole = offset / BLOCK;
                while data.next() == Some(hole) {
                    hole += 1;
                }
                Ok(offset.max(hole * BLOCK).min(self.size))
            }
        }
    }

    /// Runs of allocated blocks that overlap a range: first block, count, written.
    pub(super) fn runs(&self, offset: u64, len: u64) -> Vec<(u64, u64, bool)> {
        let end = offset.saturating_add(len).div_ceil(BLOCK);
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        for (block, content) in self.blocks.range(offset / BLOCK..end.max(offset / BLOCK)) {
            match runs.last_mut() {
                Some((first, count, written))
                    if *first + *count == *block && *written == content.is_some() =>
                {
                    *count += 1
                }
                _ => runs.push((*block, 1, content.is_some())),
            }
        }
        runs
    }
}

fn whole_blocks(offset: u64, len: u64) -> Result<()> {
    if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) {
        Ok(())
    } else {
        Err(Error::Invalid("the range is not made of whole blocks"))
    }
}

/// Cuts a byte range at block borders: block, offset in it, range in the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let count = (BLOCK as usize - within).min(len - done);
        done += count;
        Some((at / BLOCK, within, done - count..done))
    })
}
