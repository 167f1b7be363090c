//! The interface between file data and its place on the device, as Linux's iomap: a caller asks for
//! the *largest* mapping once and then acts on it.

use std::sync::Arc;

use cairn_base::{FileBlock, Pba};

/// Consecutive logical blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub start: FileBlock,
    /// Number of blocks, at least 1.
    pub len: u64,
}

/// Where a run of blocks is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// No block is allocated; reads give zeros.
    Hole,
    /// Space is reserved and no address is chosen: the data is in the cache only.
    Delayed,
    /// Allocated from this block on and never written; reads give zeros.
    Unwritten(Pba),
    /// Data from this block on.
    Mapped(Pba),
    /// The inode holds the file's data; these are all bytes of it.
    Inline(Arc<[u8]>),
}

/// The largest mapping that starts at the block asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The blocks it covers. It starts where the asked run starts and may end before or after that
    /// run's end.
    pub run: Run,
    /// Where the blocks are.
    pub place: Place,
}

/// The work that a placement requires once its data is written: ext4 maps the blocks, F2FS lowers
/// its in-flight count.
///
/// It runs on the thread that waits for the write, never on the device's completing thread.
/// Dropping a ticket without completing it means that the write failed: the allocated blocks are
/// freed, and blocks that were [`Place::Delayed`] before the placement are so again, with their
/// reservation. Their data is dirty again and will be placed anew, or [`FileMapper::release`]d.
#[must_use = "dropping a ticket means that the write failed"]
pub trait WriteTicket: Send {
    /// Completes a write. The device has taken the data; no flush is required. `file_end` is the
    /// byte after the last valid byte of this write, for the on-disk size.
    ///
    /// # Errors
    /// The format could not record the new mapping.
    fn complete(self: Box<Self>, file_end: u64) -> Result<(), MapError>;
}

/// An address for the head of the asked run.
#[must_use = "dropping a placement means that its write failed"]
pub struct Placement {
    /// The placed blocks. They start where the asked run starts and are at most as many.
    pub run: Run,
    /// Address of the first one.
    pub start: Pba,
    /// The caller completes it when the data has been written.
    pub ticket: Box<dyn WriteTicket>,
}

/// Why a mapper fails.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MapError {
    /// No space is left to reserve.
    #[error("no space left")]
    NoSpace,
    /// The format has no mapping for such a large file.
    #[error("the file would be too large")]
    TooLarge,
    /// The filesystem's own error.
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

/// Maps the blocks of one file. It is an argument of every call of the cache, so that the cache
/// holds no reference to the inode.
///
/// Stability: a mapping stays valid while the caller holds the inode's data lock, or the folio is
/// under write-back.
pub trait FileMapper: Send + Sync {
    /// The mapping at `run.start` (reads, SEEK_HOLE, FIEMAP, write-back in place). `run.len` is a
    /// hint: the number of blocks that the caller can use.
    ///
    /// # Errors
    /// The mapping cannot be read.
    fn lookup(&self, run: Run) -> Result<Mapping, MapError>;

    /// Reserves space for every hole at the head of the run, so that [`FileMapper::place`] finds
    /// space. Returns the mapping at `run.start` *as it was before*, with at most `run.len` blocks:
    /// the caller learns from it whether it must read the blocks at the edges. The reservation
    /// covers exactly the returned run. Delayed blocks stay reserved once.
    ///
    /// # Errors
    /// [`MapError::NoSpace`] if too little space is free; otherwise the mapping cannot be read or
    /// would be too large.
    fn reserve(&self, run: Run) -> Result<Mapping, MapError>;

    /// True if the cache may reserve more than it is about to write and keep the rest for later
    /// writes. Then `release` undoes everything that `reserve` did. A block that is reserved or has
    /// an address stays so until it is released, or until a call such as
    /// [`crate::file::FileCache::truncate`] has told the cache of the change.
    fn reserves_ahead(&self) -> bool {
        false
    }

    /// Releases the reservations of a run whose blocks will not be written (truncate, punch, failed
    /// copy). Blocks of the run without a reservation stay as they are.
    fn release(&self, run: Run);

    /// Chooses an address for dirty blocks at `run.start`. A block that has one keeps it or moves,
    /// as the format decides.
    ///
    /// # Errors
    /// No address was found, or the mapping cannot be read.
    fn place(&self, run: Run) -> Result<Placement, MapError>;
}
