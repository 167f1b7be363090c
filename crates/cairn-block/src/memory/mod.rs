//! [`MemoryDevice`]: a sparse device in memory.
//!
//! Contents are chunks shared copy-on-write between forks: a crash state costs the chunks it
//! changes. Locking: chunks are spread over shards by number, each shard under its own leaf lock; a
//! request that spans chunks is not atomic, as on a real device. There is no volatile cache:
//! everything completed is durable.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Rank, RwLock};

use crate::device::{Batch, BlockDevice, Completion, Geometry};
use crate::error::Result;
use crate::in_place::{self, InPlace};

const CHUNK: usize = 16 * 1024;
const SHARDS: u64 = 64;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Memory without the counters of an `Arc` in front. An allocator gives equal sizes the same offset
/// within a page, so with the counters every chunk would be 16 bytes off. Copying a page to there
/// is four times slower, because each load seems to depend on the store before it.
#[derive(Clone)]
struct Chunk(Box<[u8; CHUNK]>);

type Chunks = HashMap<u64, Arc<Chunk>>;

/// A device whose absent chunks read as zeros.
pub struct MemoryDevice {
    geometry: Geometry,
    shards: Vec<RwLock<Chunks>>,
}

impl MemoryDevice {
    /// `size` zero bytes, addressable byte by byte.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let geometry = Geometry {
            size,
            logical_block: 1,
            physical_block: 4096,
            memory_alignment: 1,
            read_only: false,
            discard: true,
        };
        Self::with_geometry(geometry)
    }

    /// Zero bytes with the given size and units.
    #[must_use]
    pub(crate) fn with_geometry(geometry: Geometry) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(Rank::Leaf, Chunks::new())).collect();
        Self { geometry, shards }
    }

    /// A device that holds `image`. Zeros take no memory.
    #[must_use]
    pub fn from_image(image: &[u8]) -> Self {
        let device = Self::new(image.len() as u64);
        device.load(0, image);
        device
    }

    /// Writes `data`. Zeros take no memory where there is none yet.
    ///
    /// # Panics
    /// The device is smaller.
    pub fn load(&self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.geometry.size, "the data fits the device");
        for piece in pieces(offset, data.len() as u64) {
            let bytes = &data[piece.at_in_request()..][..piece.within.len()];
            match *bytes == ZEROS[..bytes.len()] {
                true => self.clear(offset + piece.before, bytes.len() as u64),
                false => self.put_one(offset + piece.before, bytes),
            }
        }
    }

    /// Calls `visit` with the offset and the bytes of each piece with other bytes than zeros, in no
    /// order, and ends with the first error.
    ///
    /// # Errors
    /// The error of `visit`.
    pub fn for_each_piece<E>(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for shard in &self.shards {
            for (number, chunk) in &*shard.read() {
                let offset = number * CHUNK as u64;
                let len = (self.geometry.size - offset).min(CHUNK as u64);
                let bytes = &chunk.0[..len as usize];
                if *bytes != ZEROS[..bytes.len()] {
                    visit(offset, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// An independent device with the same contents; chunks are copied when either side changes
    /// them.
    #[must_use]
    pub fn fork(&self) -> Self {
        let copy = |shard: &RwLock<Chunks>| RwLock::new(Rank::Leaf, shard.read().clone());
        Self { geometry: self.geometry, shards: self.shards.iter().map(copy).collect() }
    }

    /// Bytes of memory that hold contents (shared chunks count fully).
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.shards.iter().map(|shard| (shard.read().len() * CHUNK) as u64).sum()
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[(chunk % SHARDS) as usize]
    }

    fn put_one(&self, offset: u64, data: &[u8]) {
        for piece in pieces(offset, data.len() as u64) {
            let source = &data[piece.at_in_request()..][..piece.within.len()];
            let mut shard = self.shard(piece.chunk).write();
            let chunk =
                shard.entry(piece.chunk).or_insert_with(|| Arc::new(Chunk(Box::new([0; CHUNK]))));
            Arc::make_mut(chunk).0[piece.within].copy_from_slice(source);
        }
    }
}

impl InPlace for MemoryDevice {
    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        for piece in pieces(offset, buf.len() as u64) {
            let target = &mut buf[piece.at_in_request()..][..piece.within.len()];
            match self.shard(piece.chunk).read().get(&piece.chunk) {
                Some(chunk) => target.copy_from_slice(&chunk.0[piece.within.clone()]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn put(&self, mut offset: u64, bufs: &[Bytes]) {
        for buf in bufs {
            self.put_one(offset, buf);
            offset += buf.len() as u64;
        }
    }

    fn clear(&self, offset: u64, len: u64) {
        for piece in pieces(offset, len) {
            let mut shard = self.shard(piece.chunk).write();
            if piece.within.len() == CHUNK {
                shard.remove(&piece.chunk);
            } else if let Some(chunk) = shard.get_mut(&piece.chunk) {
                Arc::make_mut(chunk).0[piece.within].fill(0);
            }
        }
    }
}

impl BlockDevice for MemoryDevice {
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

/// The part of a request that lies in one chunk.
struct Piece {
    chunk: u64,
    within: Range<usize>,
    /// Bytes of the request before this piece.
    before: u64,
}

impl Piece {
    /// For requests whose bytes are in memory, and so fit `usize`.
    fn at_in_request(&self) -> usize {
        self.before as usize
    }
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut before = 0;
    std::iter::from_fn(move || {
        if before == len {
            return None;
        }
        let position = offset + before;
        let start = (position % CHUNK as u64) as usize;
        let piece_len = (len - before).min((CHUNK - start) as u64) as usize;
        let piece =
            Piece { chunk: position / CHUNK as u64, within: start..start + piece_len, before };
        before += piece_len as u64;
        Some(piece)
    })
}

#[cfg(test)]
mod tests;
