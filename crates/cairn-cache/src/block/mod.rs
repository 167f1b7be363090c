//! Metadata buffers: one block each, read once, shared by all, pinned by whoever needs a version to stay as it is.
//!
//! An [`Image`] is immutable once shared: a writer copies it only if somebody else (a commit, a checkpoint, a reader) still
//! holds it. That replaces frozen copies.
//!
//! Invariant: a buffer that is dirty, or held by anybody (a transaction, a checkpoint list, an operation), is never
//! evicted: reading it again from the device would give stale bytes.
//!
//! Locking: a buffer's lock has rank BUFFER; index shards have rank CACHE and are never held across I/O.

mod buffer;
mod cache;

pub use buffer::{Buffer, BufferGuard, Image};
pub use cache::BufferCache;

#[cfg(test)]
mod tests;
