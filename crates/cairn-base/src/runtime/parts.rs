//! [`run`]: one piece of work in numbered parts, done by several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Daemon, DaemonHandle, Event, Progress, Runtime};

/// Work in parts, which threads do in any order.
pub trait Parts: Send + Sync + 'static {
    /// Why a part failed.
    type Error: Send + 'static;

    /// Number of parts.
    fn count(&self) -> usize;

    /// Does one part. Several threads call it at once, each with another number.
    ///
    /// # Errors
    /// The part failed. No further part is begun.
    fn part(&self, number: usize) -> Result<(), Self::Error>;
}

struct Work<P: Parts> {
    parts: P,
    next: AtomicUsize,
    failed: Mutex<Option<P::Error>>,
}

/// Does all parts with this many threads, the caller's included. With fewer threads than asked for
/// it takes longer. Gives the parts back.
///
/// # Errors
/// The first error of a part.
///
/// # Panics
/// A thread of the runtime goes on after it was stopped.
pub fn run<P: Parts>(
    parts: P,
    name: &str,
    threads: usize,
    runtime: &dyn Runtime,
) -> Result<P, P::Error> {
    let work = Arc::new(Work { parts, next: AtomicUsize::new(0), failed: Mutex::new(None) });
    let mut helpers = Vec::new();
    for number in 1..threads.min(work.parts.count()) {
        let daemon: Arc<dyn Daemon> = work.clone();
        let name = format!("{name}-{number}");
        let Ok(helper) = runtime.spawn(&name, Arc::new(Event::new()), daemon) else { break };
        helpers.push(helper);
    }
    while work.step() == Progress::Worked {}
    helpers.into_iter().for_each(DaemonHandle::stop);
    let work = Arc::into_inner(work).expect("the threads have ended");
    match work.failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(work.parts),
    }
}

impl<P: Parts> Daemon for Work<P> {
    fn step(&self) -> Progress {
        let (number, count) = (self.next.fetch_add(1, Relaxed), self.parts.count());
        if number >= count {
            return Progress::Done;
        }
        if let Err(error) = self.parts.part(number) {
            self.failed.lock().get_or_insert(error);
            self.next.store(count, Relaxed);
        }
        Progress::Worked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::threads::Threads;

    struct Marks {
        done: Vec<AtomicUsize>,
        broken: Option<usize>,
    }

    impl Parts for Marks {
        type Error = usize;

        fn count(&self) -> usize {
            self.done.len()
        }

        fn part(&self, number: usize) -> Result<(), usize> {
            self.done[number].fetch_add(1, Relaxed);
            if self.broken == Some(number) { Err(number) } else { Ok(()) }
        }
    }

    fn marks(count: usize, broken: Option<usize>) -> Marks {
        Marks { done: (0..count).map(|_| AtomicUsize::new(0)).collect(), broken }
    }

    #[test]
    fn every_part_is_done_once() {
        for threads in [0, 1, 3] {
            let done = run(marks(100, None), "marks", threads, &*Threads::new());
            let done = done.unwrap_or_else(|part| panic!("part {part} failed")).done;
            assert!(done.iter().all(|count| count.load(Relaxed) == 1), "{threads} threads");
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let failed = run(marks(1000, Some(7)), "marks", 1, &*Threads::new());
        assert_eq!(failed.err(), Some(7));
    }
}
