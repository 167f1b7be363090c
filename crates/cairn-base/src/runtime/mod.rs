//! The one source of time, randomness and background threads.
//!
//! Code that waits simply blocks. Production and simulation differ in how daemons run. In
//! production each daemon has a thread ([`threads::Threads`]). The simulator
//! ([`simulated::Simulated`]) has one thread: code that waits runs steps of daemons in a seeded
//! order, so one seed repeats one interleaving.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::system_error;

pub mod event;
mod over;
pub mod parts;
pub mod simulated;
pub mod threads;

pub use event::Event;
pub use over::RuntimeOver;

/// What one [`Daemon::step`] achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Work was done; call again at once.
    Worked,
    /// Nothing to do until the daemon's event fires, or this much time has passed.
    Idle(Option<Duration>),
    /// The daemon has ended for good.
    Done,
}

/// Background work, cut into steps.
pub trait Daemon: Send + Sync {
    /// Does a bounded piece of work. Never called by two threads at once.
    fn step(&self) -> Progress;
}

/// The system has no further thread for a daemon.
#[derive(Debug)]
pub struct NoThread {
    /// The daemon's name.
    pub name: String,
    /// What the system says.
    pub source: io::Error,
}

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, source } = self;
        write!(
            f,
            "no thread for the daemon {name}: {}",
            system_error::with_remedy(source, "mount again")
        )
    }
}

impl std::error::Error for NoThread {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Time, randomness, daemons and waiting.
pub trait Runtime: Send + Sync {
    /// Wall-clock time, for timestamps on disk: the clock that the kernel stamps files with.
    fn now(&self) -> SystemTime;

    /// Time since an arbitrary start, never going back.
    fn monotonic(&self) -> Duration;

    /// A random number (for generations, hash seeds and UUIDs).
    fn random(&self) -> u64;

    /// Starts a daemon that is stepped whenever `wake` was notified or its idle time is over.
    /// It ends when the handle is stopped or `step` returns [`Progress::Done`].
    ///
    /// # Errors
    /// The system has no further thread.
    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread>;

    /// Blocks until `ready` returns true. `ready` is evaluated at once and again after each
    /// notification of `event`.
    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool);

    /// Like [`Runtime::wait_until`], but gives up after `timeout`. True if `ready` was met.
    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool;

    /// Runs `work` soon, off the calling thread (in the simulator: in a later seeded step).
    fn defer(&self, work: Box<dyn FnOnce() + Send>);

    /// Returns once everything deferred so far has run.
    fn drain_deferred(&self);
}

/// A running daemon. Dropping it stops the daemon.
#[must_use = "the daemon stops when its handle is dropped"]
pub struct DaemonHandle {
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl DaemonHandle {
    /// `stop` must end the daemon and return only when no step is running.
    pub fn new(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { stop: Some(Box::new(stop)) }
    }

    /// Ends the daemon; returns when no step is running. Never call it from the daemon's own step.
    pub fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

impl Drop for DaemonHandle {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn now(&self) -> SystemTime {
        (**self).now()
    }

    fn monotonic(&self) -> Duration {
        (**self).monotonic()
    }

    fn random(&self) -> u64 {
        (**self).random()
    }

    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        (**self).spawn(name, wake, daemon)
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        (**self).wait_until(event, ready);
    }

    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        (**self).wait_until_timeout(event, timeout, ready)
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) {
        (**self).defer(work);
    }

    fn drain_deferred(&self) {
        (**self).drain_deferred();
    }
}
