//! The write-back daemon: files that are dirty for too long, and the longest dirty ones when too much is.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::runtime::{Daemon, DaemonHandle, NoThread, Progress};

use super::WritebackMode;
use super::throttle::Attempt;
use crate::file::{CacheError, PageCache};

/// After a failed flush the daemon pauses, so that a broken device is not hammered.
const PAUSE: Duration = Duration::from_millis(500);

/// What came of a [`Flushable::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Write-back ran.
    Written,
    /// The inode is in use; ask again later.
    Busy,
}

/// An inode, as write-back sees it.
pub trait Flushable: Send + Sync {
    /// Takes inode.data shared and calls [`crate::file::FileCache::write_back`] for the whole file.
    ///
    /// For [`WritebackMode::Background`] it must only *try* to take the lock and say [`Flushed::Busy`] if that fails: in
    /// the simulator the daemon runs on the stack of whoever waits, possibly with that very lock.
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError>;

    /// *Tries* to take inode.data shared and, if it has it, calls [`crate::file::FileCache::read_ahead`]. The default is
    /// for files that are never read ahead.
    fn read_ahead(&self, _blocks: Range<u64>) {}

    /// Calls [`crate::file::FileCache::give_back`], with no lock: somebody needs the space. Of use only to files whose
    /// mapper [promises ahead](crate::mapper::FileMapper::promises_ahead).
    fn give_back(&self) {}
}

/// Who makes durable what the daemon has written.
pub trait Expired: Send + Sync {
    /// Files were written because they had been dirty for long enough, and no other one is that old. Must not wait for anything: in the
    /// simulator the daemon runs on the stack of whoever waits.
    fn written(&self);
}

struct Writeback {
    cache: Weak<PageCache>,
    /// Something was written since [`Expired::written`] was called.
    wrote: AtomicBool,
}

impl PageCache {
    /// Starts the daemon. The volume keeps the handle and stops it before the last write-back of an unmount.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start_writeback(self: &Arc<Self>) -> Result<DaemonHandle, NoThread> {
        let daemon = Arc::new(Writeback { cache: Arc::downgrade(self), wrote: AtomicBool::new(false) });
        self.runtime.spawn("writeback", self.dirty.wake.clone(), daemon)
    }
}

impl Daemon for Writeback {
    fn step(&self) -> Progress {
        let Some(cache) = self.cache.upgrade() else { return Progress::Done };
        let age = if cache.is_over_background() { Duration::ZERO } else { cache.dirty_expire() };
        let attempt = cache.flush_oldest(age);
        if matches!(attempt, Attempt::Written) {
            self.wrote.store(true, Ordering::Relaxed);
        } else if self.wrote.swap(false, Ordering::Relaxed)
            && let Some(expired) = cache.expired.get().and_then(Weak::upgrade)
        {
            expired.written();
        }
        match attempt {
            Attempt::Written => Progress::Worked,
            Attempt::Postponed | Attempt::Failed(_) => Progress::Idle(Some(PAUSE)),
            Attempt::NotYet(left) => Progress::Idle(Some(left)),
            Attempt::None => Progress::Idle(None),
        }
    }
}
