//! Threads for requests that may take long.
//!
//! There is a thread for each such request, because each may wait for a commit that they share, or
//! for each other. The entries of the rings bound their number. Locking: one mutex, not held while
//! a request is carried out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cairn_block::uring::Entry;
use parking_lot::{Condvar, Mutex};
use rustix::thread::sched_setaffinity;

use super::serve::{Scratch, carry_out};
use super::shared::Shared;
use crate::wire::Outbox;

/// A request for a worker.
pub(super) struct Job {
    pub(super) entry: Entry,
    pub(super) outbox: Arc<Outbox>,
    /// It waits for no other request, and is counted there.
    pub(super) independent: Option<Arc<Independents>>,
}

/// The requests of a ring that workers carry out and that wait for no other request.
#[derive(Default)]
pub(super) struct Independents {
    count: AtomicUsize,
    /// A queue had no entry in the kernel when the ring's thread went to sleep.
    starved: AtomicBool,
}

impl Independents {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn set_starved(&self, starved: bool) {
        self.starved.store(starved, Ordering::SeqCst);
    }

    /// One is carried out. If somebody holds its answer back, it may wait for others now, and the
    /// queue may need a further entry.
    pub(super) fn end(&self, outbox: &Outbox) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        if self.starved.load(Ordering::SeqCst) {
            outbox.wake();
        }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    over: bool,
}

#[derive(Default)]
pub(super) struct Workers {
    state: Mutex<State>,
    added: Condvar,
}

impl Workers {
    /// Takes a request. Gives it back if there is no thread for it.
    pub(super) fn give(self: &Arc<Self>, shared: &Arc<Shared>, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.added.notify_one();
            return Ok(());
        }
        state.threads += 1;
        drop(state);
        let (workers, of_thread) = (self.clone(), shared.clone());
        let spawned = shared.spawn("cairn-fuse", move || workers.run(&of_thread));
        if spawned.is_ok() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.threads -= 1;
        // The other threads will take the job. Without any, it goes back to the caller.
        match state.threads {
            0 => state.jobs.pop_back().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    fn run(&self, shared: &Shared) {
        if let Some(anywhere) = &shared.anywhere {
            // It was started by a pinned thread. Without this it is only slower.
            let _ = sched_setaffinity(None, anywhere);
        }
        let mut scratch = Scratch::new();
        while let Some(Job { entry, outbox, independent }) = self.next() {
            carry_out(shared, &outbox, entry, &mut scratch);
            independent.iter().for_each(|independents| independents.end(&outbox));
        }
        self.state.lock().threads -= 1;
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.over {
                return None;
            }
            state.idle += 1;
            self.added.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Threads end when all requests are carried out.
    pub(super) fn end(&self) {
        self.state.lock().over = true;
        self.added.notify_all();
    }

    /// All threads, and those without a request.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.threads, state.idle)
    }
}
