//! The threads that read requests, carry them out and answer.
//!
//! Most of the cost of a small request is waking threads: the server for each request, the caller
//! for each answer. Therefore
//!
//! - at most **one** thread waits for the next request. The kernel wakes no thread in vain, and one
//!   thread serves a lone caller;
//! - it **polls** for the next request for a moment before it sleeps ([`Patience`]), as long as
//!   requests arrive within that time;
//! - it calls another thread to wait in its place only if requests are queued already and either
//!   fewer than [`Servers::limit`] threads have one, or requests have been taking longer than a
//!   wake-up ([`SLOW`]); or if its request may take long and is not from a lone caller (fsyncs of
//!   many callers must run together to share a commit);
//! - it asks the kernel whether requests are queued only if the answer can matter.
//!
//! A [watch](Servers::watch) handles requests that queue behind one that takes unexpectedly long.
//! It ticks only while requests arrive.
//!
//! Invariant: one thread waits for a request, or every thread that is not parked has a request or
//! is starting, and the watch is awake. Locking: one mutex, not held while a request is carried out
//! or read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::counters::{DeviceLoad, Load};
use crate::operations::{Operations, Weight};
use crate::patience::Patience;
use crate::wire::{Buffer, BufferPool, Device, Lending, Reply, Request};

/// Most threads: as many fsyncs can share a commit.
const MAX_THREADS: usize = 40;
/// Threads beyond [`Servers::limit`] for large reads and writes. Each has buffers of that size.
const COPIERS: usize = 4;
/// The interval of the watch.
const TICK: Duration = Duration::from_millis(2);
/// After this time without a request, buffers that are not in use are freed.
const IDLE: Duration = Duration::from_secs(1);
/// If so many ticks pass without a request taken, another thread is called although all that may
/// copy do so: a small request may be queued behind large ones.
const STUCK: u32 = 16;
/// A thread that is not called for so long ends, and its buffer is freed.
const SURPLUS: Duration = Duration::from_secs(5);
/// A request that should be quick and takes longer waits for the disk. To call another thread costs
/// a tenth of that.
const SLOW: Duration = Duration::from_micros(250);
/// When requests were queued or came from two callers: for this many further requests, another
/// thread is called before one that may take long.
const CROWD: u32 = 64;

#[derive(Default)]
struct State {
    threads: usize,
    /// A thread was made and does not run yet. It will wait for requests if no other does.
    starting: bool,
    /// Threads that can be called. The latest is called first: its stack and what its allocator
    /// keeps for it are in use anyway, and threads that are not needed time out.
    parked: Vec<Arc<Condvar>>,
    /// A thread waits for the next request.
    waiting: bool,
    /// Threads with a quick request.
    quick: usize,
    /// Threads with a large read or write.
    copying: usize,
    /// Counts down from [`CROWD`].
    crowd: u32,
    /// Counts down from [`CROWD`] since the last quick request that took longer than [`SLOW`].
    slow: u32,
    /// Thread that sent the last request.
    caller: u32,
    /// The watch sleeps until the next request.
    dozing: bool,
    ended: bool,
    failure: Option<Errno>,
}

impl State {
    /// False if a new thread is to be made.
    fn call_parked(&mut self, most: usize) -> bool {
        if let Some(parked) = self.parked.pop() {
            parked.notify_one();
            return true;
        }
        self.starting || self.ended || self.threads >= most
    }
}

/// All threads of a mount.
pub(crate) struct Servers {
    /// The first thread's, for [`Servers::serve`]: without one there is no mount.
    first: Mutex<Option<Buffer>>,
    buffers: Arc<BufferPool>,
    device: Arc<Device>,
    operations: Arc<Operations>,
    /// Quick requests carried out at the same time.
    limit: usize,
    /// Longest time of polling for the next request.
    spin: Duration,
    state: Mutex<State>,
    ended: Condvar,
    watched: Condvar,
    taken: AtomicU64,
}

impl Servers {
    pub(crate) fn new(
        device: Arc<Device>,
        operations: Arc<Operations>,
        (buffers, first): (Arc<BufferPool>, Buffer),
        limit: usize,
        spin: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            first: Mutex::new(Some(first)),
            buffers,
            device,
            operations,
            limit,
            spin,
            state: Mutex::default(),
            ended: Condvar::new(),
            watched: Condvar::new(),
            taken: AtomicU64::new(0),
        })
    }

    /// Serves until unmounted; all requests are then answered.
    pub(crate) fn serve(self: &Arc<Self>) -> Result<(), Errno> {
        let watch = self.clone();
        let watch = spawn("cairn-fuse-watch", move || watch.watch());
        // Without the watch, requests might wait behind each other. The mount does not fail for
        // lack of this thread.
        if let Err(error) = &watch {
            tracing::warn!(
                "no thread to watch over requests: {}",
                with_remedy(error, "mount again")
            );
        }
        let first = self.first.lock().take().ok_or(Errno::ALREADY)?;
        self.state.lock().threads += 1;
        Server(self.clone()).run(first);
        let mut state = self.state.lock();
        while state.threads > 0 {
            self.ended.wait(&mut state);
        }
        let failure = state.failure;
        drop(state);
        // A panic of the watch has been reported by the panic hook.
        let _ = watch.map(thread::JoinHandle::join);
        failure.map_or(Ok(()), Err)
    }

    /// Parks until this is the thread that waits for requests. False when unmounted, or when there
    /// have been enough other threads for [`SURPLUS`].
    fn become_waiter(&self, call: &Arc<Condvar>) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return false;
            }
            if !state.waiting {
                state.waiting = true;
                return true;
            }
            state.parked.push(call.clone());
            call.wait_for(&mut state, SURPLUS);
            // The caller of a parked thread takes it off the list.
            let left = state.parked.iter().position(|parked| Arc::ptr_eq(parked, call));
            if let Some(at) = left {
                state.parked.remove(at);
                if state.waiting {
                    return false;
                }
            }
        }
    }

    /// Called when this thread has taken a request. Calls another thread to wait if that is worth
    /// it.
    fn take(self: &Arc<Self>, caller: u32, weight: Weight) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let quick = weight == Weight::Quick;
        let mut state = self.state.lock();
        // The kernel's own requests (0) do not count as callers.
        let another = caller != 0 && caller != state.caller;
        let busy = |state: &State| state.quick + 1 >= self.limit && state.slow == 0;
        let matters = !quick || (another || state.crowd > 0) && !busy(&state);
        let queued = matters && self.device.is_readable();
        state.waiting = false;
        state.slow = state.slow.saturating_sub(1);
        state.crowd = if queued || another { CROWD } else { state.crowd.saturating_sub(1) };
        if another {
            state.caller = caller;
        }
        let call = match weight {
            Weight::Quick => {
                let call = queued && !busy(&state);
                state.quick += 1;
                call
            }
            Weight::Copies => {
                state.copying += 1;
                state.crowd > 0 && state.copying < self.copiers()
            }
            Weight::MayTakeLong => state.crowd > 0,
            Weight::NeedsAnother => true,
        };
        if state.dozing {
            state.dozing = false;
            self.watched.notify_one();
        }
        let most = match weight {
            Weight::Quick | Weight::MayTakeLong => MAX_THREADS,
            Weight::Copies => self.copiers(),
            // A request that waits for others must leave threads to serve them.
            Weight::NeedsAnother => usize::MAX,
        };
        let missing = call && !state.call_parked(most);
        drop(state);
        if missing {
            self.call_new();
        }
    }

    /// Threads that carry out large reads and writes at the same time. More would need more memory
    /// and copy no faster.
    fn copiers(&self) -> usize {
        self.limit + COPIERS
    }

    /// Call it without the lock: if the thread cannot be started, the count is lowered.
    fn call_new(self: &Arc<Self>) {
        // The running threads serve the requests.
        let Ok(buffer) = self.buffers.take() else { return };
        {
            let mut state = self.state.lock();
            state.threads += 1;
            state.starting = true;
        }
        let server = Server(self.clone());
        let run = move || {
            server.0.state.lock().starting = false;
            server.run(buffer);
        };
        if let Err(error) = spawn("cairn-fuse", run) {
            self.state.lock().starting = false;
            tracing::debug!("no further thread for requests: {error}");
        }
    }

    /// Called when this thread has answered its request, which took this long.
    fn done(&self, weight: Weight, took: Duration) {
        match weight {
            Weight::Quick => {
                let mut state = self.state.lock();
                state.quick -= 1;
                if took > SLOW {
                    state.slow = CROWD;
                }
            }
            Weight::Copies => self.state.lock().copying -= 1,
            Weight::MayTakeLong | Weight::NeedsAnother => {}
        }
    }

    /// Ends the reading of requests.
    pub(crate) fn end(&self, failure: Option<Errno>) {
        let mut state = self.state.lock();
        state.ended = true;
        state.failure = state.failure.or(failure);
        for parked in state.parked.drain(..) {
            parked.notify_one();
        }
        self.watched.notify_all();
        drop(state);
        self.device.end();
    }

    /// Calls a thread when requests queue up and none has been taken for a tick.
    fn watch(self: Arc<Self>) {
        let (mut before, mut ticks) = (0, 0);
        loop {
            let (waiting, all_copy) = {
                let mut state = self.state.lock();
                self.watched.wait_for(&mut state, TICK);
                if state.ended {
                    return;
                }
                (state.waiting, state.copying >= self.copiers())
            };
            let taken = self.taken.load(Ordering::Relaxed);
            ticks = if taken == before { ticks + 1 } else { 0 };
            if ticks > 0 && waiting {
                self.doze();
            } else if ticks >= if all_copy { STUCK } else { 1 }
                && self.device.is_readable()
                && !self.state.lock().call_parked(MAX_THREADS)
            {
                self.call_new();
            }
            before = taken;
        }
    }

    /// Waits until the next request is taken.
    fn doze(&self) {
        let mut state = self.state.lock();
        state.dozing = state.waiting;
        if state.dozing && !state.ended && self.watched.wait_for(&mut state, IDLE).timed_out() {
            self.buffers.trim();
        }
        while state.dozing && !state.ended {
            self.watched.wait(&mut state);
        }
    }

    pub(crate) fn load(&self) -> Load {
        let queued = self.device.is_readable();
        let counted = &self.device.counted;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let state = self.state.lock();
        Load {
            threads: state.threads,
            idle: state.parked.len() + usize::from(state.waiting),
            queued,
            device: DeviceLoad {
                taken: count(&counted.taken),
                answered: count(&counted.answered),
                late: count(&counted.late),
            },
            ring: None,
        }
    }
}

/// One thread, counted out when it ends.
struct Server(Arc<Servers>);

impl Server {
    fn run(self, buffer: Buffer) {
        let servers = &self.0;
        let mut buffer = Lending::new(buffer, &servers.buffers);
        let mut patience = Patience::new(servers.spin);
        let call = Arc::new(Condvar::new());
        while servers.become_waiter(&call) {
            match patience.next(&servers.device, buffer.room()) {
                Ok(Some(len)) => self.carry_out(&buffer, len, patience.arrived),
                Ok(None) => servers.end(None),
                Err(error) => servers.end(Some(error)),
            }
        }
        drop(buffer);
        servers.buffers.trim();
    }

    fn carry_out(&self, buffer: &Lending, len: usize, arrived: Instant) {
        let servers = &self.0;
        let Some(request) = Request::parse_lendable(buffer, len) else {
            // The kernel sends none of that kind; nobody can be answered.
            tracing::error!(
                "the kernel sent a request of {len} bytes that is not of the FUSE protocol: it is \
                 not answered"
            );
            servers.take(0, Weight::Quick);
            return servers.done(Weight::Quick, Duration::ZERO);
        };
        let weight = servers.operations.weight(&request);
        servers.take(request.header.pid, weight);
        let reply = Reply::new(servers.device.clone(), request.header.unique);
        servers.operations.answer(request, reply);
        servers.done(weight, arrived.elapsed());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_that_parked_last_is_called_and_no_second_one_is_started() {
        let mut state = State::default();
        let [first, last] = [(); 2].map(|()| Arc::new(Condvar::new()));
        state.parked = vec![first.clone(), last];
        assert!(state.call_parked(8));
        assert!(matches!(&state.parked[..], [left] if Arc::ptr_eq(left, &first)));
        assert!(state.call_parked(8));
        assert!(!state.call_parked(8), "a thread is to be started");
        state.starting = true;
        assert!(state.call_parked(8), "it will wait for requests");
    }
}
