//! What the threads of all rings share: start, end, failures, counters.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use cairn_base::thread::spawn;
use cairn_block::uring::Waker;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::mounts;
use crate::operations::Operations;
use crate::wire::{Areas, Device, Outbox};

/// What the rings serve.
pub(crate) struct Connection {
    /// `/dev/fuse`.
    pub(crate) fuse: Arc<Device>,
    /// `major:minor`; empty if unknown.
    pub(crate) number: String,
    pub(crate) mountpoint: PathBuf,
}

/// What the threads of all rings share.
pub(super) struct Shared {
    pub(super) operations: Arc<Operations>,
    pub(super) connection: Connection,
    /// Requests may be served.
    gate: Mutex<bool>,
    opened: Condvar,
    /// Serve no further request, although the connection may still be there.
    ended: AtomicBool,
    pub(super) failure: Mutex<Option<Errno>>,
    /// Ends the reading of `/dev/fuse`, too.
    end_all: Box<dyn Fn(Errno) + Send + Sync>,
    /// Of all rings: to wake their threads.
    outboxes: Mutex<Vec<Arc<Outbox>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Where threads may run that are started by a pinned one. `None`: unknown.
    pub(super) anywhere: Option<CpuSet>,
    pub(super) counters: Counted,
    pub(super) areas: Arc<Areas>,
}

/// Requests and answers.
#[derive(Default)]
pub(super) struct Counted {
    /// Entries that are not back for good.
    pub(super) entries: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) answered: AtomicU64,
    /// Answers after the end of the connection.
    pub(super) late: AtomicU64,
    pub(super) to_workers: AtomicU64,
    pub(super) taken_over: AtomicU64,
}

impl Counted {
    /// Entries with answers that nobody takes.
    pub(super) fn dropped(&self, entries: u64) {
        self.late.fetch_add(entries, Ordering::Relaxed);
        self.entries.fetch_sub(entries, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn new(
        operations: Arc<Operations>,
        connection: Connection,
        end_all: Box<dyn Fn(Errno) + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            operations,
            connection,
            gate: Mutex::default(),
            opened: Condvar::new(),
            ended: AtomicBool::default(),
            failure: Mutex::default(),
            end_all,
            outboxes: Mutex::default(),
            threads: Mutex::default(),
            anywhere: sched_getaffinity(None).ok(),
            counters: Counted::default(),
            areas: Areas::new(),
        })
    }

    /// A ring that fails must not leave callers waiting: the connection is ended.
    pub(super) fn fail(&self, error: Errno) {
        tracing::error!("FUSE over io_uring failed: {error}");
        if let Err(error) = mounts::abort(&self.connection.number) {
            tracing::debug!("the connection is not aborted: {error}");
        }
        self.stop(error);
    }

    /// The same without an end of the connection in the kernel.
    pub(super) fn stop(&self, error: Errno) {
        self.failure.lock().get_or_insert(error);
        self.end();
        (self.end_all)(error);
    }

    /// Serves no further request, although the connection may still be there.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.open();
        self.outboxes.lock().iter().for_each(|outbox| outbox.wake());
    }

    /// The answers of a further ring.
    pub(super) fn outbox(&self, waker: Waker) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::new(waker));
        self.outboxes.lock().push(outbox.clone());
        outbox
    }

    /// Waits for all threads.
    pub(super) fn join(&self) {
        loop {
            let Some(thread) = self.threads.lock().pop() else { break };
            // A panic has been reported.
            let _ = thread.join();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(super) fn wait_at_gate(&self) {
        let mut open = self.gate.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }

    pub(super) fn open(&self) {
        *self.gate.lock() = true;
        self.opened.notify_all();
    }

    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let shared = self.clone();
        let thread = spawn(name, move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            if done.is_err() {
                // The panic hook has reported it.
                shared.fail(Errno::IO);
            }
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }
}
