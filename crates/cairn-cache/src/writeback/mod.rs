//! Write-back: dirty blocks to the device, by fsync, by age, or because there are too many.
//!
//! A round of a file collects the longest dirty runs, asks the mapper to place each, sends one batch for each placed
//! extent, and completes its ticket when the data is written. A collected block is no longer dirty but under
//! write-back, and the device gets its slab as it was then: who changes it meanwhile makes it dirty again for the next
//! round. No lock is held while the mapper or the device works.

mod collect;
mod daemon;
mod errors;
mod submit;
mod throttle;

pub use daemon::{Expired, Flushable, Flushed};
pub use errors::ErrorSequence;
pub(crate) use throttle::DirtyFiles;

/// Who asks for write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritebackMode {
    /// fsync: everything dirty at the call is written when it returns, by whomever.
    Sync,
    /// The daemon or a throttled writer: what others write already is left to them.
    Background,
}
