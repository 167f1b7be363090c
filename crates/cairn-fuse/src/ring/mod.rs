//! FUSE over io_uring: the second transport.
//!
//! The kernel has a queue for each possible processor, and sends a request to the queue of the
//! processor on which its caller runs. Each online processor has a ring and a thread pinned to it,
//! which carries quick requests out itself. The caller and this thread are on the same processor,
//! so no other processor is woken. Requests that may take long and are not from a lone caller go to
//! [`workers`], so that fsyncs of many callers share a commit. Their answers go through the ring's
//! [`Outbox`](crate::wire::Outbox), because only the thread that has the ring may use it.
//!
//! FORGET, INTERRUPT and notifications stay on `/dev/fuse`, which [`crate::servers`] reads as
//! without rings.
//!
//! - **Memory.** Each entry needs room for the largest request, 1 MiB, in 2 MiB of address space;
//!   its pages are allocated when they are used, and the kernel uses the last returned entry first.
//!   There are 4 to 16 entries for each online processor (64 in all, if that is between) and one
//!   for each other processor.
//! - **The data of a large WRITE** is taken out of its entry without a copy
//!   ([`Areas`](crate::wire::Areas)), so that the filesystem can keep it.
//! - **The last entry** of a queue is never taken by a request that may wait for others: as long as
//!   there is one, the queue gets a further entry. Only fsyncs wait for nobody. When they have
//!   [`queue`]'s limit of 40 entries, further requests wait in the kernel until the first is done.
//! - **What waits in the kernel** is looked at when an answer comes back (`COMMIT_AND_FETCH`), not
//!   when an entry is registered (`REGISTER`): a queue that ran out of entries is nudged with a
//!   request of our own. `NOTIFY_RETRIEVE` of no pages makes the kernel send a `NOTIFY_REPLY` to
//!   the queue of the calling processor; it takes the new entry, and with its answer the kernel
//!   looks at the others. It names a regular file that the kernel knows. Where it knows none, a
//!   thread of ours asks for the volume's statistics through the mount point. Only a mount that was
//!   detached, and of which no regular file is in use, cannot be asked: there, requests wait until
//!   one of those before them is answered.
//! - **A ring's thread that is kept** by a request for longer than a tick of the [`watch`] loses
//!   the ring to another thread. Threads stay until the end, because the kernel takes back what a
//!   thread has submitted when it ends.
//! - **The end.** After an unmount or an abort, the kernel gives all entries back with an error.
//!   Answers that come later are dropped with their entries. If a ring fails, the connection is
//!   aborted. Where that is not allowed, every thread stops serving, and the kernel ends the
//!   connection when the process closes `/dev/fuse`.
//!
//! Locking: a ring's lock is held by its thread, except while it carries out a request. No other
//! lock is held while a request is carried out, or while a thread waits for the kernel.

mod bell;
mod nudge;
pub(crate) mod placement;
mod probe;
mod queue;
mod serve;
mod shared;
#[cfg(test)]
mod tests;
mod watch;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use cairn_block::uring::Ring;
use rustix::io::Errno;

use crate::counters::{Load, RingLoad};
use crate::operations::Operations;
use bell::Bell;
use placement::Placement;
pub use probe::NoRing;
pub(crate) use probe::{pays, probe};
use queue::{Queue, Threads};
pub(crate) use shared::Connection;
use shared::Shared;
use workers::Workers;

/// All rings of a mount. Dropped, it ends them.
pub(crate) struct Rings {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    bell: Arc<Bell>,
    queues: Vec<Arc<Queue>>,
}

impl Rings {
    /// Registers rings for all queues of a connection whose INIT has agreed to them. Requests wait
    /// until [`Rings::serve`].
    ///
    /// # Errors
    /// The system refuses rings, memory or threads. The connection cannot be used then.
    pub(crate) fn start(
        connection: Connection,
        operations: Arc<Operations>,
        end_all: impl Fn(Errno) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let placement = Placement::here()?;
        let shared = Shared::new(operations, connection, Box::new(end_all));
        let (workers, bell) = (Arc::<Workers>::default(), Arc::<Bell>::default());
        // Dropped on the way out, it ends the threads that have been started.
        let mut rings = Self { shared: shared.clone(), workers, bell, queues: Vec::new() };
        let (ready, readiness) = mpsc::channel();
        for (processor, homes) in placement.rings() {
            let ring = Ring::new(shared.connection.fuse.descriptor()?)?;
            let queue = Arc::new(Queue::new(ring, rings.threads(), processor, &homes));
            rings.queues.push(queue.clone());
            let ready = ready.clone();
            shared.spawn("cairn-ring", move || {
                let registered = queue.register();
                let fine = registered.is_ok();
                let _ = ready.send(registered);
                drop(ready);
                if fine {
                    queue.run();
                }
            })?;
        }
        drop(ready);
        for _ in &rings.queues {
            readiness.recv().unwrap_or_else(|_| Err(io::Error::other("a ring's thread ended")))?;
        }
        let queues = rings.queues.clone();
        let (bell, areas) = (rings.bell.clone(), shared.areas.clone());
        // Without it, requests may wait behind each other, and for each other.
        shared.spawn("cairn-ring-watch", move || watch::watch(&bell, &queues, &areas))?;
        Ok(rings)
    }

    fn threads(&self) -> Threads {
        Threads {
            shared: self.shared.clone(),
            workers: self.workers.clone(),
            bell: self.bell.clone(),
        }
    }

    /// Lets the threads serve.
    pub(crate) fn serve(&self) {
        self.shared.open();
    }

    /// Waits until the connection has ended and all requests are answered.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.shared.open();
        if self.shared.failure.lock().is_some() {
            self.end();
        }
        for queue in &self.queues {
            queue.wait_for_end();
        }
        self.bell.end();
        self.workers.end();
        self.shared.join();
        self.queues.iter().for_each(|queue| queue.close());
        let failure = *self.shared.failure.lock();
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Serves no further request, although the connection may still be there.
    pub(crate) fn end(&self) {
        self.shared.end();
        self.bell.end();
    }

    /// A ring fails, and the connection may be aborted or not.
    #[cfg(test)]
    pub(crate) fn fail(&self, may_abort: bool) {
        if may_abort { self.shared.fail(Errno::IO) } else { self.shared.stop(Errno::IO) }
    }

    /// Adds the threads to those that read `/dev/fuse`.
    pub(crate) fn load(&self, other: Load) -> Load {
        let counters = &self.shared.counters;
        let (mut threads, mut idle) = self.workers.load();
        for queue in &self.queues {
            let (all, free) = queue.load();
            threads += all;
            idle += free;
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Load {
            threads: threads + other.threads,
            idle: idle + other.idle,
            queued: other.queued,
            device: other.device,
            ring: Some(RingLoad {
                queues: self.queues.len(),
                entries: count(&counters.entries),
                taken: count(&counters.taken),
                answered: count(&counters.answered),
                late: count(&counters.late),
                to_workers: count(&counters.to_workers),
                taken_over: count(&counters.taken_over),
            }),
        }
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.end();
        self.workers.end();
    }
}
