//! `gc_merge`: requests for free sections that the daemon serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_base::runtime::{Event, Runtime};

/// The requests of foreground cleaning that wait for the daemon.
#[derive(Default)]
pub(crate) struct Merged {
    asked: AtomicU64,
    answered: AtomicU64,
    /// The daemon runs.
    serving: AtomicBool,
    wake: Arc<Event>,
    done: Event,
}

impl Merged {
    /// What wakes the daemon.
    #[must_use]
    pub(crate) fn wake(&self) -> Arc<Event> {
        self.wake.clone()
    }

    /// Sets whether the daemon takes requests. If not, waiting requesters clean themselves.
    pub(crate) fn serve(&self, serving: bool) {
        self.serving.store(serving, Ordering::SeqCst);
        self.done.notify();
    }

    /// Asks the daemon to make room, and waits. False if there is no daemon: the caller cleans
    /// itself.
    pub(super) fn ask(&self, runtime: &dyn Runtime) -> bool {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let answered = || self.answered.load(Ordering::SeqCst) >= mine;
        self.wake.notify();
        runtime.wait_until(&self.done, &mut || answered() || !self.serving.load(Ordering::SeqCst));
        answered()
    }

    /// The number of the last request, if any waits.
    pub(super) fn waiting(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::SeqCst);
        (self.answered.load(Ordering::SeqCst) < asked).then_some(asked)
    }

    /// Marks all requests up to this one as served.
    pub(super) fn answer(&self, asked: u64) {
        self.answered.store(asked, Ordering::SeqCst);
        self.done.notify();
    }
}
