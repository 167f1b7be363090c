//! What is compared in this process: two values of an option, and what no page cache can exceed.

/// The baseline: 4 KiB page objects, a mapping call a block.
pub(super) const PER_BLOCK: &str = "nobuffered_iomap";
/// The improvement.
pub(super) const LARGE: &str = "buffered_iomap";
/// Copying into memory that is there already: what no page cache can exceed.
pub(super) const MEMCPY: &str = "memcpy";
