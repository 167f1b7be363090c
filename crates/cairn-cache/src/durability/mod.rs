//! What of a volume is on the medium: [`Flushes`] knows it of the device, [`Ledger`] of one inode.
//!
//! A write is on the medium when a flush that *began after* it has *succeeded*. [`Flushes`] stands around the device and numbers all
//! its flushes, whoever asks for them (an fsync, a commit block with its preflush, a checkpoint). A [`Mark`] is the number of the
//! last flush that had begun: what completed before the mark was taken is covered by every flush with a greater number.
//!
//! The ledger remembers marks and commits and never takes one back, so that two callers who ask at once get the same answer. Nobody
//! says "durable" for any other reason than what it says.

mod flushes;
mod ledger;

pub use flushes::{FlushOrigin, Flushes, Mark};
pub use ledger::{Ledger, Part};

#[cfg(test)]
mod tests;
