//! Reading without a copy: what is cached is lent as it is.

use bytes::Bytes;
use cairn_base::memory;

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::read::{Served, copy_inline};
use crate::mapper::FileMapper;

/// What holes are made of.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// What is evicted this often before it can be lent is copied.
const TRIES: u32 = 4;

impl FileCache {
    /// As [`FileCache::read`] of up to `len` bytes, but the bytes stay where they are cached. They are what the file held
    /// at some moment of the call: who changes them later changes a copy, so they are to be dropped soon.
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
            if let Some(piece) = self.state.lend(pos, left) {
                counters.hits.add(1);
                (done, tries) = (done + piece.len(), 0);
                pieces.push(piece);
                continue;
            }
            if self.state.wait_reading(self.state.block_of(pos)) {
                continue;
            }
            counters.misses.add(1);
            tries += 1;
            let mut own = if tries < TRIES { Vec::new() } else { memory::zeroed("an answer", left)? };
            match self.read_missing(mapper, size, pos, left, &mut own)? {
                Served::Bytes(n) => own.truncate(n),
                Served::Zeros(n) => {
                    lend_zeros(&mut pieces, n);
                    done += n;
                    continue;
                }
                Served::Inline(bytes) => {
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

fn lend_zeros(pieces: &mut Vec<Bytes>, mut n: usize) {
    while n > 0 {
        let piece = &ZEROS[..n.min(ZEROS.len())];
        pieces.push(Bytes::from_static(piece));
        n -= piece.len();
    }
}

impl FileState {
    /// Up to `most` bytes of the folio that holds `pos`, as far as it is up to date.
    fn lend(self: &std::sync::Arc<Self>, pos: u64, most: usize) -> Option<Bytes> {
        let (slab, range) = self.cached_at(pos, most)?;
        Some(slab.pin(range))
    }
}
