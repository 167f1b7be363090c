//! Invalidates the kernel's copies of names, attributes and pages.
//!
//! The kernel keeps names, attributes and pages for an hour, because Cairn is the only writer.
//! Changes that the kernel did not request itself are reported to it here, and nowhere else:
//! privileges that a write removes, attributes that an ioctl changes, pages that direct I/O
//! replaces.
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

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};

use crate::handshake::MAX_BACKGROUND;

/// Most answers that wait until pages are invalidated.
const HELD_BACK: usize = MAX_BACKGROUND as usize / 4;
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
    running: bool,
    ended: bool,
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
                (queue.running, queue.held) = (false, 0);
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
        loop {
            let replaced = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(replaced) = queue.waiting.pop_front() {
                        break replaced;
                    }
                    if queue.ended {
                        return;
                    }
                    self.added.wait(&mut queue);
                }
            };
            // Files end below 2^63.
            self.tell(replaced.node, replaced.offset.cast_signed(), replaced.len.cast_signed());
            if let Some(then) = replaced.then {
                then();
                self.queue.lock().held -= 1;
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
