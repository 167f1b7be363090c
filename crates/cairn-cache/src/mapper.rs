//! The seam between file data and its place on the device: ask for the *largest* mapping once, then act on it.

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
    /// Nothing there: reads as zeros.
    Hole,
    /// Space is promised, no address yet: the data is in the cache only.
    Delayed,
    /// Allocated from this block on, never written: reads as zeros.
    Unwritten(Pba),
    /// Data from this block on.
    Mapped(Pba),
    /// The file's contents live in its inode; these are all of them.
    Inline(Arc<[u8]>),
}

/// The largest mapping that starts at the block asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Blocks it covers; starts where the question started and may end before or after the question's end.
    pub run: Run,
    /// Where they are.
    pub place: Place,
}

/// What a placement owes once its data is on the device: ext4 maps the blocks, F2FS lowers its in-flight count.
///
/// Runs on a worker, never on the device's completing thread. Dropping a ticket without completing it means the write
/// failed: the claimed blocks go back to the allocator, and blocks that were [`Place::Delayed`] before the placement are
/// so again, with their promise: the data is dirty again and will be placed anew, or [`FileMapper::release`]d.
pub trait WriteTicket: Send {
    /// The data is on its way to the medium (written, not necessarily flushed). `file_end` is the byte after the last
    /// valid byte of this write, for the on-disk size.
    fn complete(self: Box<Self>, file_end: u64) -> Result<(), MapError>;
}

/// A chosen address for the head of the asked run.
pub struct Placement {
    /// Blocks placed; starts at the asked start, at most as long as asked.
    pub run: Run,
    /// Address of the first one.
    pub start: Pba,
    /// Must be completed when the data has been written.
    pub ticket: Box<dyn WriteTicket>,
}

/// Why a mapping cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MapError {
    /// Nothing left to promise.
    #[error("no space left")]
    NoSpace,
    /// The format does not reach that far.
    #[error("the file would be too large")]
    TooLarge,
    /// Anything else: the filesystem's own error, kept whole.
    #[error("{0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

/// Maps one file. An argument of every cache call, so that the cache holds no reference back to the inode.
///
/// Stability: a mapping is true while its holder has the inode's data lock or the folio's write-back bit.
pub trait FileMapper: Send + Sync {
    /// What is at `run.start` (reads, SEEK_HOLE, FIEMAP, write-back in place). `run.len` is a hint of interest.
    fn lookup(&self, run: Run) -> Result<Mapping, MapError>;

    /// Promises space for every hole of the run, so that [`FileMapper::place`] cannot fail for want of it. Returns the
    /// mapping at `run.start` *as it was before* (so that the caller knows whether edge blocks must be read) with a
    /// length of at most `run.len`; the promise covers exactly the returned run. Idempotent on delayed blocks.
    fn reserve(&self, run: Run) -> Result<Mapping, MapError>;

    /// True if the cache may ask for more than it is about to write and keep the rest for later writes: then `release`
    /// gives back everything that `reserve` took, and a block that is reserved or has an address stays so until it is
    /// released, or the cache is told ([`crate::file::FileCache::truncate`] and the like) before that changes.
    fn reserves_ahead(&self) -> bool {
        false
    }

    /// Gives back promises of a run whose blocks will not be written after all (truncate, punch, failed copy). The run may
    /// hold blocks without a promise; those are left as they are.
    fn release(&self, run: Run);

    /// Chooses an address for dirty blocks at `run.start`. Blocks that have one keep it (or move, as the format likes).
    fn place(&self, run: Run) -> Result<Placement, MapError>;
}
