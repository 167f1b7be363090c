//! [`Latency`]: delays the requests to a device.
//!
//! The requests of a batch count as parallel: the batch takes the time of the slowest kind it
//! contains, plus that of a flush for each barrier. The submitting thread sleeps; other threads'
//! batches sleep at the same time.

#![allow(clippy::disallowed_methods, reason = "a slow device is slow for real")]

use std::sync::Arc;
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::device::{Batch, BlockDevice, Completion, Geometry, Growable, Request};
use crate::error::Result;
use crate::zoned::ZonedDevice;

/// Time added to each kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyProfile {
    /// A batch with reads.
    pub read: Duration,
    /// A batch with writes, discards or zeros.
    pub write: Duration,
    /// A flush, a preflush, or forced unit access.
    pub flush: Duration,
}

/// Delays what passes through.
pub struct Latency {
    inner: Arc<dyn BlockDevice>,
    profile: Mutex<LatencyProfile>,
}

impl Latency {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>, profile: LatencyProfile) -> Self {
        Self { inner, profile: Mutex::new(Rank::Leaf, profile) }
    }

    /// Changes the times for what comes after.
    pub fn set(&self, profile: LatencyProfile) {
        *self.profile.lock() = profile;
    }
}

impl LatencyProfile {
    fn of(&self, batch: &Batch) -> Duration {
        let slowest = batch.requests.iter().map(|request| match request {
            Request::Read { .. } => self.read,
            _ => self.write,
        });
        let changes = batch.requests.iter().any(|request| !matches!(request, Request::Read { .. }));
        let barriers =
            u32::from(batch.durability.preflush) + u32::from(batch.durability.fua && changes);
        slowest.max().unwrap_or_default() + self.flush * barriers
    }
}

impl BlockDevice for Latency {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let time = self.profile.lock().of(&batch);
        std::thread::sleep(time);
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        let time = self.profile.lock().flush;
        std::thread::sleep(time);
        self.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        self.inner.as_zoned()
    }

    fn as_growable(&self) -> Option<&dyn Growable> {
        self.inner.as_growable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Durability;
    use crate::{BlockDeviceExt, IoBuf, memory::MemoryDevice};

    #[test]
    fn a_batch_takes_its_slowest_kind_and_its_barriers() {
        let ms = Duration::from_millis;
        let profile = LatencyProfile { read: ms(3), write: ms(5), flush: ms(10) };
        let read = || Request::Read { offset: 0, buf: IoBuf::zeroed(1) };
        let write = || Request::Write { offset: 0, bufs: vec![] };
        let time = |requests, preflush, fua| {
            profile.of(&Batch { requests, durability: Durability { preflush, fua } })
        };
        assert_eq!(time(vec![read(), read()], false, false), ms(3));
        assert_eq!(time(vec![read(), write()], false, false), ms(5));
        assert_eq!(time(vec![write()], true, true), ms(25));
        assert_eq!(time(vec![], true, true), ms(10));
    }

    #[test]
    fn the_work_is_done_late_but_done() {
        let device = Latency::new(Arc::new(MemoryDevice::new(10)), LatencyProfile::default());
        let slow = LatencyProfile { write: Duration::from_millis(20), ..LatencyProfile::default() };
        device.set(slow);
        let start = std::time::Instant::now();
        device.write_at(3, vec![4]).unwrap();
        assert!(start.elapsed() >= slow.write);
        assert_eq!(device.read_at(3, 1).unwrap()[0], 4);
    }
}
