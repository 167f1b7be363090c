//! [`PageCacheOptions`]: what a volume's mount options say about its page cache.

use std::time::Duration;

use super::order::{MAX_SLAB, PAGE};

/// Smallest `max_folio`, in bytes.
pub(crate) const MIN_FOLIO: usize = PAGE;
/// Largest `max_folio`, in bytes.
pub const MAX_FOLIO: usize = MAX_SLAB;

/// How much one mapping and one folio of buffered I/O cover. Both modes store the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BufferedMode {
    /// One mapping for the largest run; folios as large as the options allow.
    #[default]
    Extents,
    /// One mapping for each block; folios of one page. It is the baseline for measurements.
    PerBlock,
}

/// What a volume's mount options say about its page cache.
#[derive(Clone, Debug)]
pub struct PageCacheOptions {
    /// The filesystem's block size in bytes, a power of two.
    pub block_size: u32,
    /// How much one mapping and one folio cover; see
    /// [`PageCache::set_mode`](super::PageCache::set_mode).
    pub mode: BufferedMode,
    /// Largest folio in bytes, a power of two from `MIN_FOLIO` to [`MAX_FOLIO`]; see
    /// [`PageCache::set_max_folio`](super::PageCache::set_max_folio).
    pub max_folio: usize,
    /// Most bytes that one readahead window has.
    pub max_readahead: usize,
    /// Share of the budget, in percent, above which the write-back daemon starts to write.
    pub dirty_background_percent: u8,
    /// Share of the budget, in percent, above which writers are throttled.
    pub dirty_percent: u8,
    /// Age at which dirty data is written; see
    /// [`PageCache::set_dirty_expire`](super::PageCache::set_dirty_expire).
    pub dirty_expire: Duration,
}

impl PageCacheOptions {
    /// The defaults for a block size.
    #[must_use]
    pub fn new(block_size: u32) -> Self {
        Self {
            block_size,
            mode: BufferedMode::default(),
            max_folio: MAX_FOLIO,
            max_readahead: 2 << 20,
            dirty_background_percent: 15,
            dirty_percent: 40,
            dirty_expire: Duration::from_secs(30),
        }
    }
}
