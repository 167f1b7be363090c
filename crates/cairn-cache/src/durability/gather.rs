//! [`Gather`]: whether a flush waits for the callers that the last one has just served.
//!
//! Callers that write and flush in turn fall into two halves where a flush takes long: one half
//! waits for the flush that runs, and the next begins before the served half is back. A short
//! wait brings both into one flush, as jbd2's commits wait for the writers of the last one.

use std::time::Duration;

/// A flush that is shorter than this is not waited for: the callers would come too late.
const SLOW: Duration = Duration::from_millis(2);
/// The longest wait; jbd2's `max_batch_time`.
const LONGEST: Duration = Duration::from_millis(15);
/// Most flushes that begin at once after waits that brought nobody.
const MOST_PAUSES: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Callers of the last flush, and those that waited for it to end.
    expected: usize,
    /// How long the last flush took.
    lasted: Duration,
    /// Flushes left that begin at once, and how many these were after the last futile wait.
    pauses: u32,
    last_pauses: u32,
}

impl Gather {
    /// How long a flush with `waiting` callers may wait for more of them, and up to how many.
    pub(super) fn patience(&mut self, waiting: usize) -> Option<(Duration, usize)> {
        if self.expected <= waiting || self.lasted < SLOW {
            return None;
        }
        if self.pauses > 0 {
            self.pauses -= 1;
            return None;
        }
        Some(((self.lasted / 2).min(LONGEST), self.expected))
    }

    /// A wait has ended, with `waiting` callers in place of the `before` at its begin.
    pub(super) fn waited(&mut self, before: usize, waiting: usize) {
        let missing = self.expected.saturating_sub(before);
        let is_futile = (waiting.saturating_sub(before)) * 2 < missing;
        self.last_pauses = if is_futile { (self.last_pauses * 2 + 1).min(MOST_PAUSES) } else { 0 };
        self.pauses = self.last_pauses;
    }

    /// A flush has ended: what it served and how long it took, and who waits for the next.
    pub(super) fn ended(&mut self, served: usize, waiting: usize, lasted: Duration) {
        self.expected = served + waiting;
        self.lasted = lasted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: Duration = Duration::from_millis(20);

    #[test]
    fn two_halves_become_one() {
        let mut gather = Gather::default();
        assert_eq!(gather.patience(1), None, "nothing is known");
        gather.ended(16, 16, PUT);
        assert_eq!(gather.patience(16), Some((PUT / 2, 32)));
        gather.waited(16, 32);
        gather.ended(32, 0, PUT);
        // The first of them to come back waits for the others.
        assert_eq!(gather.patience(1), Some((PUT / 2, 32)));
        gather.waited(1, 30);
        gather.ended(30, 2, Duration::from_secs(1));
        assert_eq!(gather.patience(31), Some((LONGEST, 32)));
    }

    #[test]
    fn one_caller_and_fast_devices_never_wait() {
        let mut gather = Gather::default();
        for _ in 0..3 {
            gather.ended(1, 0, PUT);
            assert_eq!(gather.patience(1), None);
        }
        gather.ended(16, 16, SLOW / 2);
        assert_eq!(gather.patience(16), None);
    }

    #[test]
    fn callers_that_do_not_come_back_are_waited_for_ever_more_rarely() {
        let mut gather = Gather::default();
        let mut waits = 0;
        for _ in 0..1000 {
            gather.ended(8, 8, PUT);
            if gather.patience(8).is_some() {
                waits += 1;
                gather.waited(8, 9);
            }
        }
        assert_eq!(waits, 20);
        while gather.patience(8).is_none() {}
        gather.waited(8, 15);
        assert!(gather.patience(8).is_some(), "they have come");
    }
}
