//! [`RuntimeOver`]: a runtime that changes some calls of another one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Daemon, DaemonHandle, Event, NoThread, Runtime};

/// A runtime over another. A call that the type does not define is the other one's.
pub trait RuntimeOver: Send + Sync {
    /// The other runtime.
    fn inner(&self) -> &dyn Runtime;

    /// As [`Runtime::spawn`].
    ///
    /// # Errors
    /// As [`Runtime::spawn`].
    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        self.inner().spawn(name, wake, daemon)
    }

    /// As [`Runtime::wait_until_timeout`].
    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.inner().wait_until_timeout(event, timeout, ready)
    }
}

impl<T: RuntimeOver> Runtime for T {
    fn now(&self) -> SystemTime {
        self.inner().now()
    }

    fn monotonic(&self) -> Duration {
        self.inner().monotonic()
    }

    fn random(&self) -> u64 {
        self.inner().random()
    }

    fn spawn(
        &self,
        name: &str,
        wake: Arc<Event>,
        daemon: Arc<dyn Daemon>,
    ) -> Result<DaemonHandle, NoThread> {
        RuntimeOver::spawn(self, name, wake, daemon)
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        self.inner().wait_until(event, ready);
    }

    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        RuntimeOver::wait_until_timeout(self, event, timeout, ready)
    }

    fn defer(&self, work: Box<dyn FnOnce() + Send>) {
        self.inner().defer(work);
    }

    fn drain_deferred(&self) {
        self.inner().drain_deferred();
    }
}
