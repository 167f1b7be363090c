//! [`run`]: several threads share the steps of a phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::runtime::{Daemon, DaemonHandle, Event, Progress, Runtime};

/// Steps that can be done in any order, by several threads.
pub trait Work: Send + Sync {
    /// Number of steps.
    fn steps(&self) -> u64;

    /// Does a step. False ends the work early.
    fn step(&self, number: u64) -> bool;
}

struct Shared<W> {
    work: W,
    steps: u64,
    next: AtomicU64,
}

impl<W: Work> Daemon for Shared<W> {
    fn step(&self) -> Progress {
        let number = self.next.fetch_add(1, Relaxed);
        if number >= self.steps {
            return Progress::Done;
        }
        if !self.work.step(number) {
            self.next.store(self.steps, Relaxed);
        }
        Progress::Worked
    }
}

/// Does all steps with the calling thread and `threads - 1` others, and returns the work. With
/// fewer threads than that, if the system has no more, it takes longer.
pub fn run<W: Work + 'static>(work: W, threads: usize, runtime: &dyn Runtime) -> Arc<W> {
    let steps = work.steps();
    let shared = Arc::new(Shared { work: Arc::new(work), steps, next: AtomicU64::new(0) });
    let mut helpers = Vec::new();
    for number in 1..threads {
        let daemon: Arc<dyn Daemon> = shared.clone();
        match runtime.spawn(&format!("check-{number}"), Arc::new(Event::new()), daemon) {
            Ok(helper) => helpers.push(helper),
            Err(_) => break,
        }
    }
    while shared.step() == Progress::Worked {}
    helpers.into_iter().for_each(DaemonHandle::stop);
    shared.work.clone()
}

impl<W: Work> Work for Arc<W> {
    fn steps(&self) -> u64 {
        (**self).steps()
    }

    fn step(&self, number: u64) -> bool {
        (**self).step(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::runtime::threads::Threads;

    struct Sum(AtomicU64);

    impl Work for Sum {
        fn steps(&self) -> u64 {
            1000
        }

        fn step(&self, number: u64) -> bool {
            self.0.fetch_add(number, Relaxed);
            true
        }
    }

    #[test]
    fn every_step_is_done_once() {
        for threads in [1, 2, 3] {
            let done = run(Sum(AtomicU64::new(0)), threads, &*Threads::new());
            assert_eq!(done.0.load(Relaxed), 499_500);
        }
    }

    struct Ends(AtomicU64);

    impl Work for Ends {
        fn steps(&self) -> u64 {
            1000
        }

        fn step(&self, number: u64) -> bool {
            self.0.fetch_add(1, Relaxed);
            number < 10
        }
    }

    #[test]
    fn a_step_can_end_the_work() {
        let done = run(Ends(AtomicU64::new(0)), 1, &*Threads::new());
        assert_eq!(done.0.load(Relaxed), 11);
    }
}
