//! The jbd2 journal: it knows buffers and a device, not ext4.
//!
//! **A transaction's life.** *Running*: handles join it and change buffers. *Locked*: no handle may join; the committer waits
//! for the open ones. *Pinned*: the images of all its buffers are held; the next transaction opens at once. *Logged*:
//! revokes, descriptors and images are in the log. *Committed*: the commit block is durable (preflush + FUA); waiters and
//! hooks run. *Checkpointed*: its images are at home and flushed; the tail of the log moves past it.
//!
//! **Invariants.** A block goes home only after its commit is durable. The tail moves only after the home writes are
//! flushed, by a superblock written with FUA. A block freed in a transaction is never written home again once that
//! transaction has committed. The first write error stops everything, and the tail never moves after it.
//!
//! **Locking.** One lock over the lists (rank JOURNAL), never held across device I/O. Whoever waits for a commit leads it if nobody
//! else does. A handle is the GATE of the lock order.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod admission;
mod area;
mod checkpoint;
mod commit;
mod error;
pub mod fast_commit;
pub mod format;
mod handle;
mod home;
mod journal;
mod lead;
mod log_space;
pub mod recovery;
mod report;
mod stats;
mod transaction;

pub use area::JournalArea;
pub use checkpoint::daemon::DEFAULT_ASYNC_CHECKPOINT;
pub use checkpoint::list::CheckpointClean;
pub use error::{Error, Result};
pub use fast_commit::{FastCommit, fast_commits};
pub use handle::Handle;
pub use journal::{Journal, JournalOptions};
pub use recovery::{
    Recovered, note_damage, read_superblock, recover, recover_with, replay_in_memory, salvage_in_memory,
};
pub use stats::JournalStats;

/// The least blocks of a log that Linux takes (`JBD2_MIN_JOURNAL_BLOCKS`). The largest operations of ext4 need some hundred in one
/// transaction, and a transaction may have a quarter of the log.
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;
