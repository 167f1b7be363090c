//! File data in memory: one [`FileCache`] for each inode, over the volume's [`PageCache`].
//!
//! A file is cached in folios, naturally aligned pieces of 4 KiB to 2 MiB. The mapper is asked once
//! for the largest run, and then the whole run is copied, read or written.
//!
//! # Locks of the caller
//!
//! `inode.data` is the lock of rank `InodeData` (Linux: `i_rwsem`). The caller holds it *shared*
//! for [`FileCache::read`], [`FileCache::write_back`], [`FileCache::direct_read`] and the queries.
//! It holds it *exclusively* for everything that changes contents or size (`write`, `truncate`,
//! `discard`, `zero`, `direct_write`). It holds no lock above inode.data: the cache calls
//! `reserve`, `place` and tickets, which start journal handles, and it holds no lock of its own
//! while it does so, but a file's reservation.
//!
//! # Two modes
//!
//! [`BufferedMode::PerBlock`] is the same cache with the smallest units: a folio for each page, a
//! mapping for each block.
//!
//! # Memory
//!
//! A write makes memory dirty, and only write-back can free it. So a writer calls
//! [`PageCache::balance`] *before it takes any lock*, and [`FileCache::write`] takes a bounded
//! piece at a time: it returns a short count and is called again.
//!
//! # Layers
//!
//! Each line uses the lines above it: `error`, `options`, `counters`, `slab`; `folio`; `page_cache`
//! with its queues (`readahead_queue`, `reservation`, `writeback`'s dirty files); `index` (the
//! state of one file); `file_cache`, `mapping`, `reading`; the operations `read`, `reserve`,
//! `write`, `truncate`, `direct`, `shared`, `readahead_daemon`.

mod bits;
mod copy;
mod counters;
mod direct;
mod dontcache;
mod error;
mod file_cache;
mod folio;
mod index;
mod mapping;
mod options;
mod order;
mod page_cache;
mod read;
mod readahead;
mod readahead_daemon;
mod readahead_queue;
mod reading;
mod reservation;
mod reserve;
mod shared;
mod slab;
mod source;
mod truncate;
mod write;

pub use error::CacheError;
pub use file_cache::FileCache;
pub(crate) use options::MIN_FOLIO;
pub use options::{BufferedMode, MAX_FOLIO, PageCacheOptions};
pub use page_cache::PageCache;
pub use source::WriteSource;

pub(crate) use folio::{Folio, FolioIndex};
pub(crate) use index::FileState;

#[cfg(test)]
mod tests;
