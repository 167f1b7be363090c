use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc;

use super::*;

/// Counts up to what it was told, one a step.
#[derive(Default)]
struct Counting {
    target: AtomicU64,
    done: AtomicU64,
    inside: AtomicUsize,
    changed: Event,
}

impl Daemon for Counting {
    fn step(&self) -> Progress {
        assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "two steps at once");
        let behind = self.done.load(SeqCst) < self.target.load(SeqCst);
        if behind {
            self.done.fetch_add(1, SeqCst);
            self.changed.notify();
        }
        self.inside.fetch_sub(1, SeqCst);
        if behind { Progress::Worked } else { Progress::Idle(None) }
    }
}

#[test]
fn a_daemon_misses_no_notification_from_many_threads() {
    let runtime = Threads::new();
    let (daemon, wake) = (Arc::new(Counting::default()), Arc::new(Event::new()));
    let handle = runtime.spawn("counting", wake.clone(), daemon.clone()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mine = daemon.target.fetch_add(1, SeqCst) + 1;
                    wake.notify();
                    runtime.wait_until(&daemon.changed, &mut || daemon.done.load(SeqCst) >= mine);
                }
            });
        }
    });
    handle.stop();
    assert_eq!(daemon.done.load(SeqCst), 2_000);
    daemon.target.fetch_add(1, SeqCst);
    wake.notify();
    assert_eq!(daemon.done.load(SeqCst), 2_000, "a stopped daemon does nothing");
}

struct Ticking(AtomicU64, Event);

impl Daemon for Ticking {
    fn step(&self) -> Progress {
        self.1.notify();
        if self.0.fetch_add(1, SeqCst) == 3 {
            Progress::Done
        } else {
            Progress::Idle(Some(Duration::from_millis(1)))
        }
    }
}

#[test]
fn an_idle_daemon_runs_again_by_itself_until_it_is_done() {
    let runtime = Threads::new();
    let daemon = Arc::new(Ticking(AtomicU64::new(0), Event::new()));
    let wake = Arc::new(Event::new());
    let handle = runtime.spawn("ticking", wake.clone(), daemon.clone()).unwrap();
    runtime.wait_until(&daemon.1, &mut || daemon.0.load(SeqCst) == 4);
    wake.notify();
    handle.stop();
    assert_eq!(daemon.0.load(SeqCst), 4);
}

#[test]
fn a_wait_gives_up_when_told() {
    let runtime = Threads::new();
    let event = Event::new();
    assert!(!runtime.wait_until_timeout(&event, Duration::from_millis(2), &mut || false));
    assert!(runtime.wait_until_timeout(&event, Duration::ZERO, &mut || true));
}

#[test]
fn draining_waits_for_all_deferred_before_it() {
    let runtime = Threads::new();
    let done = Arc::new(AtomicU64::new(0));
    for n in 0..200 {
        let done = done.clone();
        runtime.defer(Box::new(move || {
            if n % 16 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            done.fetch_add(1, SeqCst);
        }));
    }
    runtime.drain_deferred();
    assert_eq!(done.load(SeqCst), 200);
}

#[test]
fn deferred_work_may_wait_for_deferred_work() {
    let runtime = Threads::new();
    let (sender, receiver) = mpsc::channel();
    runtime.defer(Box::new(move || {
        receiver.recv().expect("the second piece runs while this one waits")
    }));
    runtime.defer(Box::new(move || sender.send(()).expect("the first piece listens")));
    runtime.drain_deferred();
}

#[test]
fn the_end_of_the_runtime_runs_what_is_deferred() {
    let done = Arc::new(AtomicU64::new(0));
    let runtime = Threads::new();
    for _ in 0..100 {
        let (done, own) = (done.clone(), runtime.clone());
        runtime.defer(Box::new(move || {
            done.fetch_add(1, SeqCst);
            drop(own);
        }));
    }
    runtime.drain_deferred();
    drop(runtime);
    assert_eq!(done.load(SeqCst), 100);
}

struct Broken;

impl Daemon for Broken {
    fn step(&self) -> Progress {
        panic!("a broken invariant")
    }
}

#[test]
#[should_panic(expected = "daemon broken panicked")]
fn a_wait_for_a_dead_daemon_ends() {
    let runtime = Threads::new();
    let _handle = runtime.spawn("broken", Arc::new(Event::new()), Arc::new(Broken)).unwrap();
    runtime.wait_until(&Event::new(), &mut || false);
}

/// A daemon whose step drops the last owner of its own handle.
struct SelfStopping(Mutex<Option<DaemonHandle>>, Arc<Event>);

impl Daemon for SelfStopping {
    fn step(&self) -> Progress {
        match self.0.lock().take() {
            Some(handle) => drop(handle),
            None => return Progress::Idle(Some(Duration::from_millis(1))),
        }
        self.1.notify();
        Progress::Idle(None)
    }
}

#[test]
fn a_daemon_that_drops_its_own_handle_does_not_wait_for_itself() {
    let runtime = Threads::new();
    let done = Arc::new(Event::new());
    let daemon = Arc::new(SelfStopping(Mutex::new(None), done.clone()));
    let handle = runtime.spawn("self-stopping", Arc::new(Event::new()), daemon.clone()).unwrap();
    *daemon.0.lock() = Some(handle);
    runtime.wait_until(&done, &mut || done.generation() == 1);
}
