//! [`Threads`]: the production runtime. A thread for each daemon, a pool for deferred work, the
//! system's clock.
//!
//! Locking: the pool's queue lock is a leaf; no work runs under it. A panic in a daemon or in
//! deferred work is kept and raised again in every waiter, because its condition may never come
//! true.

#![allow(
    clippy::disallowed_methods,
    reason = "the production runtime is made of the system's threads and clocks"
)]

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::{Daemon, DaemonHandle, Event, NoThread, Progress, Runtime};
use crate::thread::spawn;

/// More workers than processors: deferred work may block on a device or on the journal.
const MAX_WORKERS: usize = 32;
/// An idle worker's thread ends after this long.
const WORKER_IDLE: Duration = Duration::from_secs(10);
/// How soon a waiter notices that a daemon has panicked.
const FAILURE_POLL: Duration = Duration::from_millis(500);

/// Real threads, real time.
pub struct Threads {
    start: Instant,
    pool: Arc<Pool>,
    failure: Arc<Failure>,
}

impl Threads {
    /// A runtime without threads yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let failure = Arc::new(Failure::default());
        Arc::new(Self {
            start: Instant::now(),
            pool: Arc::new(Pool::new(failure.clone())),
            failure,
        })
    }

    fn wait(
        &self,
        event: &Event,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        loop {
            let seen = event.generation();
            if ready() {
                return true;
            }
            self.failure.check();
            let left = deadline.map_or(FAILURE_POLL, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return false;
            }
            event.wait_past(seen, Some(left.min(FAILURE_POLL)));
        }
    }
}

impl Runtime for Threads {
    fn now(&self) -> SystemTime {
        wall_clock()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn random(&self) -> u64 {
        fastrand::u64(..)
    }

    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        self.pool.have_one()?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (stop, wake, failure, name) =
                (stop.clone(), wake.clone(), self.failure.clone(), name.to_owned());
            move || {
                let run = AssertUnwindSafe(|| run_daemon(&*daemon, &wake, &stop));
                if catch_unwind(run).is_err() {
                    failure.set(format!("daemon {name} panicked"));
                }
            }
        };
        let thread = start_thread(name, thread)?;
        Ok(DaemonHandle::new(move || {
            stop.store(true, SeqCst);
            wake.notify();
            join(thread);
        }))
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        self.wait(event, None, ready);
    }

    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.wait(event, Instant::now().checked_add(timeout), ready)
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) {
        self.pool.push(work);
    }

    fn drain_deferred(&self) {
        let Some(last) = self.pool.queue.lock().outstanding.last().copied() else { return };
        self.wait_until(&self.pool.finished, &mut || {
            self.pool.queue.lock().outstanding.first().is_none_or(|oldest| *oldest > last)
        });
    }
}

impl Drop for Threads {
    /// Runs what is still deferred, then ends the workers.
    fn drop(&mut self) {
        let workers = {
            let mut queue = self.pool.queue.lock();
            queue.closing = true;
            std::mem::take(&mut queue.workers)
        };
        self.pool.added.notify();
        workers.into_iter().for_each(join);
    }
}

/// The coarse clock, with which Linux stamps files. The kernel stamps files of a FUSE mount, too,
/// while it has their pages. With a finer clock here, a file that is written later could look
/// older.
#[cfg(target_os = "linux")]
fn wall_clock() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    match (seconds, nanoseconds) {
        (Ok(seconds), Ok(nanoseconds)) => UNIX_EPOCH + Duration::new(seconds, nanoseconds),
        // Before 1970.
        _ => SystemTime::now(),
    }
}

#[cfg(not(target_os = "linux"))]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NoThread> {
    spawn(name, body).map_err(|source| NoThread { name: name.to_owned(), source })
}

/// Waits for a thread's end, unless it is the caller's own: the last owner of a volume may be one
/// of its daemons.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        thread.join().expect("panics are caught inside the thread");
    }
}

fn run_daemon(daemon: &dyn Daemon, wake: &Event, stop: &AtomicBool) {
    loop {
        // Read before the step, so that a notification during the step is not missed.
        let seen = wake.generation();
        if stop.load(SeqCst) {
            return;
        }
        match daemon.step() {
            Progress::Worked => {}
            Progress::Idle(timeout) => {
                wake.wait_past(seen, timeout);
            }
            Progress::Done => return,
        }
    }
}

#[derive(Default)]
struct Failure(Mutex<Option<String>>);

impl Failure {
    fn set(&self, what: String) {
        self.0.lock().get_or_insert(what);
    }

    fn check(&self) {
        let failure = self.0.lock().clone();
        if let Some(what) = failure {
            panic!("{what}; what this thread waits for may never come");
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Work)>,
    /// Numbers of the pieces that wait or run.
    outstanding: BTreeSet<u64>,
    next: u64,
    workers: Vec<JoinHandle<()>>,
    idle: usize,
    closing: bool,
    /// Workers that have not decided to end.
    alive: usize,
    /// The last worker does not end when it has nothing to do.
    keep_one: bool,
}

struct Pool {
    queue: Mutex<Queue>,
    added: Event,
    finished: Event,
    failure: Arc<Failure>,
}

impl Pool {
    fn new(failure: Arc<Failure>) -> Self {
        Self { queue: Mutex::default(), added: Event::new(), finished: Event::new(), failure }
    }

    fn push(self: &Arc<Self>, work: Work) {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.outstanding.insert(number);
        queue.waiting.push_back((number, work));
        // An idle worker may have been woken for an earlier piece already: count the pieces, not
        // the workers.
        if queue.waiting.len() > queue.idle && queue.alive < MAX_WORKERS {
            match self.add_worker(&mut queue) {
                Ok(()) => {}
                // One of the running workers will take it.
                Err(_) if queue.alive > 0 => {}
                // This cannot happen on a volume: its first daemon has started a worker that stays.
                Err(error) => panic!("{error}"),
            }
        }
        drop(queue);
        self.added.notify();
    }

    /// Starts a worker if there is none. From then on one worker stays, even if the system refuses
    /// further threads.
    fn have_one(self: &Arc<Self>) -> Result<(), NoThread> {
        let mut queue = self.queue.lock();
        if queue.alive == 0 {
            self.add_worker(&mut queue)?;
        }
        queue.keep_one = true;
        Ok(())
    }

    fn add_worker(self: &Arc<Self>, queue: &mut Queue) -> Result<(), NoThread> {
        queue.workers.retain(|worker| !worker.is_finished());
        let pool = self.clone();
        queue.workers.push(start_thread("cairn-worker", move || pool.run())?);
        queue.alive += 1;
        Ok(())
    }

    fn run(&self) {
        while let Some((number, work)) = self.next() {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                self.failure.set("deferred work panicked".to_owned());
            }
            self.queue.lock().outstanding.remove(&number);
            self.finished.notify();
        }
    }

    /// The next piece; none if the worker should end.
    fn next(&self) -> Option<(u64, Work)> {
        let mut rested = false;
        loop {
            let seen = {
                let mut queue = self.queue.lock();
                if let Some(piece) = queue.waiting.pop_front() {
                    return Some(piece);
                }
                if queue.closing || (rested && !(queue.keep_one && queue.alive == 1)) {
                    queue.alive -= 1;
                    return None;
                }
                queue.idle += 1;
                self.added.generation()
            };
            rested = !self.added.wait_past(seen, Some(WORKER_IDLE));
            self.queue.lock().idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
