//! Reading without a copy: the result shares the memory of the cached folios.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::memory;

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::read::{ReadOutcome, copy_inline};
use crate::mapper::FileMapper;

/// The bytes of holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Attempts to read a block before its bytes are copied, because it is evicted each time.
const TRIES: u32 = 4;

impl FileCache {
    /// As [`FileCache::read`] of up to `len` bytes, but the result shares the memory of the cache.
    /// The bytes are those of the file at some moment of the call. A later write copies the folio
    /// as long as the result exists, so drop it soon.
    ///
    /// # Errors
    /// As [`FileCache::read`].
    pub fn read_shared(
        &self,
        mapper: &dyn FileMapper,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Result<Vec<Bytes>, CacheError> {
        let len = usize::try_from(size.saturating_sub(offset)).map_or(len, |left| left.min(len));
        let counters = self.state.cache.counters();
        let (mut pieces, mut done, mut tries) = (Vec::new(), 0, 0);
        while done < len {
            let (pos, left) = (offset + done as u64, len - done);
            if let Some(piece) = self.state.pin_cached(pos, left) {
                counters.hits.add(1);
                counters.shared_bytes.add(piece.len() as u64);
                (done, tries) = (done + piece.len(), 0);
                pieces.push(piece);
                continue;
            }
            if self.state.wait_reading(self.state.block_of(pos)) {
                continue;
            }
            counters.misses.add(1);
            tries += 1;
            let mut own =
                if tries < TRIES { Vec::new() } else { memory::zeroed("an answer", left)? };
            match self.read_missing(mapper, size, pos, left, &mut own)? {
                ReadOutcome::Bytes(n) => own.truncate(n),
                ReadOutcome::Zeros(n) => {
                    push_zeros(&mut pieces, n);
                    done += n;
                    continue;
                }
                ReadOutcome::Inline(bytes) => {
                    own = memory::zeroed("an answer", left)?;
                    copy_inline(&bytes, pos, &mut own);
                }
            }
            done += own.len();
            if !own.is_empty() {
                pieces.push(own.into());
            }
        }
        counters.read_bytes.add(done as u64);
        Ok(pieces)
    }
}

fn push_zeros(pieces: &mut Vec<Bytes>, mut n: usize) {
    while n > 0 {
        let piece = &ZEROS[..n.min(ZEROS.len())];
        pieces.push(Bytes::from_static(piece));
        n -= piece.len();
    }
}

impl FileState {
    /// Pins up to `most` bytes of the folio that holds `pos`, up to the first block that is not up
    /// to date.
    fn pin_cached(self: &Arc<Self>, pos: u64, most: usize) -> Option<Bytes> {
        let (slab, range) = self.cached_at(pos, most)?;
        Some(slab.pin(range))
    }
}
