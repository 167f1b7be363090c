use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::*;

type Trace = Arc<Mutex<Vec<(u64, Duration)>>>;

/// Works `left` times with pauses, and writes down when.
struct Worker {
    number: u64,
    left: AtomicU64,
    pause: Option<Duration>,
    trace: Trace,
    runtime: Arc<Simulated>,
}

impl Daemon for Worker {
    fn step(&self) -> Progress {
        if self.left.load(SeqCst) == 0 {
            return Progress::Done;
        }
        self.left.fetch_sub(1, SeqCst);
        self.trace.lock().push((self.number, self.runtime.monotonic()));
        self.pause.map_or(Progress::Worked, |pause| Progress::Idle(Some(pause)))
    }
}

fn run(seed: u64) -> (Vec<(u64, Duration)>, u32) {
    let runtime = Simulated::new(seed);
    let trace = Trace::default();
    let handles: Vec<_> = (0..4)
        .map(|number| {
            let pause = (number % 2 == 1).then_some(Duration::from_micros(3));
            let (trace, runtime_) = (trace.clone(), runtime.clone());
            let worker =
                Worker { number, left: AtomicU64::new(25), pause, trace, runtime: runtime_ };
            runtime.spawn("worker", Arc::new(Event::new()), Arc::new(worker)).unwrap()
        })
        .collect();
    for number in 4..8 {
        let (trace, own) = (trace.clone(), runtime.clone());
        runtime.defer(Box::new(move || trace.lock().push((number, own.monotonic()))));
    }
    runtime.wait_until(&Event::new(), &mut || trace.lock().len() == 104);
    drop(handles);
    let trace = trace.lock().clone();
    (trace, runtime.fingerprint())
}

#[test]
fn timestamps_of_a_standing_clock_do_not_change() {
    for seconds in [1_700_000_000, -5] {
        let (one, other) = (Simulated::standing_at(seconds), Simulated::standing_at(seconds));
        let before = one.now();
        one.advance(Duration::from_secs(100));
        assert_eq!(one.now(), before);
        assert!(one.monotonic() >= Duration::from_secs(100));
        assert_eq!(one.random(), other.random());
    }
}

#[test]
fn one_seed_gives_one_course_and_seeds_differ() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    let courses: std::collections::HashSet<u32> = (0..20).map(|seed| run(seed).1).collect();
    assert_eq!(courses.len(), 20);
}

#[test]
fn every_daemon_gets_its_turns() {
    let (trace, _) = run(3);
    for number in 0..8 {
        let turns = trace.iter().filter(|(who, _)| *who == number).count();
        assert_eq!(turns, if number < 4 { 25 } else { 1 });
    }
    assert!(trace.windows(2).all(|pair| pair[0].1 <= pair[1].1), "time went back");
}

#[test]
fn the_clock_jumps_over_idle_time_to_the_next_deadline() {
    let runtime = Simulated::new(1);
    let trace = Trace::default();
    let hour = Duration::from_secs(3600);
    let worker = Worker {
        number: 0,
        left: AtomicU64::new(9),
        pause: Some(hour),
        trace: trace.clone(),
        runtime: runtime.clone(),
    };
    let wake = Arc::new(Event::new());
    let _handle = runtime.spawn("hourly", wake.clone(), Arc::new(worker)).unwrap();
    let before = runtime.now();
    assert!(!runtime.wait_until_timeout(&Event::new(), hour * 2 + hour / 2, &mut || false));
    assert_eq!(runtime.now().duration_since(before).unwrap(), hour * 2 + hour / 2);
    assert_eq!(trace.lock().len(), 3);
    wake.notify();
    runtime.run_until_idle();
    assert_eq!(trace.lock().len(), 4, "a notification does not wait for the deadline");
}

#[test]
#[should_panic(expected = "simulated deadlock with seed 77")]
fn waiting_for_what_never_comes_panics_with_the_seed() {
    let runtime = Simulated::new(77);
    let worker = Worker {
        number: 0,
        left: AtomicU64::new(3),
        pause: None,
        trace: Trace::default(),
        runtime: runtime.clone(),
    };
    let _handle = runtime.spawn("finite", Arc::new(Event::new()), Arc::new(worker)).unwrap();
    runtime.wait_until(&Event::new(), &mut || false);
}

/// Asks another daemon for something and waits for it within its own step.
struct Asking {
    runtime: Arc<Simulated>,
    wake_other: Arc<Event>,
    asked: AtomicU64,
    answered: Arc<AtomicU64>,
}

impl Daemon for Asking {
    fn step(&self) -> Progress {
        self.asked.fetch_add(1, SeqCst);
        let before = self.answered.load(SeqCst);
        self.wake_other.notify();
        self.runtime.wait_until(&self.wake_other, &mut || self.answered.load(SeqCst) > before);
        Progress::Idle(None)
    }
}

struct Answering(Arc<AtomicU64>);

impl Daemon for Answering {
    fn step(&self) -> Progress {
        self.0.fetch_add(1, SeqCst);
        Progress::Idle(None)
    }
}

#[test]
fn a_daemon_may_wait_for_another_but_is_not_entered_twice() {
    for seed in 0..50 {
        let runtime = Simulated::new(seed);
        let answered = Arc::new(AtomicU64::new(0));
        let (wake, wake_other) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let asking = Arc::new(Asking {
            runtime: runtime.clone(),
            wake_other: wake_other.clone(),
            asked: AtomicU64::new(0),
            answered: answered.clone(),
        });
        let one = runtime.spawn("asking", wake.clone(), asking.clone()).unwrap();
        let two =
            runtime.spawn("answering", wake_other, Arc::new(Answering(answered.clone()))).unwrap();
        runtime.run_until_idle();
        wake.notify();
        wake.notify();
        runtime.run_until_idle();
        assert_eq!(
            asking.asked.load(SeqCst),
            2,
            "notifications before a step merge, with seed {seed}"
        );
        one.stop();
        wake.notify();
        runtime.run_until_idle();
        assert_eq!(asking.asked.load(SeqCst), 2, "a stopped daemon does nothing, with seed {seed}");
        two.stop();
    }
}

#[test]
fn a_step_runs_without_the_ranks_of_the_waiter() {
    let runtime = Simulated::new(5);
    let low = Arc::new(ranked_lock::Mutex::new(ranked_lock::Rank::InodeData, 0));
    let high = ranked_lock::Mutex::new(ranked_lock::Rank::Folio, ());
    let guard = high.lock();
    let shared = low.clone();
    runtime.defer(Box::new(move || *shared.lock() += 1));
    runtime.drain_deferred();
    drop(guard);
    assert_eq!(*low.lock(), 1);
}

#[test]
fn draining_does_not_wait_for_what_is_deferred_later() {
    let runtime = Simulated::new(6);
    let count = Arc::new(AtomicU64::new(0));
    fn endless(runtime: &Arc<Simulated>, count: &Arc<AtomicU64>) {
        let (own, counter) = (runtime.clone(), count.clone());
        runtime.defer(Box::new(move || {
            counter.fetch_add(1, SeqCst);
            endless(&own, &counter);
        }));
    }
    endless(&runtime, &count);
    runtime.drain_deferred();
    assert!(count.load(SeqCst) >= 1);
}
