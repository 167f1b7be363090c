//! Metadata buffers: each holds one block, is read once and is shared by all users.
//!
//! An [`Image`] is immutable while it is shared: a writer copies it only if another holder (a
//! commit, a checkpoint, a reader) still has it. So a commit keeps its frozen data without a copy
//! in advance.
//!
//! Invariant: a buffer that is dirty, or that has another holder (a transaction, a checkpoint list,
//! an operation), is never evicted: the device may have older bytes.
//!
//! Locking: a buffer's lock has rank Buffer. The shards of the index have rank Cache and are never
//! held across I/O.

mod buffer;
mod cache;
mod image;

pub use buffer::{Buffer, BufferGuard};
pub use cache::BufferCache;
pub use image::{Image, image_bytes};

#[cfg(test)]
mod tests;
