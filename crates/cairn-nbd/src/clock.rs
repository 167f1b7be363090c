//! The system's clock: who waits for another machine waits in real time.

#![allow(clippy::disallowed_methods, reason = "a server is waited for with the system's clock")]

use std::io;
use std::time::{Duration, Instant};

/// A moment after which nobody waits any longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// The time until then; zero if it is over.
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |moment| moment.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// # Errors
    /// It is over.
    pub(crate) fn check(self) -> io::Result<Duration> {
        match self.left() {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Now.
pub(crate) fn now() -> Instant {
    Instant::now()
}
