//! One ring, and the threads that take turns in serving it.
//!
//! The thread whose turn it is holds the lock, also while it sleeps in the kernel, and gives it up
//! only while it carries out a request. The [`watch`](super::watch) can then take the turn from it;
//! it finds that out when it is done, and waits for a further turn as a spare.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_block::uring::{Arrival, Entry, Ring};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::bell::Bell;
use super::placement;
use super::serve::{Scratch, carry_out};
use super::shared::Shared;
use super::workers::{Independents, Job, Workers};
use crate::operations::Weight;
use crate::wire::abi::{GETATTR_FH, GetattrIn, opcode};
use crate::wire::{MAX_WRITE, Outbox, Request};

/// When requests came from two callers: for this many further requests, those that may take long go
/// to workers.
const CROWD: u32 = 64;
/// Entries of a ring if all are fsyncs: as many can share a commit.
const TOGETHER: usize = 40;
/// Requests of which the kernel may know the file.
const RECENT: usize = 8;
/// INIT has been answered, but the kernel may still be working on it: tries, and their interval.
const TRIES: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(1);

/// One of the kernel's queues.
struct Home {
    queue: u16,
    /// Entries, and those of them in the kernel.
    total: usize,
    in_kernel: usize,
}

/// What the thread with the turn has.
struct Turn {
    ring: Option<Ring>,
    homes: Vec<Home>,
    arrived: VecDeque<Entry>,
    answered: Vec<Entry>,
    /// Number of the turn: it changes when the turn is taken from a thread.
    number: u64,
    /// A thread has the turn.
    taken: bool,
    /// It carries out a request, without the lock.
    executing: bool,
    threads: usize,
    spares: usize,
    /// The connection has ended, and entries come back.
    closing: bool,
    over: bool,
    caller: u32,
    /// Counts down from [`CROWD`].
    crowd: u32,
    /// Nodes of the last requests that may be held; see [`super::nudge`].
    recent: [u64; RECENT],
}

/// What the watch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// One request has kept the thread: another takes its turn.
    Kept,
    Moves,
}

/// What all queues have in common.
pub(super) struct Threads {
    pub(super) shared: Arc<Shared>,
    pub(super) workers: Arc<Workers>,
    pub(super) bell: Arc<Bell>,
}

/// One ring with its entries, and the lock that its threads take in turn.
pub(super) struct Queue {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    bell: Arc<Bell>,
    processor: usize,
    outbox: Arc<Outbox>,
    turn: Mutex<Turn>,
    changed: Condvar,
    /// Requests that were begun by threads of the ring.
    begun: AtomicU64,
    independents: Arc<Independents>,
}

impl Queue {
    pub(super) fn new(
        ring: Ring,
        threads: Threads,
        processor: usize,
        homes: &[placement::Home],
    ) -> Self {
        let homes = homes
            .iter()
            .map(|(queue, entries)| Home { queue: *queue, total: *entries, in_kernel: 0 })
            .collect();
        Self {
            outbox: threads.shared.outbox(ring.waker()),
            shared: threads.shared,
            workers: threads.workers,
            bell: threads.bell,
            processor,
            turn: Mutex::new(Turn {
                ring: Some(ring),
                homes,
                arrived: VecDeque::with_capacity(64),
                answered: Vec::with_capacity(64),
                number: 0,
                taken: false,
                executing: false,
                threads: 0,
                spares: 0,
                closing: false,
                over: false,
                caller: 0,
                crowd: 0,
                recent: [0; RECENT],
            }),
            changed: Condvar::new(),
            begun: AtomicU64::new(0),
            independents: Arc::default(),
        }
    }

    /// Hands the first entries to the kernel. Called by the thread that then runs.
    pub(super) fn register(&self) -> io::Result<()> {
        if !placement::pin(self.processor) {
            let text = format!("no thread may run on processor {}", self.processor);
            return Err(io::Error::other(text));
        }
        let turn = &mut *self.turn.lock();
        let Some(ring) = &mut turn.ring else { return Ok(()) };
        for home in &mut turn.homes {
            for _ in 0..home.total {
                ring.register(new_entry(home.queue)?)?;
                home.in_kernel += 1;
                self.shared.counters.entries.fetch_add(1, Ordering::Relaxed);
            }
        }
        for _ in 0..TRIES {
            ring.submit()?;
            let (mut again, mut failed) = (Vec::new(), None);
            ring.look(|arrival| match arrival {
                Arrival::Request(entry) => turn.arrived.push_back(entry),
                Arrival::Refused(entry, Errno::AGAIN) => again.push(entry),
                Arrival::Refused(_, error) => failed = Some(error),
            });
            for entry in &turn.arrived {
                // Other queues may be ready, and this one has requests.
                count_arrived(&mut turn.homes, &self.shared, entry);
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            if again.is_empty() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            for entry in again {
                ring.register(entry)?;
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Serves in turns until the end.
    pub(super) fn run(self: &Arc<Self>) {
        placement::pin(self.processor);
        let mut scratch = Scratch::new();
        // Dropped after the lock is given up.
        let _ending = Ending(self);
        self.turn.lock().threads += 1;
        self.shared.wait_at_gate();
        let mut turn = self.turn.lock();
        loop {
            while turn.taken && !turn.over {
                turn.spares += 1;
                self.changed.wait(&mut turn);
                turn.spares -= 1;
            }
            if turn.over {
                break;
            }
            turn.taken = true;
            turn.number += 1;
            let number = turn.number;
            self.serve(&mut turn, number, &mut scratch);
        }
        turn.threads -= 1;
    }

    /// Until the turn or the connection ends.
    fn serve(
        self: &Arc<Self>,
        turn: &mut MutexGuard<'_, Turn>,
        number: u64,
        scratch: &mut Scratch,
    ) {
        loop {
            if let Err(error) = self.exchange(turn) {
                self.shared.fail(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                turn.over = true;
            }
            if turn.over {
                self.changed.notify_all();
                return;
            }
            while let Some(entry) = turn.arrived.pop_front() {
                let Some(entry) = self.hand_over(turn, entry) else { continue };
                turn.executing = true;
                self.begun.fetch_add(1, Ordering::SeqCst);
                self.bell.ring();
                let (shared, outbox) = (&*self.shared, &self.outbox);
                MutexGuard::unlocked(turn, || carry_out(shared, outbox, entry, scratch));
                if turn.number != number {
                    return;
                }
                turn.executing = false;
            }
        }
    }

    /// Gives answers to the kernel, and takes requests; sleeps if there are neither.
    fn exchange(&self, turn: &mut Turn) -> io::Result<()> {
        let Some(ring) = &mut turn.ring else {
            turn.over = true;
            return Ok(());
        };
        self.outbox.take(&mut turn.answered);
        for entry in turn.answered.drain(..) {
            let home = home_of(&mut turn.homes, &entry);
            if turn.closing {
                home.total -= 1;
                self.shared.counters.dropped(1);
                continue;
            }
            home.in_kernel += 1;
            self.shared.counters.answered.fetch_add(1, Ordering::Relaxed);
            ring.commit(entry)?;
        }
        if !turn.arrived.is_empty() {
            return Ok(());
        }
        if self.shared.has_ended() || turn.closing && ring.in_kernel() == 0 {
            turn.over = true;
            return ring.submit();
        }
        if !turn.closing {
            self.feed(ring, &mut turn.homes, &turn.recent)?;
        }
        if !self.outbox.fall_asleep() {
            return ring.submit();
        }
        let (homes, arrived, closing) = (&mut turn.homes, &mut turn.arrived, &mut turn.closing);
        let mut failed = None;
        let waited = ring.wait(|arrival| match arrival {
            Arrival::Request(entry) => {
                count_arrived(homes, &self.shared, &entry);
                arrived.push_back(entry);
            }
            Arrival::Refused(entry, error) => {
                let home = home_of(homes, &entry);
                home.total -= 1;
                home.in_kernel -= 1;
                self.shared.counters.entries.fetch_sub(1, Ordering::Relaxed);
                match error {
                    Errno::NOTCONN | Errno::CANCELED | Errno::NODEV | Errno::CONNABORTED => {
                        *closing = true;
                    }
                    Errno::NOMEM if home.total > 0 => {
                        tracing::warn!("the kernel has no memory for an entry");
                    }
                    error => failed = Some(error),
                }
            }
        });
        self.outbox.awake();
        waited.and(failed.map_or(Ok(()), |error| Err(error.into())))
    }

    /// Gives each queue that has no entry in the kernel a further one, if somebody may wait for a
    /// request that needs it.
    fn feed(&self, ring: &mut Ring, homes: &mut [Home], recent: &[u64]) -> io::Result<()> {
        let free: usize = homes.iter().map(|home| home.in_kernel).sum();
        let all: usize = homes.iter().map(|home| home.total).sum();
        let mut starved = false;
        for home in homes.iter_mut().filter(|home| home.in_kernel == 0) {
            starved = true;
            if all - free > self.independents.count() || all < TOGETHER {
                // Without memory, requests wait until an entry comes back.
                let Ok(entry) = new_entry(home.queue) else { continue };
                ring.register(entry)?;
                self.shared.counters.entries.fetch_add(1, Ordering::Relaxed);
                home.total += 1;
                home.in_kernel += 1;
                ring.submit()?;
                self.shared.nudge(usize::from(home.queue), self.processor, recent);
            }
        }
        self.independents.set_starved(starved);
        Ok(())
    }

    /// Gives a request to a worker if it may take long and others would wait for it.
    fn hand_over(self: &Arc<Self>, turn: &mut Turn, entry: Entry) -> Option<Entry> {
        let Some(request) = Request::of(&entry) else { return Some(entry) };
        if request.header.opcode == opcode::NOTIFY_REPLY {
            return Some(entry);
        }
        let weight = self.shared.operations.weight(&request);
        let caller = request.header.pid;
        let independent =
            matches!(request.header.opcode, opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS)
                && weight == Weight::MayTakeLong;
        // The kernel's own requests (0) do not count as callers.
        let another = caller != 0 && caller != turn.caller;
        if another {
            turn.caller = caller;
        }
        turn.crowd = if another { CROWD } else { turn.crowd.saturating_sub(1) };
        // The guard may hold the answer back.
        let asks = request.header.opcode == opcode::GETATTR
            && request.peek::<GetattrIn>().is_some_and(|it| it.getattr_flags & GETATTR_FH != 0);
        let apart = match weight {
            Weight::Quick => false,
            Weight::Copies | Weight::MayTakeLong => turn.crowd > 0 || !turn.arrived.is_empty(),
            Weight::NeedsAnother => true,
        };
        if apart || asks {
            turn.recent.rotate_right(1);
            turn.recent[0] = request.header.nodeid;
        }
        if !apart {
            return Some(entry);
        }
        let independent = independent.then(|| self.independents.clone());
        independent.iter().for_each(|independents| independents.begin());
        self.shared.counters.to_workers.fetch_add(1, Ordering::Relaxed);
        let job = Job { entry, outbox: self.outbox.clone(), independent };
        let refused = self.workers.give(&self.shared, job).err()?;
        refused.independent.iter().for_each(|independents| independents.end(&self.outbox));
        Some(refused.entry)
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether the thread is still kept by the request that it had when `seen` requests had begun.
    pub(super) fn look(self: &Arc<Self>, seen: u64) -> Look {
        // A thread that has the lock is not in a request.
        let Some(mut turn) = self.turn.try_lock() else { return Look::Moves };
        if !turn.executing || self.begun() != seen || turn.over {
            return Look::Moves;
        }
        if turn.spares == 0 {
            let of_thread = self.clone();
            if let Err(error) = self.shared.spawn("cairn-ring", move || of_thread.run()) {
                tracing::debug!("no further thread for a ring: {error}");
                return Look::Kept;
            }
        }
        self.shared.counters.taken_over.fetch_add(1, Ordering::Relaxed);
        turn.number += 1;
        turn.taken = false;
        turn.executing = false;
        // Wake all: the only thread to be woken might be one that waits for the end.
        self.changed.notify_all();
        Look::Kept
    }

    /// Waits until no thread serves the ring.
    pub(super) fn wait_for_end(&self) {
        let mut turn = self.turn.lock();
        while !turn.over {
            self.changed.wait(&mut turn);
        }
    }

    /// Called when all threads have ended: nothing is answered any more. After a failure, that may
    /// be requests that were not carried out.
    pub(super) fn close(&self) {
        let turn = &mut *self.turn.lock();
        let mut left = Vec::new();
        self.outbox.take(&mut left);
        left.append(&mut turn.answered);
        left.extend(turn.arrived.drain(..));
        self.shared.counters.dropped(left.len() as u64);
        turn.ring = None;
    }

    /// All threads, and those without a request.
    pub(super) fn load(&self) -> (usize, usize) {
        if self.outbox.is_sleeping() {
            // Its thread has the lock while it sleeps, so the spares are not counted.
            return (1, 1);
        }
        self.turn.try_lock().map_or((1, 0), |turn| (turn.threads, turn.spares))
    }
}

/// A thread that panics outside of a request serves the ring no more, and nobody may wait for it.
struct Ending<'a>(&'a Queue);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.turn.lock().over = true;
            self.0.changed.notify_all();
        }
    }
}

fn new_entry(queue: u16) -> io::Result<Entry> {
    Ok(Entry::new(queue, MAX_WRITE as usize).map_err(|_| Errno::NOMEM)?)
}

fn home_of<'a>(homes: &'a mut [Home], entry: &Entry) -> &'a mut Home {
    let of = entry.queue();
    homes.iter_mut().find(|home| home.queue == of).expect("an entry of this ring")
}

fn count_arrived(homes: &mut [Home], shared: &Shared, entry: &Entry) {
    home_of(homes, entry).in_kernel -= 1;
    shared.counters.taken.fetch_add(1, Ordering::Relaxed);
}
