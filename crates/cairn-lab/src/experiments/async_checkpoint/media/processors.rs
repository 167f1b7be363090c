//! What the processors need for the work, in the time of a model.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::fs_mark::Step;

/// Creating and writing a file.
pub(super) const CREATE: Duration = Duration::from_micros(30);
/// An fsync or sync, without what it waits for.
pub(super) const FSYNC: Duration = Duration::from_micros(15);

/// Two processors.
pub(super) struct Processors {
    clock: Arc<dyn Clock>,
    /// Until when each is in use.
    busy_until: Mutex<[Duration; 2]>,
}

impl Processors {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, busy_until: Mutex::default() }
    }

    /// Returns when one of them has done the work of this step.
    pub(super) fn work(&self, step: Step) {
        let cost = match step {
            Step::File => CREATE,
            Step::Sync => FSYNC,
        };
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
                    processors.work(Step::File);
                });
            }
        });
        assert_eq!(model.now(), 2 * CREATE);
    }
}
