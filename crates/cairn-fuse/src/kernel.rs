//! Invalidates the kernel's copies of names, attributes and pages.
//!
//! The kernel keeps names, attributes and pages for an hour, because Cairn is the only writer.
//! Changes that the kernel did not request itself are reported to it here, and nowhere else:
//! privileges that a write removes, attributes that an ioctl changes, pages that direct I/O
//! replaces, and the number of blocks of a file whose pages the kernel wrote back. The kernel asks
//! for that number itself when a file is closed. It is told once a second of files that stay open.
//!
//! Locks of the kernel. Any thread may invalidate attributes at any time, because that waits for
//! nothing. A reader or writer of pages has them locked *while its request is being answered*, so
//! invalidating pages waits for the answers to other requests. Therefore
//!
//! - a thread that other requests wait for does not do it: a request that does it itself is
//!   [`crate::operations::Weight::NeedsAnother`];
//! - answers to direct writes are held back until it is done, so that the writer then reads what it
//!   wrote; but only [`HELD_BACK`] of them. The kernel limits its background requests (readahead,
//!   write-back, asynchronous direct I/O). If all of them were writes held back, the reads that
//!   their pages wait for would never arrive.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::handshake::MAX_BACKGROUND;

/// Most answers that wait until pages are invalidated.
const HELD_BACK: usize = MAX_BACKGROUND as usize / 4;
/// The kernel's number of blocks of an open file is right again this long after write-back.
const TICK: Duration = Duration::from_secs(1);
/// Bits of [`Kernel::read`]. With more inodes than this, several share a bit.
const NODES: u64 = 1 << 20;

/// Runs when the pages are invalidated.
type Then = Box<dyn FnOnce() + Send>;

/// A range of a file, in bytes, of which the kernel may have stale pages.
struct Replaced {
    node: u64,
    offset: u64,
    len: u64,
    then: Option<Then>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Replaced>,
    /// Answers held back: in `waiting`, or being sent now.
    held: usize,
    /// Nodes of open files whose pages were written back.
    written_back: HashSet<u64>,
    /// The thread looks at them once a tick.
    ticking: bool,
    running: bool,
    ended: bool,
}

/// What the thread tells the kernel.
enum Change {
    Pages(Replaced),
    Blocks(HashSet<u64>),
}

#[derive(Default)]
struct Shared {
    notifier: OnceLock<Notifier>,
    queue: Mutex<Queue>,
    added: Condvar,
}

/// Queues invalidations for the thread that sends them. When it is dropped, the thread ends.
pub(crate) struct Kernel {
    shared: Arc<Shared>,
    /// The kernel has dirty pages of its own.
    writeback_cache: bool,
    /// A bit for each node that was read through the kernel's cache: it may have pages of these.
    read: Vec<AtomicU64>,
}

impl Kernel {
    pub(crate) fn new(writeback_cache: bool) -> Self {
        let read = (0..NODES / 64).map(|_| AtomicU64::new(0)).collect();
        Self { shared: Arc::default(), writeback_cache, read }
    }

    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        // Set once, when the session is made.
        drop(self.shared.notifier.set(notifier));
    }

    /// Makes the kernel's attributes of a node stale.
    pub(crate) fn attributes_changed(&self, node: u64) {
        self.shared.tell(node, -1, 0);
    }

    /// The kernel wrote pages of an open file back: it does not know how many blocks that took.
    pub(crate) fn wrote_back(&self, node: u64) {
        if !self.writeback_cache {
            return;
        }
        let mut queue = self.shared.queue.lock();
        queue.written_back.insert(node);
        let wake = !std::mem::replace(&mut queue.ticking, true);
        let start = !std::mem::replace(&mut queue.running, true);
        drop(queue);
        if wake {
            self.shared.added.notify_one();
        }
        if start {
            self.start();
        }
    }

    /// A file is no longer open for writing, and the kernel asks for its blocks by itself.
    pub(crate) fn closed(&self, node: u64) {
        if self.writeback_cache {
            self.shared.queue.lock().written_back.remove(&node);
        }
    }

    /// True if files that are open for writing may have data that only the kernel has.
    pub(crate) const fn has_writeback_cache(&self) -> bool {
        self.writeback_cache
    }

    /// Makes the kernel write back and drop its pages of a file, also where only shared mappings
    /// have changed them. Other threads must serve requests meanwhile.
    pub(crate) fn collect_mapped_pages(&self, node: u64) {
        self.shared.tell(node, 0, 0);
    }

    /// Makes the kernel write back and drop its pages of a file. Afterwards the size and contents
    /// of the file are current here. Other threads must serve requests meanwhile.
    pub(crate) fn collect_dirty_pages(&self, node: u64) {
        self.collect_dirty_range(node, 0..u64::MAX);
    }

    /// As [`Kernel::collect_dirty_pages`], for some of the bytes.
    pub(crate) fn collect_dirty_range(&self, node: u64, range: Range<u64>) {
        if self.writeback_cache {
            let start = i64::try_from(range.start).unwrap_or(i64::MAX);
            // Zero: to the end.
            let len = i64::try_from(range.end - range.start).unwrap_or(0);
            self.shared.tell(node, start, len);
        }
    }

    /// Records that the kernel caches contents of this file. Call it before they are read: later
    /// changes are then reported to the kernel.
    pub(crate) fn caches(&self, node: u64) {
        let (word, bit) = self.place(node);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn place(&self, node: u64) -> (&AtomicU64, u64) {
        let index = usize::try_from(node % NODES / 64).expect("one of the words");
        (&self.read[index], 1 << (node % 64))
    }

    /// A range was written by direct I/O. Calls `then`, which sends the answer, when the kernel has
    /// dropped its pages of the range, or at once if too many answers wait.
    pub(crate) fn pages_replaced(
        &self,
        node: u64,
        offset: u64,
        len: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        let (word, bit) = self.place(node);
        if len == 0 || word.load(Ordering::SeqCst) & bit == 0 {
            return then();
        }
        let mut queue = self.shared.queue.lock();
        let held = queue.held < HELD_BACK;
        let mut then: Option<Then> = Some(Box::new(then));
        let at_once = if held { None } else { then.take() };
        queue.held += usize::from(held);
        queue.waiting.push_back(Replaced { node, offset, len, then });
        let start = !std::mem::replace(&mut queue.running, true);
        drop(queue);
        self.shared.added.notify_one();
        if let Some(then) = at_once {
            then();
        }
        if start {
            self.start();
        }
    }

    fn start(&self) {
        let shared = self.shared.clone();
        let thread = spawn("cairn-fuse-pages", move || shared.run());
        if let Err(error) = thread {
            tracing::warn!(
                "no thread to tell the kernel of replaced pages: {}",
                with_remedy(&error, "mount again")
            );
            let waiting = {
                let mut queue = self.shared.queue.lock();
                (queue.running, queue.held, queue.ticking) = (false, 0, false);
                queue.written_back.clear();
                std::mem::take(&mut queue.waiting)
            };
            waiting.into_iter().filter_map(|replaced| replaced.then).for_each(|then| then());
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.shared.queue.lock().ended = true;
        self.shared.added.notify_all();
    }
}

impl Shared {
    fn tell(&self, node: u64, offset: i64, len: i64) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.inval_inode(INodeNo(node), offset, len) {
            tracing::debug!("the kernel could not be notified of node {node}: {error}");
        }
    }

    fn run(&self) {
        while let Some(change) = self.next() {
            match change {
                Change::Blocks(nodes) => nodes.into_iter().for_each(|node| self.tell(node, -1, 0)),
                Change::Pages(Replaced { node, offset, len, then }) => {
                    // Files end below 2^63.
                    self.tell(node, offset.cast_signed(), len.cast_signed());
                    if let Some(then) = then {
                        then();
                        self.queue.lock().held -= 1;
                    }
                }
            }
        }
    }

    /// `None` at the end.
    fn next(&self) -> Option<Change> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(replaced) = queue.waiting.pop_front() {
                return Some(Change::Pages(replaced));
            }
            if queue.ended {
                return None;
            }
            if !queue.ticking {
                self.added.wait(&mut queue);
            } else if self.added.wait_for(&mut queue, TICK).timed_out() {
                queue.ticking = !queue.written_back.is_empty();
                if queue.ticking {
                    return Some(Change::Blocks(std::mem::take(&mut queue.written_back)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn answers_wait_only_where_the_kernel_may_have_pages() {
        let kernel = Kernel::new(true);
        let (sender, receiver) = mpsc::channel();
        let done = |what: &'static str| {
            let sender = sender.clone();
            move || sender.send((what, thread::current().name().map(str::to_owned))).unwrap()
        };
        kernel.pages_replaced(7, 0, 4096, done("never read"));
        let here = thread::current().name().map(str::to_owned);
        assert_eq!(receiver.recv().unwrap(), ("never read", here.clone()));
        kernel.caches(7);
        kernel.pages_replaced(7, 0, 0, done("nothing written"));
        assert_eq!(receiver.recv().unwrap(), ("nothing written", here));
        kernel.pages_replaced(7, 0, 4096, done("read"));
        assert_eq!(receiver.recv().unwrap(), ("read", Some("cairn-fuse-pages".into())));
    }

    #[test]
    fn so_many_answers_are_held_back_and_the_next_is_given_at_once() {
        let kernel = Kernel::new(true);
        kernel.caches(1);
        let (sender, receiver) = mpsc::channel();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let hold = gate.clone();
        kernel.pages_replaced(1, 0, 1, move || {
            hold.wait();
        });
        for n in 1..=HELD_BACK {
            let sender = sender.clone();
            kernel.pages_replaced(1, 0, 1, move || sender.send(n).unwrap());
        }
        // The thread waits at the barrier with the first answer: only answers that are not held
        // back have been sent.
        assert_eq!(receiver.recv().unwrap(), HELD_BACK);
        gate.wait();
        assert!((1..HELD_BACK).all(|n| receiver.recv().unwrap() == n));
    }
}
