//! Which data of a volume is on the medium: [`Flushes`] records it for the device, [`Ledger`] for
//! one inode.
//!
//! A write is on the medium when a flush that *began after* it has *succeeded*. [`Flushes`] wraps
//! the device and numbers all its flushes: those of an fsync, of a commit block with its preflush,
//! of a checkpoint. A [`Mark`] is the number of the last flush that had begun. Every flush with a
//! greater number covers the writes that completed before the mark was taken.
//!
//! The ledger keeps marks and commits and never reverts one, so that concurrent callers get the
//! same answer. It is the only source for the statement that data is durable.

mod flushes;
mod gather;
mod ledger;

pub use flushes::{FlushOrigin, Flushes, Mark};
pub use ledger::{Ledger, Part};

#[cfg(test)]
mod tests;
