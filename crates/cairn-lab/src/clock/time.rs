//! [`Clock`], and the system's ([`Real`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::runtime::Event;

use super::seat::{Free, Seated};

/// A source of time, which never goes back, and a way to wait.
pub(crate) trait Clock: Send + Sync {
    /// Time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Returns at this time.
    fn sleep_until(&self, time: Duration);

    /// Returns when `ready`, which is asked after each notification.
    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool);

    /// A place for a thread that the caller is about to start.
    fn place(self: Arc<Self>) -> Place;
}

/// A thread that waits for a clock needs a place at it. The system's clock needs none.
pub(crate) struct Place(pub(super) Option<Free>);

impl Place {
    /// The calling thread takes the place until it drops what this returns.
    pub(crate) fn take(self) -> Option<Seated> {
        self.0.map(Free::sit)
    }
}

/// The system's clock.
pub(crate) struct Real(Instant);

impl Real {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Real {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep_until(&self, time: Duration) {
        std::thread::sleep(time.saturating_sub(self.0.elapsed()));
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        loop {
            let seen = event.generation();
            if ready() {
                return;
            }
            event.wait_past(seen, None);
        }
    }

    fn place(self: Arc<Self>) -> Place {
        Place(None)
    }
}
