//! Threads for requests that wait for the disk.
//!
//! The few threads that read requests must not wait themselves: fsyncs could not pile up and share a commit. Threads are
//! made when a job finds none idle, up to the limit, and end after a while without work.
//!
//! Invariant: while jobs wait, every idle thread has been woken for one, or the limit is reached.
//! Locking: one mutex, never held while a job runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    ended: Condvar,
}

/// The pool.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    limit: usize,
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Self {
        Self { shared: Arc::default(), limit }
    }

    /// Runs a job on some thread; on this one if none can be made.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.jobs.len() <= queue.idle {
            self.shared.work.notify_one();
            return;
        }
        if queue.threads == self.limit {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let shared = self.shared.clone();
        let made = thread::Builder::new().name("cairn-fuse-io".into()).spawn(move || Worker(shared).work());
        if made.is_err() {
            Worker(self.shared.clone()).drain();
        }
    }

    /// Jobs that wait for a thread, and threads.
    pub(crate) fn load(&self) -> (u64, u64) {
        let queue = self.shared.queue.lock();
        (queue.jobs.len() as u64, queue.threads as u64)
    }

    /// Waits for all jobs and ends the threads.
    pub(crate) fn join(&self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        self.shared.work.notify_all();
        while queue.threads > 0 {
            self.shared.ended.wait(&mut queue);
        }
    }
}

/// A thread of the pool; counted out when it ends, also by a panic.
struct Worker(Arc<Shared>);

impl Worker {
    fn work(self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    /// Runs what is there and ends.
    fn drain(self) {
        loop {
            let job = self.0.queue.lock().jobs.pop_front();
            let Some(job) = job else { return };
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.0.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            let waited = self.0.work.wait_for(&mut queue, IDLE);
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                return None;
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.queue.lock().threads -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn as_many_jobs_as_the_limit_run_at_once() {
        let pool = Pool::new(32);
        let barrier = Arc::new(Barrier::new(32));
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..64 {
            let (barrier, done) = (barrier.clone(), done.clone());
            pool.run(move || {
                // Ends only if 32 jobs are in it together.
                barrier.wait();
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.join();
        assert_eq!(done.load(Ordering::Relaxed), 64);
    }

    #[test]
    fn many_submitters_lose_no_job() {
        let pool = Pool::new(4);
        let done = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let done = done.clone();
                        pool.run(move || {
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        pool.join();
        assert_eq!(done.load(Ordering::Relaxed), 20_000);
    }
}
