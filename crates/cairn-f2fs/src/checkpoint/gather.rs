//! How long to wait for more requests before a checkpoint that serves them all.
//!
//! A client that asks again as soon as it has its answer comes back just after a checkpoint has begun for those who came
//! during the last one: N such clients are served in batches of 1, N - 1, 1, N - 1. So after a checkpoint as many requests
//! are expected as it answered and as had come while it ran, and the next one waits for them: at most for half of the last
//! checkpoint's time, and no longer than an eighth of it after the last arrival. If nobody came the next few are not waited
//! for, longer each time; and a lone client expects nobody.

use std::time::Duration;

/// Waiting takes about this long itself: faster checkpoints are not worth it.
const FASTEST: Duration = Duration::from_micros(200);
/// Most batches that are not waited for after nobody came.
const MOST_SKIPPED: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Gather {
    /// Requests that are expected.
    expected: usize,
    /// How long the last checkpoint took.
    cost: Duration,
    round: Option<Round>,
    /// Batches that are not waited for, and how many it will be the next time.
    skip: u32,
    next_skip: u32,
}

/// Waiting for more.
#[derive(Clone, Copy, Debug)]
struct Round {
    begun: Duration,
    first: usize,
    seen: usize,
    last_arrival: Duration,
}

impl Gather {
    /// `waiting` requests (at least one) are there: how long to wait for more, if at all. Asked again after each arrival.
    pub fn patience(&mut self, waiting: usize, now: Duration) -> Option<Duration> {
        if waiting >= self.expected || self.cost < FASTEST || self.skip > 0 {
            return None;
        }
        let fresh = Round { begun: now, first: waiting, seen: waiting, last_arrival: now };
        let round = self.round.get_or_insert(fresh);
        if waiting > round.seen {
            (round.seen, round.last_arrival) = (waiting, now);
        }
        let end = (round.begun + self.cost / 2).min(round.last_arrival + self.cost / 8);
        end.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// A checkpoint has served `batch` requests in the time `cost`, and `waiting` came meanwhile. True if it had been waited
    /// with.
    pub fn served(&mut self, batch: usize, waiting: usize, cost: Duration) -> bool {
        let waited = self.round.is_some();
        match self.round.take() {
            Some(round) if batch <= round.first => {
                self.next_skip = (2 * self.next_skip).clamp(1, MOST_SKIPPED);
                self.skip = self.next_skip;
            }
            Some(_) => (self.skip, self.next_skip) = (0, 0),
            None => self.skip = self.skip.saturating_sub(1),
        }
        (self.expected, self.cost) = (batch + waiting, cost);
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(8);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_lone_client_is_not_waited_with() {
        let mut gather = Gather::default();
        for round in 0..100 {
            assert_eq!(gather.patience(1, COST * round), None);
            gather.served(1, 0, COST);
        }
    }

    #[test]
    fn all_who_were_there_are_waited_for() {
        let mut gather = Gather::default();
        assert_eq!(gather.patience(1, millis(0)), None);
        gather.served(1, 3, COST);
        assert_eq!(gather.patience(3, millis(8)), Some(millis(1)), "the one that was answered is still to come");
        assert_eq!(gather.patience(4, millis(8)), None);
        gather.served(4, 0, COST);
        assert_eq!(gather.patience(1, millis(17)), Some(millis(1)));
        assert_eq!(gather.patience(2, millis(18)), Some(millis(1)), "they keep coming");
        assert_eq!(gather.patience(3, millis(19)), Some(millis(1)));
        assert_eq!(gather.patience(3, millis(20)), None, "the last one does not come");
        gather.served(3, 0, COST);
        assert_eq!(gather.patience(3, millis(30)), None, "nor is it expected again");
    }

    #[test]
    fn waiting_ends_although_they_keep_coming() {
        let mut gather = Gather::default();
        gather.served(50, 50, COST);
        let mut now = millis(0);
        let mut waiting = 1;
        while gather.patience(waiting, now).is_some() {
            now += Duration::from_micros(500);
            waiting += 1;
        }
        assert_eq!(now, COST / 2);
    }

    #[test]
    fn clients_that_do_not_come_back_are_waited_for_ever_more_rarely() {
        let mut gather = Gather::default();
        let mut waited = 0;
        for round in 0..1000 {
            let begun = millis(100 * round);
            let waits = gather.patience(1, begun).is_some();
            waited += u32::from(waits);
            assert_eq!(gather.patience(1, begun + millis(1)), None);
            gather.served(1, 1, COST);
        }
        assert!((10..=65).contains(&waited), "waited {waited} times");
    }

    #[test]
    fn fast_checkpoints_are_not_waited_with() {
        let mut gather = Gather::default();
        gather.served(10, 10, FASTEST / 2);
        assert_eq!(gather.patience(1, millis(0)), None);
    }
}
