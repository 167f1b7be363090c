//! Wakes the watch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The interval of the watch.
const TICK: Duration = Duration::from_millis(2);
/// After this time without a request, free memory is given back.
const IDLE: Duration = Duration::from_secs(1);

/// Rung by requests.
#[derive(Default)]
pub(super) struct Bell {
    dozing: AtomicBool,
    ended: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// A request begins.
    pub(super) fn ring(&self) {
        if self.dozing.load(Ordering::SeqCst) {
            let _ended = self.ended.lock();
            self.dozing.store(false, Ordering::SeqCst);
            self.rung.notify_one();
        }
    }

    pub(super) fn end(&self) {
        *self.ended.lock() = true;
        self.rung.notify_all();
    }

    /// False when ended.
    pub(super) fn tick(&self) -> bool {
        let mut ended = self.ended.lock();
        if !*ended {
            self.rung.wait_for(&mut ended, TICK);
        }
        !*ended
    }

    /// Waits for a request, unless one has begun since `still` was true. Calls `idle` if that takes
    /// long.
    pub(super) fn doze(&self, still: impl Fn() -> bool, idle: impl Fn()) {
        let mut ended = self.ended.lock();
        self.dozing.store(true, Ordering::SeqCst);
        if !still() {
            self.dozing.store(false, Ordering::SeqCst);
        }
        let dozes = || self.dozing.load(Ordering::SeqCst);
        if dozes() && !*ended && self.rung.wait_for(&mut ended, IDLE).timed_out() {
            idle();
        }
        while dozes() && !*ended {
            self.rung.wait(&mut ended);
        }
    }
}
