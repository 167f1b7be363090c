//! The write-back daemon: it writes files that are dirty for too long, and the longest dirty ones
//! when too much is dirty. While the device has no room, it tries again after each [`PAUSE`]. So
//! writers continue soon after there is room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::runtime::{Daemon, DaemonHandle, NoThread, Progress};

use super::throttle::Attempt;
use crate::file::PageCache;

/// Pause after a failed flush, so that the daemon does not send writes to a broken device without
/// end.
const PAUSE: Duration = Duration::from_millis(500);

struct Writeback {
    cache: Weak<PageCache>,
    /// A file was written since the last call of [`super::Expired::written`].
    wrote: AtomicBool,
}

impl PageCache {
    /// Starts the daemon. The volume keeps the handle and stops the daemon before the last
    /// write-back of an unmount.
    ///
    /// # Errors
    /// The system has no thread for the daemon.
    pub fn start_writeback(self: &Arc<Self>) -> Result<DaemonHandle, NoThread> {
        let daemon =
            Arc::new(Writeback { cache: Arc::downgrade(self), wrote: AtomicBool::new(false) });
        self.runtime.spawn("writeback", self.dirty.wake.clone(), daemon)
    }
}

impl Daemon for Writeback {
    fn step(&self) -> Progress {
        let Some(cache) = self.cache.upgrade() else { return Progress::Done };
        let lacks_room = cache.lacks_room();
        let age = if cache.is_over_background() || lacks_room {
            Duration::ZERO
        } else {
            cache.dirty_expire()
        };
        let attempt = cache.flush_oldest(age);
        if matches!(attempt, Attempt::Written) {
            self.wrote.store(true, Ordering::Relaxed);
        // A commit would find no room, either, and stop the volume.
        } else if !lacks_room
            && self.wrote.swap(false, Ordering::Relaxed)
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
