//! What write-back needs of its callers: [`Flushable`] is an inode, [`Expired`] is the volume.

use std::ops::Range;

use crate::file::CacheError;

/// The caller of write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritebackMode {
    /// fsync: when it returns, everything that was dirty at the call is on the device, also if
    /// another caller submitted the write.
    Sync,
    /// The daemon or a throttled writer. It does not wait for the writes of others.
    Background,
}

/// Result of a [`Flushable::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Write-back ran.
    Written,
    /// Nothing of the inode was dirty: an earlier call has written it.
    Clean,
    /// The inode is in use; the caller asks again later.
    Busy,
}

/// An inode, as write-back sees it.
pub trait Flushable: Send + Sync {
    /// Takes inode.data shared and calls [`crate::file::FileCache::write_back`] for the whole file.
    ///
    /// For [`WritebackMode::Background`] it only *tries* to take the lock and returns
    /// [`Flushed::Busy`] if that fails: in the simulator the daemon runs on the stack of a waiting
    /// thread, which may hold that very lock.
    ///
    /// # Errors
    /// As [`crate::file::FileCache::write_back`].
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError>;

    /// *Tries* to take inode.data shared and, if it succeeds, calls
    /// [`crate::file::FileCache::read_ahead`]. The default is for files that are never read ahead.
    fn read_ahead(&self, _blocks: Range<u64>) {}

    /// Calls [`crate::file::FileCache::release_reservation`] without a lock, because another writer
    /// needs the space. Only files whose mapper [reserves
    /// ahead](crate::mapper::FileMapper::reserves_ahead) implement it.
    fn release_reservation(&self) {}
}

/// Makes durable what the write-back daemon has written.
pub trait Expired: Send + Sync {
    /// Files were written because of their age, and no other file is that old. Or files were
    /// written that long ago because too much was dirty. It must not wait: in the simulator the
    /// daemon runs on the stack of a waiting thread.
    fn written(&self);
}
