//! The subjects in this process: two values of an option, and the upper limit of a page cache.

/// The baseline: folios of 4 KiB, and a mapping call for each block.
pub(in crate::experiments) const PER_BLOCK: &str = "nobuffered_iomap";
/// The option under test.
pub(in crate::experiments) const LARGE: &str = "buffered_iomap";
/// Copying into memory that was touched before. No page cache is faster.
pub(super) const MEMCPY: &str = "memcpy";
