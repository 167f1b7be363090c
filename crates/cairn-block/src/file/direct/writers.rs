//! [`Writers`]: threads that write directly and wait, so that several writes are in the kernel.
//!
//! An io_uring would need no threads. But when a direct write of a block device that it began is
//! done, Linux leaves pages in the page cache that another program has read in meanwhile, with
//! their old bytes, and who reads the device beside this program would see them from then on. After
//! a write by a system call that waits, Linux drops them. Next to the transfer of a large piece, a
//! thread's wake-up costs nothing.
//!
//! Locking: one mutex of rank Leaf around the queue, not held in system calls or callbacks.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};
use cairn_base::thread::spawn;

use super::job::Sent;

/// Most writes in the kernel at once.
pub const WRITERS: usize = 16;

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// The threads, which start when they are needed. Dropping it waits for what they do.
#[derive(Debug)]
pub(super) struct Writers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// A forked child has no such threads.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    file: File,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Sent>,
    /// Threads that wait for something to do.
    idle: usize,
    started: usize,
    /// Nothing more comes.
    closing: bool,
}

impl Writers {
    /// Writers of a file that is open for direct transfers.
    pub(super) fn new(file: File) -> Self {
        let queue = Mutex::new(Rank::Leaf, Queue::default());
        let shared = Arc::new(Shared { file, queue, wake: Condvar::new() });
        let threads = Mutex::new(Rank::Leaf, Vec::new());
        Self { shared, threads, process: std::process::id() }
    }

    /// Hands transfers over. Without a single thread, the caller carries them out.
    pub(super) fn send(&self, transfers: Vec<Sent>) {
        let missing = {
            let mut queue = self.shared.queue.lock();
            queue.waiting.extend(transfers);
            let missing = queue.waiting.len().saturating_sub(queue.idle);
            let missing = missing.min(WRITERS - queue.started);
            queue.started += missing;
            missing
        };
        self.shared.wake.notify_all();
        let mut failed = 0;
        for _ in 0..missing {
            let shared = self.shared.clone();
            match spawn("cairn-write", move || shared.run()) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(_) => failed += 1,
            }
        }
        if failed > 0 {
            let left = {
                let mut queue = self.shared.queue.lock();
                queue.started -= failed;
                if queue.started == 0 {
                    std::mem::take(&mut queue.waiting)
                } else {
                    VecDeque::new()
                }
            };
            left.into_iter().for_each(|sent| sent.finish(&self.shared.file));
        }
    }

    /// Whether the caller is a thread of writers: it must not wait for others.
    pub(super) fn is_own_thread() -> bool {
        IS_WRITER.get()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_all();
        let own = std::thread::current().id();
        for thread in std::mem::take(self.threads.get_mut()) {
            // The last reference may be that of a callback.
            if thread.thread().id() != own {
                // A panic has been reported by the panic hook.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        IS_WRITER.set(true);
        while let Some(sent) = self.next() {
            // The next transfer comes, even if a callback panics, which the panic hook reports.
            let _ = catch_unwind(AssertUnwindSafe(|| sent.finish(&self.file)));
        }
    }

    fn next(&self) -> Option<Sent> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(sent) = queue.waiting.pop_front() {
                return Some(sent);
            }
            if queue.closing {
                return None;
            }
            queue.idle += 1;
            self.wake.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}
