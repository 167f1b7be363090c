//! The queue of merged checkpoints under a model checker: it tries every interleaving of a few
//! requesters and a daemon that works, sleeps and ends. A lost wake-up is a deadlock. A request
//! that is served by work that began before it is a failed assertion.

#[path = "../../src/checkpoint/queue.rs"]
mod queue;
mod sync;

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;

use queue::Queue;
use sync::Event;

/// Work that covers what was done before it began. Each requester does something before its
/// request.
struct Volume {
    queue: Queue<usize, usize>,
    done: AtomicUsize,
    served: AtomicUsize,
    stop: AtomicBool,
}

impl Volume {
    fn new() -> Arc<Self> {
        let (done, served, stop) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { queue: Queue::new(), done, served, stop })
    }

    fn serve(&self) {
        let Some(batch) = self.queue.detach() else { return };
        // The checkpoint has everything that was done so far.
        let held = self.done.load(SeqCst);
        assert!(batch.iter().all(|ticket| ticket.request <= held), "served by what began before");
        self.served.fetch_add(batch.len(), SeqCst);
        self.queue.answer(batch, &held);
    }

    fn request(&self) {
        let mine = self.done.fetch_add(1, SeqCst) + 1;
        let held = self.queue.ask(mine, Event::wait_until, || self.serve());
        assert!(held >= mine);
    }

    /// The loop in which a runtime runs the daemon.
    fn daemon(&self) {
        loop {
            let seen = self.queue.arrived.generation();
            if self.stop.load(SeqCst) {
                return;
            }
            match self.queue.waiting() {
                0 => self.queue.arrived.wait_past(seen),
                _ => self.serve(),
            }
        }
    }

    fn start(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let volume = self.clone();
        let daemon = thread::spawn(move || volume.daemon());
        self.queue.daemon_started();
        daemon
    }

    fn stop(&self, daemon: thread::JoinHandle<()>) {
        self.queue.daemon_stopped();
        self.stop.store(true, SeqCst);
        self.queue.arrived.notify();
        daemon.join().unwrap();
        self.serve();
        Event::wait_until(&self.queue.changed, &mut || self.queue.is_empty());
    }

    fn ask_from(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let volume = self.clone();
        thread::spawn(move || volume.request())
    }
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    // More forced switches have found no further error.
    model.preemption_bound = Some(if std::env::var_os("CAIRN_DEEP").is_some() { 4 } else { 2 });
    model.check(body);
}

#[test]
fn one_daemon_serves_all_waiters() {
    check(|| {
        let volume = Volume::new();
        let daemon = volume.start();
        let other = volume.ask_from();
        volume.request();
        other.join().unwrap();
        volume.stop(daemon);
        assert_eq!(volume.served.load(SeqCst), 2);
    });
}

#[test]
fn requesters_serve_themselves_without_a_daemon() {
    check(|| {
        let volume = Volume::new();
        let others = [volume.ask_from(), volume.ask_from()];
        volume.request();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(volume.served.load(SeqCst), 3);
        assert!(!volume.queue.has_daemon() && volume.queue.is_empty());
    });
}

#[test]
fn no_waiter_hangs_when_the_daemon_ends() {
    check(|| {
        let volume = Volume::new();
        let daemon = volume.start();
        let other = volume.ask_from();
        volume.stop(daemon);
        other.join().unwrap();
        assert_eq!(volume.served.load(SeqCst), 1);
    });
}

#[test]
fn requests_before_the_start_of_the_daemon_are_served() {
    check(|| {
        let volume = Volume::new();
        let other = volume.ask_from();
        let daemon = volume.start();
        other.join().unwrap();
        volume.stop(daemon);
        assert_eq!(volume.served.load(SeqCst), 1);
    });
}
