//! How much is dirty, which files are, and making writers help when it is too much.
//!
//! Deadlock freedom: [`PageCache::balance`] is called with no lock held at all, writes back on the calling thread
//! through [`Flushable`], and waits only for rounds that are under way on other threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank, assert_may_wait};
use cairn_base::runtime::Event;

use super::WritebackMode;
use super::daemon::Flushed;
use crate::file::{CacheError, FileState, PageCache};

/// A throttled writer looks again after this long at the latest.
const PATIENCE: Duration = Duration::from_millis(100);

/// The dirty files of a volume, the longest dirty first.
pub(crate) struct DirtyFiles {
    queue: Mutex<VecDeque<DirtyFile>>,
    bytes: AtomicU64,
    /// Wakes the daemon.
    pub(crate) wake: Arc<Event>,
    /// Something became clean.
    pub(crate) drained: Event,
}

struct DirtyFile {
    since: Duration,
    file: Weak<FileState>,
}

impl DirtyFiles {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Rank::CACHE, VecDeque::new()),
            bytes: AtomicU64::new(0),
            wake: Arc::new(Event::new()),
            drained: Event::new(),
        }
    }
}

/// What came of an attempt to write back the file that is dirty longest.
#[derive(Clone)]
pub(super) enum Attempt {
    /// It was written, or is gone.
    Written,
    /// It is in use, and waits at the end of the queue.
    Postponed,
    /// It could not be written, and waits at the end of the queue.
    Failed(CacheError),
    /// No file is dirty for that long; the next one is due after this time.
    NotYet(Duration),
    /// No file is dirty.
    None,
}

impl PageCache {
    /// Bytes of this volume's files that wait for write-back or are being written.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes.load(Ordering::Relaxed)
    }

    fn share(&self, percent: u8) -> u64 {
        self.budget().limit() / 100 * u64::from(percent)
    }

    pub(super) fn is_over_background(&self) -> bool {
        self.dirty_bytes() > self.share(self.options().dirty_background_percent)
    }

    /// True if writers should call [`PageCache::balance`].
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.dirty_bytes() > self.share(self.options().dirty_percent)
    }

    /// Makes the calling writer help until no more is dirty than the options allow. Call it before each write, holding
    /// no lock: it flushes inodes, which take their own.
    ///
    /// It gives up when nothing becomes less.
    ///
    /// # Errors
    /// Nothing becomes less because what is dirty cannot be written: that data stays for another try, and whoever would
    /// add to it is refused. So a device that takes nothing never makes memory grow without bound.
    pub fn balance(&self) -> Result<(), CacheError> {
        if !self.is_over_limit() {
            return Ok(());
        }
        assert_may_wait(Rank::INODE_DATA);
        self.counters().throttles.add(1);
        let (mut fruitless, mut failed) = (0, None);
        while self.is_over_limit() && fruitless <= self.dirty.queue.lock().len() {
            let before = self.dirty_bytes();
            match self.flush_oldest(Duration::ZERO) {
                Attempt::Failed(_) if self.dirty_bytes() < before => fruitless = 0,
                Attempt::Written => fruitless = 0,
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

    /// Writes back the file that has been dirty longest, if that is `age` or more.
    pub(super) fn flush_oldest(&self, age: Duration) -> Attempt {
        let now = self.runtime.monotonic();
        let entry = {
            let mut queue = self.dirty.queue.lock();
            let Some(first) = queue.front() else { return Attempt::None };
            let due = first.since.saturating_add(age);
            if due > now {
                return Attempt::NotYet(due - now);
            }
            queue.pop_front().expect("there is a first one")
        };
        let Some(file) = entry.file.upgrade() else { return Attempt::Written };
        file.queued.store(false, Ordering::SeqCst);
        let Some(owner) = file.owner.get().and_then(Weak::upgrade) else { return Attempt::Written };
        let outcome = owner.flush(WritebackMode::Background);
        let written = matches!(outcome, Ok(Flushed::Written));
        if file.has_unstable() {
            let since = if written { self.runtime.monotonic() } else { now };
            self.enqueue(&file, since);
        }
        match outcome {
            Ok(Flushed::Written) => Attempt::Written,
            Ok(Flushed::Busy) => Attempt::Postponed,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Puts a file at the end of the queue, unless it is in it. True if it is the only one.
    fn enqueue(&self, file: &Arc<FileState>, since: Duration) -> bool {
        if file.queued.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut queue = self.dirty.queue.lock();
        queue.push_back(DirtyFile { since, file: Arc::downgrade(file) });
        queue.len() == 1
    }

    /// Blocks of `file` became dirty. Called under a folio's lock.
    pub(crate) fn dirtied(&self, file: &Arc<FileState>, bytes: u64) {
        let was_over = self.is_over_background();
        self.dirty.bytes.fetch_add(bytes, Ordering::Relaxed);
        // With an empty queue the daemon sleeps as long as it likes.
        let first = !file.queued.load(Ordering::SeqCst) && self.enqueue(file, self.runtime.monotonic());
        if first || (!was_over && self.is_over_background()) {
            self.dirty.wake.notify();
        }
    }

    /// Bytes became clean, or are gone.
    pub(crate) fn cleaned(&self, bytes: u64) {
        let before = self.dirty.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes cleaned of {before} dirty");
    }
}
