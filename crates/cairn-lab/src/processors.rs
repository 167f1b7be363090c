//! What the processors need for the work, in the time of a model.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// Creating and writing a file.
pub(crate) const CREATE: Duration = Duration::from_micros(30);
/// An fsync or sync, without what it waits for.
pub(crate) const FSYNC: Duration = Duration::from_micros(15);
/// Writing a block.
pub(crate) const WRITE: Duration = Duration::from_micros(5);

/// Two processors.
pub(crate) struct Processors {
    clock: Arc<dyn Clock>,
    /// Until when each is in use.
    busy_until: Mutex<[Duration; 2]>,
}

impl Processors {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, busy_until: Mutex::default() }
    }

    /// Returns when one of them has worked for so long.
    pub(crate) fn work(&self, cost: Duration) {
        let done = {
            let mut both = self.busy_until.lock();
            let first = usize::from(both[1] < both[0]);
            both[first] = both[first].max(self.clock.now()) + cost;
            both[first]
        };
        self.clock.sleep_until(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Model;

    #[test]
    fn two_threads_work_at_a_time() {
        let model = Model::new();
        let processors = Processors::new(model.clone());
        let seats: Vec<_> = (0..4).map(|_| model.seat()).collect();
        std::thread::scope(|scope| {
            for seat in seats {
                let processors = &processors;
                scope.spawn(move || {
                    let _seated = seat.sit();
                    processors.work(CREATE);
                });
            }
        });
        assert_eq!(model.now(), 2 * CREATE);
    }
}
