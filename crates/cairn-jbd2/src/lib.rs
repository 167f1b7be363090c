//! The jbd2 journal. It knows buffers and devices, and nothing of ext4.
//!
//! # The stages of a transaction
//!
//! | stage | in Linux | what happens | where |
//! |---|---|---|---|
//! | running | `T_RUNNING` | handles join and change buffers | `start_handle`, [`Handle`] |
//! | locked | `T_LOCKED` | the leader waits for open handles; new ones wait | `commit::leader` |
//! | freezing | `T_SWITCH` | the leader takes all buffers' contents | `commit::transaction` |
//! | writing | `T_COMMIT` | the leader writes the log | `commit::transaction` |
//! | committed | `T_FINISHED` | the commit block is durable; callbacks run | `checkpoint::list` |
//! | checkpointed | | its blocks are at their home locations and flushed | `checkpoint` |
//! | reclaimed | | the log tail has moved past it | `log_tail` |
//!
//! [`recover`] replays the log after a crash.
//!
//! # Invariants
//!
//! - A block is written to its home location only after its commit is durable.
//! - The log tail moves only after the checkpoint writes are flushed. Log blocks are free only when
//!   the superblock with the new tail is durable: by FUA, or by the flush of a commit.
//! - A block that a transaction frees is not written to its home location after the commit of that
//!   transaction.
//! - The first write error aborts the journal, and the log tail never moves after it.
//!
//! # Locking
//!
//! One lock (`Rank::Journal`) protects all that changes. It is never held while a device works. A
//! handle has `Rank::Operation` in the lock order.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod area;
mod checkpoint;
mod commit;
mod error;
pub mod fast_commit;
mod format;
mod handle;
mod home;
mod journal;
mod log_tail;
mod open;
mod recovery;
mod report;
mod start_handle;
mod state;
mod stats;
pub mod survey;
mod transaction;

pub use area::{JournalArea, correct_superblock, has_superblock, make_mountable, read_superblock};
pub use checkpoint::keep_free::KeepFree;
pub use checkpoint::list::CheckpointClean;
pub use checkpoint::parts::CheckpointParts;
pub use error::{Error, Result};
pub use fast_commit::{FastCommit, fast_commits, fast_commits_of, intact_fast_commits};
pub use format::superblock::{Correction, MIN_JOURNAL_BLOCKS, Superblock, WrongField};
pub use format::{Compat, Incompat, has_magic};
pub use handle::Handle;
pub use journal::Journal;
pub use open::JournalOptions;
pub use recovery::{
    Images, Recovered, Remains, forget_error, lost_field, mark_empty, recover, recover_with,
    remains, replay_in_memory, restore_field, salvage_in_memory, write_corrected,
};
