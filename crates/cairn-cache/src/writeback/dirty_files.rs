//! [`DirtyFiles`]: the dirty files of a volume, and how many bytes of them are dirty.
//!
//! Locking: the queue has rank Cache. It is held for a push, a pop or a pass over the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Event;

use super::flushable::Flushable;

/// What the queue of dirty files needs of one file.
#[derive(Default)]
pub(crate) struct DirtyFile {
    /// The inode that writes this file back.
    pub(crate) owner: OnceLock<Weak<dyn Flushable>>,
    /// Blocks that are dirty or being written.
    unstable: AtomicU64,
    /// The file is in the queue.
    queued: AtomicBool,
}

impl DirtyFile {
    /// Blocks that are dirty or being written.
    pub(crate) fn unstable(&self) -> u64 {
        self.unstable.load(Ordering::SeqCst)
    }

    /// True if any block is dirty or being written.
    pub(crate) fn has_unstable(&self) -> bool {
        self.unstable() > 0
    }

    /// True if the file is in the queue of dirty files.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::SeqCst)
    }

    /// A clean file leaves the queue. False if it has become dirty meanwhile, and stays: who made
    /// it so has seen it in the queue.
    fn leaves_queue(&self) -> bool {
        self.queued.swap(false, Ordering::SeqCst);
        // Who has made it dirty since then has queued it anew.
        !self.has_unstable() || self.queued.swap(true, Ordering::SeqCst)
    }

    /// The inode, unless it is gone.
    pub(crate) fn upgrade_owner(&self) -> Option<Arc<dyn Flushable>> {
        self.owner.get().and_then(Weak::upgrade)
    }
}

struct Entry {
    since: Duration,
    file: Weak<DirtyFile>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Entry>,
    /// Files that were taken out of the queue, and are being written.
    taken: Vec<Weak<DirtyFile>>,
}

/// The file at the head of the queue.
pub(super) enum Oldest {
    /// It was old enough, and has left the queue. [`DirtyFiles::finish`] follows.
    Due(Weak<DirtyFile>),
    /// It is due after this time.
    NotYet(Duration),
    /// The queue is empty.
    None,
}

/// The dirty files of a volume, the longest dirty first.
pub(crate) struct DirtyFiles {
    queue: Mutex<Queue>,
    /// Length of the queue, for readers that do not hold its lock.
    len: AtomicUsize,
    bytes: AtomicU64,
    /// Files with such bytes. The queue has others, too: it keeps a file until its time or the next
    /// pass, also if an fsync has written it.
    files: AtomicUsize,
    /// Wakes the daemon.
    pub(crate) wake: Arc<Event>,
    /// Some bytes became clean.
    pub(crate) drained: Event,
}

impl DirtyFiles {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Rank::Cache, Queue::default()),
            len: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            files: AtomicUsize::new(0),
            wake: Arc::new(Event::new()),
            drained: Event::new(),
        }
    }

    /// Bytes that are dirty or being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of files with bytes that are dirty or being written.
    pub(crate) fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }

    /// Number of files in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes the file at the head of the queue, if it has been dirty for `age` or more.
    pub(super) fn pop_due(&self, now: Duration, age: Duration) -> Oldest {
        let mut queue = self.queue.lock();
        let Some(first) = queue.waiting.front() else { return Oldest::None };
        let due = first.since.saturating_add(age);
        if due > now {
            return Oldest::NotYet(due - now);
        }
        let file = queue.waiting.pop_front().expect("there is a first one").file;
        queue.taken.push(file.clone());
        self.len.store(queue.waiting.len(), Ordering::Relaxed);
        drop(queue);
        if let Some(file) = file.upgrade() {
            file.queued.store(false, Ordering::SeqCst);
        }
        Oldest::Due(file)
    }

    /// Appends a file to the queue, unless it is in it. True if it is the only one there.
    pub(crate) fn push(&self, file: &Arc<DirtyFile>, since: Duration) -> bool {
        if file.queued.swap(true, Ordering::SeqCst) {
            return false;
        }
        let mut queue = self.queue.lock();
        queue.waiting.push_back(Entry { since, file: Arc::downgrade(file) });
        self.len.store(queue.waiting.len(), Ordering::Relaxed);
        queue.waiting.len() == 1
    }

    /// The attempt to write a file that was taken out of the queue has ended. If something of it is
    /// still dirty, it is in the queue again.
    pub(super) fn finish(&self, file: &Weak<DirtyFile>) {
        let mut queue = self.queue.lock();
        if let Some(at) = queue.taken.iter().position(|taken| taken.ptr_eq(file)) {
            queue.taken.swap_remove(at);
        }
    }

    /// All files with bytes that are dirty or being written. The others leave the queue, so that
    /// the next pass need not look at them.
    pub(crate) fn list(&self) -> Vec<Arc<DirtyFile>> {
        let mut queue = self.queue.lock();
        let mut files = Vec::with_capacity(self.files());
        queue.waiting.retain(|entry| {
            let Some(file) = entry.file.upgrade() else { return false };
            let stays = file.has_unstable() || !file.leaves_queue();
            if stays {
                files.push(file);
            }
            stays
        });
        self.len.store(queue.waiting.len(), Ordering::Relaxed);
        let taken = queue.taken.iter().filter_map(Weak::upgrade);
        files.extend(taken.filter(|file| file.has_unstable()));
        files
    }

    /// Counts blocks of `file` that became dirty, of `bytes` bytes.
    pub(crate) fn add(&self, file: &DirtyFile, blocks: u64, bytes: u64) {
        if file.unstable.fetch_add(blocks, Ordering::SeqCst) == 0 {
            self.files.fetch_add(1, Ordering::Relaxed);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts blocks of `file` that became clean or were dropped, of `bytes` bytes.
    pub(crate) fn sub(&self, file: &DirtyFile, blocks: u64, bytes: u64) {
        let had = file.unstable.fetch_sub(blocks, Ordering::Relaxed);
        assert!(had >= blocks, "{blocks} blocks cleaned of {had} dirty");
        if had == blocks {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes cleaned of {before} dirty");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_leaves_no_clean_file_behind() {
        let (dirty, files) = (DirtyFiles::new(), [(); 3].map(|()| Arc::new(DirtyFile::default())));
        for file in &files {
            dirty.add(file, 1, 4096);
            dirty.push(file, Duration::ZERO);
        }
        dirty.sub(&files[0], 1, 4096);
        dirty.sub(&files[2], 1, 4096);
        assert_eq!((dirty.len(), dirty.list().len(), dirty.len()), (3, 1, 1));
        assert!(!files[0].is_queued() && files[1].is_queued());
        // It comes again.
        dirty.add(&files[0], 1, 4096);
        dirty.push(&files[0], Duration::ZERO);
        assert_eq!((dirty.list().len(), dirty.len()), (2, 2));
    }

    /// A file that becomes dirty while a pass decides that it is clean is in the queue.
    #[test]
    fn a_pass_loses_no_file_that_becomes_dirty() {
        const ROUNDS: usize = 20_000;
        let (dirty, file) = (DirtyFiles::new(), Arc::new(DirtyFile::default()));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let passes = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    dirty.list();
                }
            });
            for _ in 0..ROUNDS {
                dirty.add(&file, 1, 4096);
                if !file.is_queued() {
                    dirty.push(&file, Duration::ZERO);
                }
                let listed = dirty.list();
                assert!(listed.iter().any(|other| Arc::ptr_eq(other, &file)), "it is dirty");
                dirty.sub(&file, 1, 4096);
            }
            stop.store(true, Ordering::Relaxed);
            passes.join().unwrap();
        });
    }
}
