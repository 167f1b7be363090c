//! Write-back: dirty blocks go to the device because of fsync, their age, or the number of dirty
//! bytes.
//!
//! A round of a file collects the longest dirty runs, asks the mapper to place each, sends one
//! batch for each placed extent, and completes the extent's ticket when the data is written. A
//! collected block is no longer dirty but under write-back, and the device gets its slab as it was
//! then. A change in the meantime makes the block dirty again for the next round. No lock is held
//! while the mapper or the device works.

mod collect;
mod daemon;
mod dirty_files;
mod errors;
mod flushable;
mod no_room;
mod submit;
mod throttle;

pub(crate) use errors::ErrorSequence;
pub use flushable::{Expired, Flushable, Flushed, WritebackMode};

pub(crate) use dirty_files::{DirtyFile, DirtyFiles};
pub(crate) use no_room::NoRoom;
