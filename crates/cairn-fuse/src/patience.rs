//! How a thread waits for its next request.

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::wire::{Device, Taken};

/// Polls for the next request before sleeping, while that has been successful lately.
///
/// To sleep and to be woken by another processor costs more than most requests, and a sequential
/// caller sends its next request soon. The thread yields the processor to others while it polls.
pub(crate) struct Patience {
    limit: Duration,
    /// When the last request was taken.
    pub(crate) arrived: Instant,
    /// Above zero: requests have been coming within the limit.
    credit: i8,
}

impl Patience {
    const MOST: i8 = 8;

    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, arrived: Instant::now(), credit: 0 }
    }

    pub(crate) fn next(
        &mut self,
        device: &Device,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let began = Instant::now();
        let taken = loop {
            match device.read(buffer)? {
                Taken::Request(len) => break Some(len),
                Taken::End => break None,
                Taken::Nothing if self.credit > 0 && began.elapsed() < self.limit => {
                    thread::yield_now();
                }
                Taken::Nothing if device.wait()? => {}
                Taken::Nothing => break None,
            }
        };
        self.arrived = Instant::now();
        self.learn(self.arrived - began);
        Ok(taken)
    }

    fn learn(&mut self, waited: Duration) {
        let soon = waited < self.limit;
        self.credit = (self.credit + if soon { 1 } else { -1 }).clamp(-Self::MOST, Self::MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_requests_that_come_soon_and_ends_with_those_that_do_not() {
        let mut patience = Patience::new(Duration::from_micros(50));
        assert!(patience.credit <= 0, "an idle mount does not spin");
        for _ in 0..100 {
            patience.learn(Duration::from_micros(10));
        }
        assert!(patience.credit > 0);
        for _ in 0..Patience::MOST {
            patience.learn(Duration::from_secs(1));
        }
        assert!(patience.credit <= 0, "a few long waits end it");
        let mut never = Patience::new(Duration::ZERO);
        never.learn(Duration::from_nanos(1));
        assert!(never.credit <= 0, "without a limit it never looks");
    }
}
