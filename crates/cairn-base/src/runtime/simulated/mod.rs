//! [`Simulated`]: one thread, a virtual clock, and a seed that decides everything else.
//!
//! Code that waits runs steps until its condition holds. Each step belongs to a daemon or to
//! deferred work, which the seed draws from those that can run. If none can run, the clock jumps to
//! the next deadline. If there is no deadline either, this is a deadlock, and the runtime panics
//! with its seed.
//!
//! Steps run on the waiter's stack: a daemon's own wait runs the others, never the daemon itself or
//! those below it. Two consequences. A step must not need a lock that the waiter holds; with ranked
//! locks this panics (see `crate::ranked_lock::isolated`). And a wait inside a step must not
//! depend on work further down the stack.
//!
//! Locking: the state's lock is a leaf and is never held while a step runs. Only the thread that
//! created the runtime may wait or step.

use std::panic::Location;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::{Daemon, DaemonHandle, Event, NoThread, Progress, Runtime};
use crate::ranked_lock;

/// Each step takes this long on the virtual clock, so that endless work also ends every timeout.
const STEP_TIME: Duration = Duration::from_micros(1);
/// Virtual time starts here: 2024-01-01 00:00:00 UTC.
const START: Duration = Duration::from_secs(1_704_067_200);
/// A wait that needs more steps than this counts as a livelock.
const MAX_STEPS_PER_WAIT: u64 = 50_000_000;

/// The deterministic runtime.
pub struct Simulated {
    seed: u64,
    owner: ThreadId,
    shared: Arc<Mutex<State>>,
}

type Work = Box<dyn FnOnce() + Send>;

struct State {
    random: fastrand::Rng,
    clock: Duration,
    /// In the order of spawning, so that the draw does not depend on addresses.
    daemons: Vec<Task>,
    next_daemon: u64,
    deferred: Vec<(u64, Work)>,
    next_deferred: u64,
    /// Numbers of deferred pieces that run now, on the stack.
    running_deferred: Vec<u64>,
    steps: u64,
    fingerprint: u32,
    /// Timestamps are this, however far the clock moves on.
    standing_at: Option<SystemTime>,
}

struct Task {
    id: u64,
    wake: Arc<Event>,
    daemon: Arc<dyn Daemon>,
    running: bool,
    /// Notifications before its last step; `None` if it wants to run without one.
    seen: Option<u64>,
    deadline: Option<Duration>,
}

impl Task {
    fn can_run(&self, clock: Duration) -> bool {
        let notified = self.seen != Some(self.wake.generation());
        !self.running && (notified || self.deadline.is_some_and(|deadline| deadline <= clock))
    }
}

enum Step {
    Daemon(u64, Arc<dyn Daemon>),
    Deferred(u64, Work),
}

impl Simulated {
    /// A runtime whose every decision follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let state = State {
            random: fastrand::Rng::with_seed(seed),
            clock: Duration::ZERO,
            daemons: Vec::new(),
            next_daemon: 0,
            deferred: Vec::new(),
            next_deferred: 0,
            running_deferred: Vec::new(),
            steps: 0,
            fingerprint: 0,
            standing_at: None,
        };
        Arc::new(Self {
            seed,
            owner: std::thread::current().id(),
            shared: Arc::new(Mutex::new(state)),
        })
    }

    /// A runtime with one timestamp for everything, `seconds` since 1970, from which its decisions
    /// follow, too. Two runs make the same image, byte for byte.
    #[must_use]
    pub fn standing_at(seconds: i64) -> Arc<Self> {
        let this = Self::new(seconds.cast_unsigned());
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let time =
            if seconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
        this.shared.lock().standing_at = Some(time.unwrap_or(epoch));
        this
    }

    /// The seed it was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Steps run so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.shared.lock().steps
    }

    /// A checksum over which step ran when: two runs took the same course if it is equal.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        self.shared.lock().fingerprint
    }

    /// Runs one step if anybody can work. Tests call it between operations to let the daemons
    /// interfere.
    pub fn step(&self) -> bool {
        assert_eq!(
            self.owner,
            std::thread::current().id(),
            "the simulator belongs to the thread that created it"
        );
        let Some(step) = self.shared.lock().draw() else { return false };
        let _report = ReportSeed(self.seed);
        match step {
            Step::Daemon(id, daemon) => {
                let progress = ranked_lock::isolated(|| daemon.step());
                self.shared.lock().daemon_stepped(id, progress);
            }
            Step::Deferred(number, work) => {
                ranked_lock::isolated(work);
                self.shared.lock().running_deferred.retain(|running| *running != number);
            }
        }
        true
    }

    /// Runs up to `most` steps, a number drawn by the seed: a random pause in which the daemons get
    /// ahead.
    pub fn some_steps(&self, most: u32) {
        let steps = self.shared.lock().random.u32(0..=most);
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Runs steps until none can run before the next deadline.
    pub fn run_until_idle(&self) {
        while self.step() {}
    }

    /// Advances the clock and runs the steps that become due.
    pub fn advance(&self, time: Duration) {
        self.wait_until_timeout(&Event::new(), time, &mut || false);
    }

    #[track_caller]
    fn wait(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> bool {
        let caller = Location::caller();
        let deadline = timeout.map(|timeout| self.monotonic().saturating_add(timeout));
        for _ in 0..MAX_STEPS_PER_WAIT {
            if ready() {
                return true;
            }
            if deadline.is_some_and(|deadline| self.monotonic() >= deadline) {
                return false;
            }
            if !self.step() && !self.shared.lock().jump(deadline) {
                panic!(
                    "simulated deadlock with seed {}: no task can run, waiting at {caller}",
                    self.seed
                );
            }
        }
        panic!(
            "simulated livelock with seed {}: no end after {MAX_STEPS_PER_WAIT} steps",
            self.seed
        );
    }
}

/// Says which seed to replay when a step panics.
struct ReportSeed(u64);

impl Drop for ReportSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a simulated step panicked; replay with seed {}", self.0);
        }
    }
}

impl State {
    /// Draws one of the steps that can run and marks it as running.
    fn draw(&mut self) -> Option<Step> {
        let ready: Vec<usize> =
            (0..self.daemons.len()).filter(|at| self.daemons[*at].can_run(self.clock)).collect();
        let choices = ready.len() + self.deferred.len();
        if choices == 0 {
            return None;
        }
        let choice = self.random.usize(..choices);
        self.steps += 1;
        self.clock += STEP_TIME;
        let step = match ready.get(choice) {
            Some(at) => {
                let task = &mut self.daemons[*at];
                task.running = true;
                task.seen = Some(task.wake.generation());
                Step::Daemon(task.id, task.daemon.clone())
            }
            None => {
                let (number, work) = self.deferred.remove(choice - ready.len());
                self.running_deferred.push(number);
                Step::Deferred(number, work)
            }
        };
        self.note(&step);
        Some(step)
    }

    fn note(&mut self, step: &Step) {
        let (kind, number) = match step {
            Step::Daemon(id, _) => (0_u8, *id),
            Step::Deferred(number, _) => (1, *number),
        };
        for part in [&[kind][..], &number.to_le_bytes(), &self.clock.as_nanos().to_le_bytes()] {
            self.fingerprint = crate::checksum::crc32c(self.fingerprint, part);
        }
    }

    fn daemon_stepped(&mut self, id: u64, progress: Progress) {
        let clock = self.clock;
        // A daemon that was stopped during its step is gone already.
        let Some(at) = self.daemons.iter().position(|task| task.id == id) else { return };
        let task = &mut self.daemons[at];
        task.running = false;
        match progress {
            Progress::Worked => task.seen = None,
            Progress::Idle(timeout) => {
                task.deadline = timeout.map(|timeout| clock.saturating_add(timeout))
            }
            Progress::Done => drop(self.daemons.remove(at)),
        }
    }

    /// Advances the clock to the next deadline. False if there is none.
    fn jump(&mut self, deadline: Option<Duration>) -> bool {
        let daemons =
            self.daemons.iter().filter(|task| !task.running).filter_map(|task| task.deadline);
        let next = daemons.chain(deadline).min();
        if let Some(next) = next {
            self.clock = self.clock.max(next);
        }
        next.is_some()
    }
}

impl Runtime for Simulated {
    fn now(&self) -> SystemTime {
        let state = self.shared.lock();
        state.standing_at.unwrap_or(SystemTime::UNIX_EPOCH + START + state.clock)
    }

    fn monotonic(&self) -> Duration {
        self.shared.lock().clock
    }

    fn random(&self) -> u64 {
        self.shared.lock().random.u64(..)
    }

    fn spawn(
        &self,
        _name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        let mut state = self.shared.lock();
        let id = state.next_daemon;
        state.next_daemon += 1;
        state.daemons.push(Task { id, wake, daemon, running: false, seen: None, deadline: None });
        let shared = Arc::downgrade(&self.shared);
        Ok(DaemonHandle::new(move || {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.lock();
            let task = state
                .daemons
                .iter()
                .position(|task| task.id == id)
                .map(|at| state.daemons.remove(at));
            drop(state);
            // Outside the lock: the daemon may be the last owner of anything, deferred work and
            // daemons included.
            drop(task);
        }))
    }

    #[track_caller]
    fn wait_until(&self, _event: &Event, ready: &mut dyn FnMut() -> bool) {
        self.wait(None, ready);
    }

    #[track_caller]
    fn wait_until_timeout(
        &self,
        _event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.wait(Some(timeout), ready)
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) {
        let mut state = self.shared.lock();
        let number = state.next_deferred;
        state.next_deferred += 1;
        state.deferred.push((number, work));
    }

    fn drain_deferred(&self) {
        let end = self.shared.lock().next_deferred;
        self.wait(None, &mut || {
            let state = self.shared.lock();
            let mut numbers =
                state.deferred.iter().map(|(number, _)| number).chain(&state.running_deferred);
            numbers.all(|number| *number >= end)
        });
    }
}

#[cfg(test)]
mod tests;
