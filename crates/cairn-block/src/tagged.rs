//! [`TaggedMemory`]: a device in memory that keeps blocks of test data as tags of 16 bytes.
//!
//! A *tagged block* is filled from its [`Tag`] (file, index, version) and carries a checksum of it:
//! [`Tag::fill`]. A block is kept as a tag only if all its 4096 bytes are what its tag fills; every
//! other block is kept whole. So a read returns what was written, and a tag that changed in memory
//! is found by its checksum. A volume of 32 GiB full of tagged blocks takes some 130 MiB.
//!
//! Locking: a leaf lock for each 2 MiB, and one for spare memory. There is no volatile cache.

use cairn_base::checksum::crc32c;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::device::{Batch, BlockDevice, Completion, Geometry};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::in_place::{self, InPlace};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// Blocks under one lock.
const CHUNK: u64 = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"CairnTag");
/// Words before the filling.
const HEAD: usize = 3;
/// Words that are filled and compared together.
const LANES: usize = 8;

/// What a block of test data says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Whose data it is: an inode number, or what the test counts files by.
    pub file: u32,
    /// Which block of the file.
    pub index: u32,
    /// How often it was written.
    pub version: u32,
}

impl Tag {
    fn sum(self) -> u32 {
        let words = [self.file, self.index, self.version].map(u32::to_le_bytes);
        crc32c(!0, words.as_flattened())
    }

    /// Fills a block.
    ///
    /// # Panics
    /// It has not [`BLOCK`] bytes.
    pub fn fill(self, block: &mut [u8]) {
        Kept::new(self).fill(block);
    }

    /// The tag that fills exactly this block, if one does.
    #[must_use]
    pub fn of(block: &[u8]) -> Option<Self> {
        Kept::of(block)?.tag()
    }
}

/// What fills a block behind its head, in lines, each word greater by the same than the one before
/// it. The first [`HEAD`] words of the first line are those that would come before.
struct Filling {
    line: [u64; LANES],
    step: u64,
}

impl Filling {
    fn new(head: &[u64; HEAD]) -> Self {
        let (start, step) = filling(head);
        let before = start.wrapping_sub((HEAD as u64).wrapping_mul(step));
        Self {
            line: std::array::from_fn(|lane| before.wrapping_add((lane as u64).wrapping_mul(step))),
            step,
        }
    }

    /// The next line. Additions alone: every processor has them for several words at once. This and
    /// what else is done for each line are loops, because the compiler does not always inline
    /// `array::map` and `array::from_fn`, and a call for each word takes most of the time then.
    #[inline(always)]
    fn next(&mut self) -> [u64; LANES] {
        let line = self.line;
        let step = self.step.wrapping_mul(LANES as u64);
        for word in &mut self.line {
            *word = word.wrapping_add(step);
        }
        line
    }
}

type Line = [u8; 8 * LANES];

#[inline(always)]
fn words(line: &Line) -> [u64; LANES] {
    let mut words = [0; LANES];
    for (word, bytes) in words.iter_mut().zip(line.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// First word of the filling, and what each next one is greater by.
fn filling(head: &[u64; HEAD]) -> (u64, u64) {
    let mixed = (head[1] ^ head[2].rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31, mixed.rotate_left(17) | 1)
}

/// A tag in memory: 16 bytes. None is all zeros: the checksum of zeros is not 0.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Kept {
    tag: [u32; 3],
    sum: u32,
}

impl Kept {
    const NONE: Self = Self { tag: [0; 3], sum: 0 };

    fn new(tag: Tag) -> Self {
        Self { tag: [tag.file, tag.index, tag.version], sum: tag.sum() }
    }

    fn tag(self) -> Option<Tag> {
        let [file, index, version] = self.tag;
        (self != Self::NONE).then_some(Tag { file, index, version })
    }

    fn head(self) -> [u64; HEAD] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [file, index, version] = self.tag;
        [MAGIC, pair(file, index), pair(version, self.sum)]
    }

    fn fill(self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK, "a tag fills a block");
        let head = self.head();
        let mut filling = Filling::new(&head);
        for line in block.as_chunks_mut::<{ 8 * LANES }>().0 {
            let (words, _) = line.as_chunks_mut::<8>();
            for (word, value) in words.iter_mut().zip(&filling.next()) {
                *word = value.to_le_bytes();
            }
        }
        let (words, _) = block.as_chunks_mut::<8>();
        words.iter_mut().zip(head).for_each(|(word, value)| *word = value.to_le_bytes());
    }

    /// What fills exactly this block, if a tag does.
    fn of(block: &[u8]) -> Option<Self> {
        let (first, rest) = block.as_chunks::<{ 8 * LANES }>().0.split_first()?;
        let first = words(first);
        let head: [u64; HEAD] = *first.first_chunk()?;
        if head[0] != MAGIC || block.len() != BLOCK {
            return None;
        }
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((file, index), (version, sum)) = (halves(head[1]), halves(head[2]));
        let tag = Tag { file, index, version };
        if tag.sum() != sum {
            return None;
        }
        let mut filling = Filling::new(&head);
        let mut differs = [0; LANES];
        for (differs, (word, value)) in
            differs.iter_mut().zip(first.into_iter().zip(filling.next())).skip(HEAD)
        {
            *differs = word ^ value;
        }
        for line in rest {
            let (words, values) = (words(line), filling.next());
            for ((differs, word), value) in differs.iter_mut().zip(&words).zip(&values) {
                *differs |= word ^ value;
            }
        }
        (differs == [0; LANES]).then_some(Self { tag: [file, index, version], sum })
    }
}

type Whole = Box<[u8; BLOCK]>;

/// Most memory of blocks that are no longer kept whole, for those that will be: 32 MiB.
const MOST_SPARE: usize = 8192;

#[derive(Default)]
struct Chunk {
    /// One for each block, or none at all.
    tags: Vec<Kept>,
    /// One for each block, or none at all.
    whole: Vec<Option<Whole>>,
}

impl Chunk {
    /// Keeps a block: of `bytes`, which are [`Kept`] as `kept` if a tag fills them.
    fn put(&mut self, block: u16, kept: Option<Kept>, bytes: &[u8], spare: &Spare) {
        let at = usize::from(block);
        if kept.is_none() && bytes.iter().any(|byte| *byte != 0) {
            if let Some(kept) = self.tags.get_mut(at) {
                *kept = Kept::NONE;
            }
            if self.whole.is_empty() {
                self.whole.resize_with(CHUNK as usize, || None);
            }
            let whole = self.whole[at].get_or_insert_with(|| spare.take());
            whole.copy_from_slice(bytes);
            return;
        }
        self.forget(block, spare);
        if let Some(kept) = kept {
            if self.tags.is_empty() {
                self.tags = vec![Kept::NONE; CHUNK as usize];
            }
            self.tags[at] = kept;
        }
    }

    fn forget(&mut self, block: u16, spare: &Spare) {
        if let Some(kept) = self.tags.get_mut(usize::from(block)) {
            *kept = Kept::NONE;
        }
        if let Some(whole) = self.whole.get_mut(usize::from(block)).and_then(Option::take) {
            spare.keep(std::iter::once(whole));
        }
    }

    fn get(&self, block: u16, bytes: &mut [u8]) -> Result<(), Kept> {
        let kept = self.tags.get(usize::from(block)).copied().unwrap_or_default();
        match kept.tag() {
            Some(tag) if tag.sum() != kept.sum => return Err(kept),
            Some(_) => kept.fill(bytes),
            None => match self.whole.get(usize::from(block)) {
                Some(Some(whole)) => bytes.copy_from_slice(&**whole),
                _ => bytes.fill(0),
            },
        }
        Ok(())
    }
}

/// Memory of blocks that are no longer kept: the next whole ones take it. Memory that the allocator
/// gives back to the system and takes again costs more than the copy.
struct Spare(Mutex<Vec<Whole>>);

impl Spare {
    fn take(&self) -> Whole {
        self.0.lock().pop().unwrap_or_else(|| Box::new([0; BLOCK]))
    }

    fn keep(&self, blocks: impl Iterator<Item = Whole>) {
        let mut kept = self.0.lock();
        let room = MOST_SPARE.saturating_sub(kept.len());
        kept.extend(blocks.take(room));
    }
}

/// A device in memory that keeps blocks of test data as tags, and all other blocks as bytes.
pub struct TaggedMemory {
    geometry: Geometry,
    chunks: Vec<Mutex<Chunk>>,
    spare: Spare,
}

impl TaggedMemory {
    /// `size` zero bytes in blocks of 4096.
    ///
    /// # Panics
    /// `size` is no multiple of 4096, or more than this computer can address.
    #[must_use]
    pub fn new(size: u64) -> Self {
        assert!(size.is_multiple_of(BLOCK_BYTES), "{size} bytes are not whole blocks");
        let geometry = Geometry {
            size,
            logical_block: BLOCK as u32,
            physical_block: BLOCK as u32,
            memory_alignment: 1,
            read_only: false,
            discard: true,
        };
        let chunks = size.div_ceil(CHUNK * BLOCK_BYTES);
        Self {
            geometry,
            chunks: (0..chunks)
                .map(|_| Mutex::new_ordered(Rank::Leaf, 0, Chunk::default()))
                .collect(),
            spare: Spare(Mutex::new_ordered(Rank::Leaf, 1, Vec::new())),
        }
    }

    /// Blocks kept whole, and blocks kept as tags.
    #[must_use]
    pub fn kept(&self) -> (u64, u64) {
        self.chunks.iter().fold((0, 0), |(whole, tagged), chunk| {
            let chunk = chunk.lock();
            let tags = chunk.tags.iter().filter(|kept| **kept != Kept::NONE).count();
            (whole + chunk.whole.iter().flatten().count() as u64, tagged + tags as u64)
        })
    }

    /// Chunk, and block within it.
    fn place(&self, offset: u64) -> (&Mutex<Chunk>, u16) {
        let block = offset / BLOCK_BYTES;
        let within = u16::try_from(block % CHUNK).expect("a chunk is small");
        (&self.chunks[usize::try_from(block / CHUNK).expect("the chunks are in memory")], within)
    }
}

impl InPlace for TaggedMemory {
    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut left) = (offset, buf);
        while !left.is_empty() {
            let (chunk, within) = self.place(at);
            let here = (usize::from(CHUNK as u16 - within) * BLOCK).min(left.len());
            let (bytes, rest) = left.split_at_mut(here);
            let chunk = chunk.lock();
            for (block, bytes) in (within..).zip(bytes.chunks_exact_mut(BLOCK)) {
                chunk.get(block, bytes).map_err(|kept| {
                    let detail = format!(
                        "the tag {:?} does not have the checksum {:#x}",
                        kept.tag, kept.sum
                    );
                    let at = at + u64::from(block - within) * BLOCK_BYTES;
                    Error::new(ErrorKind::Io, Operation::Read, detail).at(at, BLOCK_BYTES)
                })?;
            }
            (at, left) = (at + here as u64, rest);
        }
        Ok(())
    }

    fn put(&self, offset: u64, bufs: &[bytes::Bytes]) {
        let mut at = offset;
        let mut put = |bytes: &[u8]| {
            let kept = Kept::of(bytes);
            let (chunk, within) = self.place(at);
            chunk.lock().put(within, kept, bytes, &self.spare);
            at += BLOCK_BYTES;
        };
        if bufs.iter().all(|buf| buf.len().is_multiple_of(BLOCK)) {
            bufs.iter().flat_map(|buf| buf.chunks_exact(BLOCK)).for_each(put);
        } else {
            bufs.concat().chunks_exact(BLOCK).for_each(&mut put);
        }
    }

    fn clear(&self, offset: u64, len: u64) {
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (chunk, within) = self.place(at);
            let mut chunk = chunk.lock();
            let blocks = (CHUNK - u64::from(within)).min((end - at) / BLOCK_BYTES);
            if blocks == CHUNK {
                let Chunk { whole, .. } = std::mem::take(&mut *chunk);
                self.spare.keep(whole.into_iter().flatten());
            } else {
                (within..within + blocks as u16).for_each(|block| chunk.forget(block, &self.spare));
            }
            at += blocks * BLOCK_BYTES;
        }
    }
}

impl BlockDevice for TaggedMemory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        Completion::ready(in_place::run(self, &self.geometry, batch))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockDeviceExt, Request};

    fn block(file: u32, index: u32, version: u32) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        Tag { file, index, version }.fill(&mut block);
        block
    }

    #[test]
    fn a_tag_is_recognised_by_every_byte() {
        let tag = Tag { file: 4, index: 1_000_000, version: 7 };
        let good = block(4, 1_000_000, 7);
        assert_eq!(Tag::of(&good), Some(tag));
        for byte in 0..BLOCK {
            let mut bad = good.clone();
            bad[byte] ^= 0x10;
            assert_eq!(Tag::of(&bad), None, "byte {byte}");
        }
        assert_eq!(
            (Tag::of(&[]), Tag::of(&[0; BLOCK]), Tag::of(&good[..4088])),
            (None, None, None)
        );
        assert_ne!(block(4, 1, 7)[24..], block(4, 1, 8)[24..], "versions fill differently");
    }

    #[test]
    fn whatever_is_written_is_read_back() {
        let device = TaggedMemory::new(2000 * BLOCK_BYTES);
        let mut almost = block(1, 2, 3);
        almost[4000] ^= 1;
        let tagged = [block(0, 0, 0), block(9, 511, 2), block(9, 512, 2)];
        let bufs = [tagged.concat(), almost.clone(), vec![0; BLOCK], vec![5; BLOCK]]
            .map(bytes::Bytes::from);
        let write = Request::Write { offset: 510 * BLOCK_BYTES, bufs: bufs.to_vec() };
        device.submit(Batch { requests: vec![write], ..Batch::default() }).wait().unwrap();
        assert_eq!(device.kept(), (2, 3));
        assert_eq!(device.read_at(510 * BLOCK_BYTES, 6 * BLOCK).unwrap()[..], bufs.concat()[..]);
        // Odd pieces of the same bytes make the same blocks.
        let odd = bytes::Bytes::from(bufs.concat());
        let bufs = vec![odd.slice(..100), odd.slice(100..)];
        device
            .submit(Batch {
                requests: vec![Request::Write { offset: 0, bufs }],
                ..Batch::default()
            })
            .wait()
            .unwrap();
        assert_eq!(device.read_at(0, 6 * BLOCK).unwrap()[..], odd[..]);
        // Tags and whole blocks replace each other.
        device.write_at(0, vec![8; BLOCK]).unwrap();
        device.write_at(3 * BLOCK_BYTES, block(1, 1, 1)).unwrap();
        assert_eq!(device.kept(), (4, 6));
        assert_eq!(device.read_at(0, BLOCK).unwrap()[..], [8; BLOCK]);
        device.write_zeroes(0, 4 * BLOCK_BYTES).unwrap();
        device.discard(510 * BLOCK_BYTES, 1000 * BLOCK_BYTES).unwrap();
        assert_eq!(device.kept(), (1, 0));
        assert!(
            device.read_at(510 * BLOCK_BYTES, 6 * BLOCK).unwrap().iter().all(|byte| *byte == 0)
        );
        assert!(device.write_at(100, vec![0; BLOCK]).is_err(), "blocks are whole");
    }

    #[test]
    fn a_tag_that_changed_in_memory_is_found() {
        let device = TaggedMemory::new(16 * BLOCK_BYTES);
        device.write_at(BLOCK_BYTES, block(3, 1, 4)).unwrap();
        device.chunks[0].lock().tags[1].tag[2] ^= 1;
        let error = device.read_at(BLOCK_BYTES, BLOCK).unwrap_err();
        assert_eq!((error.kind, error.range), (ErrorKind::Io, Some((BLOCK_BYTES, BLOCK_BYTES))));
    }
}
