//! Throttling: a writer writes back dirty files itself while too much is dirty.
//!
//! Freedom from deadlock: the caller of [`PageCache::balance`] holds no lock at all. It writes back
//! on its own thread through [`super::Flushable`] and waits only for rounds that run on other
//! threads.

use std::sync::Weak;
use std::time::Duration;

use cairn_base::ranked_lock::{Rank, assert_may_wait};

use super::dirty_files::{DirtyFile, Oldest};
use super::flushable::{Flushed, WritebackMode};
use crate::file::{CacheError, PageCache};

/// A throttled writer looks again after at most this long.
const PATIENCE: Duration = Duration::from_millis(100);

/// Result of an attempt to write back the file that has been dirty longest.
#[derive(Clone)]
pub(super) enum Attempt {
    /// It was written.
    Written,
    /// It is gone, or nothing of it was dirty.
    Clean,
    /// It is in use, and is now at the end of the queue.
    Postponed,
    /// It could not be written, and is now at the end of the queue.
    Failed(CacheError),
    /// No file has been dirty for that long; the next one is due after this time.
    NotYet(Duration),
    /// No file is dirty.
    None,
}

impl PageCache {
    /// Throttles a writer: the calling thread writes back until no more is dirty than the options
    /// allow. Call it before each write and hold no lock: it flushes inodes, which take their own.
    ///
    /// It gives up when the number of dirty bytes no longer falls.
    ///
    /// # Errors
    /// The dirty data cannot be written. It stays dirty for another attempt, and the caller must
    /// not add to it. So memory does not grow without bound over a device that takes no writes, and
    /// the first writer gets the error of one that has no room.
    pub fn balance(&self) -> Result<(), CacheError> {
        self.retry_refused()?;
        if !self.is_over_limit() {
            return Ok(());
        }
        assert_may_wait(Rank::InodeData);
        self.counters().throttles.add(1);
        let (mut fruitless, mut failed) = (0, None);
        while self.is_over_limit() && fruitless <= self.dirty.len() {
            let before = self.dirty_bytes();
            match self.flush_oldest(Duration::ZERO) {
                Attempt::Failed(_) if self.dirty_bytes() < before => fruitless = 0,
                Attempt::Written | Attempt::Clean => fruitless = 0,
                Attempt::Postponed => fruitless += 1,
                Attempt::Failed(error) => {
                    fruitless += 1;
                    failed = Some(error);
                }
                Attempt::NotYet(_) | Attempt::None => {
                    let mut less = || self.dirty_bytes() < before || !self.is_over_limit();
                    if !self.runtime.wait_until_timeout(&self.dirty.drained, PATIENCE, &mut less) {
                        fruitless += 1;
                    }
                }
            }
        }
        failed.filter(|_| self.is_over_limit()).map_or(Ok(()), Err)
    }

    /// True while data waits because the device had no room.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.no_room.pending().is_some() && (self.dirty_bytes() > 0 || self.no_room.is_tried())
    }

    /// Tries again to write data that the device had no room for. Another thread may be doing the
    /// same: then its result counts.
    fn retry_refused(&self) -> Result<(), CacheError> {
        let Some(refused) = self.no_room.pending() else { return Ok(()) };
        assert_may_wait(Rank::InodeData);
        let (mut postponed, mut rounds) = (false, 2 * self.dirty.len() + 2);
        while rounds > 0 && self.lacks_room() {
            match self.flush_oldest(Duration::ZERO) {
                Attempt::Failed(error) if self.no_room.has_refused_since(refused) => {
                    return Err(error);
                }
                Attempt::Postponed => postponed = true,
                Attempt::Written | Attempt::Clean | Attempt::Failed(_) => {}
                Attempt::NotYet(_) | Attempt::None => {
                    let mut ended = || !self.no_room.is_tried();
                    self.runtime.wait_until_timeout(&self.dirty.drained, PATIENCE, &mut ended);
                }
            }
            rounds -= 1;
        }
        if !postponed && !self.no_room.has_refused_since(refused) {
            self.no_room.complete(refused);
        }
        Ok(())
    }

    /// Writes back the file that has been dirty longest, if it has been dirty for `age` or more.
    pub(super) fn flush_oldest(&self, age: Duration) -> Attempt {
        self.no_room.begin();
        let attempt = self.flush_queued(age);
        self.no_room.end();
        self.dirty.drained.notify();
        attempt
    }

    fn flush_queued(&self, age: Duration) -> Attempt {
        let now = self.runtime.monotonic();
        let file = match self.dirty.pop_due(now, age) {
            Oldest::Due(file) => file,
            Oldest::NotYet(left) => return Attempt::NotYet(left),
            Oldest::None => return Attempt::None,
        };
        let attempt = self.flush_taken(&file, now);
        self.dirty.finish(&file);
        attempt
    }

    fn flush_taken(&self, file: &Weak<DirtyFile>, now: Duration) -> Attempt {
        let Some(file) = file.upgrade() else { return Attempt::Clean };
        let Some(owner) = file.upgrade_owner() else { return Attempt::Clean };
        let outcome = owner.flush(WritebackMode::Background);
        let written = matches!(outcome, Ok(Flushed::Written | Flushed::Clean));
        if file.has_unstable() {
            let since = if written { self.runtime.monotonic() } else { now };
            self.dirty.push(&file, since);
        }
        match outcome {
            Ok(Flushed::Written) => Attempt::Written,
            Ok(Flushed::Clean) => Attempt::Clean,
            Ok(Flushed::Busy) => Attempt::Postponed,
            Err(error) => Attempt::Failed(error),
        }
    }
}
