//! The write-back daemon: it writes files that are dirty for too long, and the longest dirty ones
//! when too much is dirty.
//!
//! The volume makes their metadata durable ([`super::Expired`]): at once for files that were dirty
//! for too long, and for the others after that time. So many small files that exceed the limit do
//! not cost a commit each. While the device has no room, it tries again after each [`PAUSE`]. So
//! writers continue soon after there is room.

use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::{Daemon, DaemonHandle, NoThread, Progress};

use super::throttle::Attempt;
use crate::file::PageCache;

/// Pause after a failed flush, so that the daemon does not send writes to a broken device without
/// end.
const PAUSE: Duration = Duration::from_millis(500);

/// What the daemon remembers from step to step.
#[derive(Clone, Copy, Default)]
struct Round {
    /// More was dirty than the background limit, and not less than the low mark since then.
    drains: bool,
    /// When the first of the files was written whose metadata [`super::Expired::written`] has not
    /// been called for.
    written_since: Option<Duration>,
    /// One of them was dirty for too long.
    expired: bool,
}

struct Writeback {
    cache: Weak<PageCache>,
    /// Only the daemon takes this lock, and not while it writes.
    round: Mutex<Round>,
}

impl PageCache {
    /// Starts the daemon. The volume keeps the handle and stops the daemon before the last
    /// write-back of an unmount.
    ///
    /// # Errors
    /// The system has no thread for the daemon.
    pub fn start_writeback(self: &Arc<Self>) -> Result<DaemonHandle, NoThread> {
        let round = Mutex::new(Rank::Cache, Round::default());
        let daemon = Arc::new(Writeback { cache: Arc::downgrade(self), round });
        self.runtime.spawn("writeback", self.dirty.wake.clone(), daemon)
    }
}

impl Daemon for Writeback {
    fn step(&self) -> Progress {
        let Some(cache) = self.cache.upgrade() else { return Progress::Done };
        let mut round = *self.round.lock();
        let progress = round.step(&cache);
        *self.round.lock() = round;
        progress
    }
}

impl Round {
    fn step(&mut self, cache: &PageCache) -> Progress {
        let lacks_room = cache.lacks_room();
        let expire = cache.dirty_expire();
        self.drains =
            if self.drains { cache.is_over_low_mark() } else { cache.is_over_background() };
        let mut expired = true;
        let mut attempt = cache.flush_oldest(expire);
        if matches!(attempt, Attempt::NotYet(_)) && (self.drains || lacks_room) {
            expired = false;
            attempt = cache.flush_oldest(Duration::ZERO);
        }
        let now = cache.runtime.monotonic();
        if matches!(attempt, Attempt::Written) {
            self.written_since.get_or_insert(now);
            self.expired |= expired;
        }
        // A commit would find no room, either, and stop the volume.
        if !lacks_room {
            self.report(cache, now, matches!(attempt, Attempt::Written | Attempt::Clean));
        }
        let due = self
            .written_since
            .map(|since| since.saturating_add(expire).saturating_sub(now).max(PAUSE));
        match attempt {
            Attempt::Written | Attempt::Clean => Progress::Worked,
            Attempt::Postponed | Attempt::Failed(_) => Progress::Idle(Some(PAUSE)),
            Attempt::NotYet(left) => Progress::Idle(Some(due.map_or(left, |due| due.min(left)))),
            Attempt::None => Progress::Idle(due),
        }
    }

    /// Tells the volume of written files if their metadata should be durable now.
    fn report(&mut self, cache: &PageCache, now: Duration, goes_on: bool) {
        let Some(since) = self.written_since else { return };
        let all_expired_written = self.expired && !goes_on;
        if !all_expired_written && now.saturating_sub(since) < cache.dirty_expire() {
            return;
        }
        (self.written_since, self.expired) = (None, false);
        if let Some(expired) = cache.expired.get().and_then(Weak::upgrade) {
            expired.written();
        }
    }
}
