//! [`ModelRuntime`]: threads that live in the time of a model.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use cairn_base::runtime::{Daemon, DaemonHandle, Event, NoThread, Progress, Runtime};
use cairn_base::thread::spawn;
use parking_lot::Mutex;

use super::model::Model;
use super::time::Clock;

/// The time of a model begins here: 2024-01-01 00:00:00 UTC.
const START: Duration = Duration::from_secs(1_704_067_200);

/// A thread for each daemon, and one for deferred work.
pub(crate) struct ModelRuntime {
    model: Arc<Model>,
    random: AtomicU64,
    deferred: Arc<Deferred>,
    worker: Mutex<Option<DaemonHandle>>,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Deferred {
    waiting: Mutex<VecDeque<Work>>,
    added: Arc<Event>,
    /// Pieces added and done so far.
    counts: Mutex<(u64, u64)>,
    done: Event,
}

impl Daemon for Deferred {
    fn step(&self) -> Progress {
        let work = self.waiting.lock().pop_front();
        let Some(work) = work else { return Progress::Idle(None) };
        work();
        self.counts.lock().1 += 1;
        self.done.notify();
        Progress::Worked
    }
}

impl ModelRuntime {
    /// A runtime whose random numbers follow from `seed`.
    pub(crate) fn new(model: Arc<Model>, seed: u64) -> Arc<Self> {
        let deferred = Arc::default();
        Arc::new(Self { model, random: AtomicU64::new(seed), deferred, worker: Mutex::new(None) })
    }

    fn start(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (free, model) = (self.model.seat(), self.model.clone());
        let body = {
            let (stop, wake) = (stop.clone(), wake.clone());
            move || {
                let _seated = free.sit();
                run(&model, &*daemon, &wake, &stop);
            }
        };
        let thread =
            spawn(name, body).map_err(|source| NoThread { name: name.to_owned(), source })?;
        Ok(DaemonHandle::new(move || {
            stop.store(true, SeqCst);
            wake.notify();
            if thread.thread().id() != std::thread::current().id() {
                thread.join().expect("a daemon does not panic");
            }
        }))
    }
}

fn run(model: &Model, daemon: &dyn Daemon, wake: &Event, stop: &AtomicBool) {
    loop {
        // Read before the step, so that a notification during the step is not missed.
        let seen = wake.generation();
        if stop.load(SeqCst) {
            return;
        }
        match daemon.step() {
            Progress::Worked => {}
            Progress::Idle(timeout) => {
                let deadline = timeout.map(|timeout| model.now().saturating_add(timeout));
                model.wait(wake, deadline, &mut || wake.generation() != seen);
            }
            Progress::Done => return,
        }
    }
}

impl Runtime for ModelRuntime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + START + self.model.now()
    }

    fn monotonic(&self) -> Duration {
        self.model.now()
    }

    fn random(&self) -> u64 {
        // SplitMix64.
        let mut value = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        self.start(name, wake, daemon)
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        self.model.wait(event, None, ready);
    }

    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.model.wait(event, Some(self.model.now().saturating_add(timeout)), ready)
    }

    fn defer(&self, work: Work) {
        self.deferred.counts.lock().0 += 1;
        self.deferred.waiting.lock().push_back(work);
        let mut worker = self.worker.lock();
        if worker.is_none() {
            let daemon = self.deferred.clone();
            let started = self.start("cairn-worker", self.deferred.added.clone(), daemon);
            *worker = Some(started.expect("the system has a thread for the experiment"));
        }
        drop(worker);
        self.deferred.added.notify();
    }

    fn drain_deferred(&self) {
        let added = self.deferred.counts.lock().0;
        self.wait_until(&self.deferred.done, &mut || self.deferred.counts.lock().1 >= added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_clock_jumps_when_all_sleep() {
        let model = Model::new();
        let seats: Vec<_> = (1..=3).map(|number| (number, model.seat())).collect();
        std::thread::scope(|scope| {
            for (number, seat) in seats {
                let model = &model;
                scope.spawn(move || {
                    let _seated = seat.sit();
                    for round in 1..=100 {
                        let time = SECOND * number * round;
                        model.sleep_until(time);
                        assert_eq!(model.now(), time);
                    }
                });
            }
        });
        assert_eq!(model.now(), SECOND * 300);
    }

    #[test]
    fn a_thread_that_waits_for_a_lock_does_not_stop_the_clock() {
        let model = Model::new();
        let lock = Mutex::new(());
        let seats = [model.seat(), model.seat()];
        std::thread::scope(|scope| {
            for seat in seats {
                scope.spawn(|| {
                    let _seated = seat.sit();
                    for _ in 0..5 {
                        let _guard = lock.lock();
                        model.sleep_until(model.now() + SECOND);
                    }
                });
            }
        });
        assert_eq!(model.now(), SECOND * 10);
    }

    struct Counting(AtomicU64, Arc<Event>);

    impl Daemon for Counting {
        fn step(&self) -> Progress {
            self.0.fetch_add(1, SeqCst);
            self.1.notify();
            Progress::Idle(Some(SECOND))
        }
    }

    #[test]
    fn daemons_and_deferred_work_live_in_the_models_time() {
        let model = Model::new();
        let runtime = ModelRuntime::new(model.clone(), 1);
        let _seated = model.seat().sit();
        let event = Arc::new(Event::new());
        let counting = Arc::new(Counting(AtomicU64::new(0), event.clone()));
        let handle = runtime.spawn("counting", Arc::new(Event::new()), counting.clone()).unwrap();
        runtime.wait_until(&event, &mut || counting.0.load(SeqCst) >= 10);
        handle.stop();
        assert_eq!(model.now(), SECOND * 9);
        let event = Event::new();
        assert!(!runtime.wait_until_timeout(&event, SECOND, &mut || false));
        assert_eq!(model.now(), SECOND * 10);
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        runtime.defer(Box::new(move || seen.store(true, SeqCst)));
        runtime.drain_deferred();
        assert!(ran.load(SeqCst));
    }
}
