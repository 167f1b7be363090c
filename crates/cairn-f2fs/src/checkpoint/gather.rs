//! Decides how long a checkpoint waits for more requests.
//!
//! A client that sends its next request as soon as it has its answer arrives just after the next
//! checkpoint has begun. N such clients are served in batches of 1, N - 1, 1, N - 1. So after a
//! checkpoint, the number of expected requests is the number that it answered plus the number that
//! arrived while it ran. The next checkpoint waits for these. It stops when nothing has come for
//! twice the longest gap in the last batch (at least an eighth of the last checkpoint's duration,
//! and at most all of it, because a further checkpoint would cost that): no request, and no call
//! that may lead to one ([`super::coming`]). In all it waits for at most two such durations. If no
//! request arrived at all, the next few checkpoints do not wait; their number grows each time. A
//! lone client never waits.

use std::time::Duration;

use super::coming::Signs;

/// Waiting itself takes about this long. Faster checkpoints are not worth a wait.
const FASTEST: Duration = Duration::from_micros(200);
/// Most batches without a wait after no request arrived.
const MOST_SKIPPED: u32 = 16;

/// What the length of the wait follows from.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Requests that are expected.
    expected: usize,
    /// How long the last checkpoint took.
    cost: Duration,
    /// The longest time between two successive requests of the last batch.
    gap: Duration,
    round: Option<Round>,
    /// Batches that are not waited for, and their number the next time.
    skip: u32,
    next_skip: u32,
}

/// Waiting for more.
#[derive(Clone, Copy, Debug)]
struct Round {
    begun: Duration,
    first: usize,
    seen: usize,
    /// Time of the last arrival or other sign.
    last_sign: Duration,
    /// Calls that had begun by then.
    begun_calls: u64,
}

impl Gather {
    /// How long to wait for more requests, if at all, when `waiting` ones (at least one) have
    /// arrived, and these calls. Called again after each arrival and each wait.
    pub(super) fn patience(
        &mut self,
        waiting: usize,
        signs: Signs,
        now: Duration,
    ) -> Option<Duration> {
        if waiting >= self.expected || self.cost < FASTEST || self.skip > 0 {
            return None;
        }
        let fresh = Round {
            begun: now,
            first: waiting,
            seen: waiting,
            last_sign: now,
            begun_calls: signs.begun,
        };
        let round = self.round.get_or_insert(fresh);
        if waiting > round.seen || signs.under_way > 0 || signs.begun > round.begun_calls {
            (round.seen, round.last_sign, round.begun_calls) = (waiting, now, signs.begun);
        }
        let gap = (2 * self.gap).clamp(self.cost / 8, self.cost);
        let end = (round.begun + 2 * self.cost).min(round.last_sign + gap);
        end.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Records a checkpoint that took `cost` and served the requests that came at these times,
    /// while `waiting` others arrived. True if it was delayed for more requests.
    pub(super) fn served(
        &mut self,
        arrivals: &mut [Duration],
        waiting: usize,
        cost: Duration,
    ) -> bool {
        let (waited, batch) = (self.round.is_some(), arrivals.len());
        arrivals.sort_unstable();
        let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]);
        // A single request has no gap to measure.
        self.gap = gaps.max().unwrap_or(self.gap);
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
    const NOTHING: Signs = Signs { under_way: 0, begun: 0 };

    fn call(under_way: usize, begun: u64) -> Signs {
        Signs { under_way, begun }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Requests that all came at the same time.
    fn served(gather: &mut Gather, batch: usize, waiting: usize, cost: Duration) -> bool {
        gather.served(&mut vec![Duration::ZERO; batch], waiting, cost)
    }

    #[test]
    fn a_lone_client_is_not_waited_with() {
        let mut gather = Gather::default();
        for round in 0..100 {
            assert_eq!(gather.patience(1, NOTHING, COST * round), None);
            served(&mut gather, 1, 0, COST);
        }
    }

    #[test]
    fn all_callers_of_the_last_round_are_waited_for() {
        let mut gather = Gather::default();
        assert_eq!(gather.patience(1, NOTHING, millis(0)), None);
        served(&mut gather, 1, 3, COST);
        assert_eq!(
            gather.patience(3, NOTHING, millis(8)),
            Some(millis(1)),
            "the one that was answered is still to come"
        );
        assert_eq!(gather.patience(4, NOTHING, millis(8)), None);
        served(&mut gather, 4, 0, COST);
        assert_eq!(gather.patience(1, NOTHING, millis(17)), Some(millis(1)));
        assert_eq!(gather.patience(2, NOTHING, millis(18)), Some(millis(1)), "they keep coming");
        assert_eq!(gather.patience(3, NOTHING, millis(19)), Some(millis(1)));
        assert_eq!(gather.patience(3, NOTHING, millis(20)), None, "the last one does not come");
        served(&mut gather, 3, 0, COST);
        assert_eq!(gather.patience(3, NOTHING, millis(30)), None, "nor is it expected again");
    }

    #[test]
    fn waiting_ends_although_they_keep_coming() {
        let mut gather = Gather::default();
        served(&mut gather, 50, 50, COST);
        let mut now = millis(0);
        let mut waiting = 1;
        while gather.patience(waiting, NOTHING, now).is_some() {
            now += Duration::from_micros(500);
            waiting += 1;
        }
        assert_eq!(now, 2 * COST);
    }

    #[test]
    fn clients_that_take_their_time_are_given_it() {
        let mut gather = Gather::default();
        // They come two milliseconds after each other.
        gather.served(&mut [millis(5), millis(1), millis(3)], 1, COST);
        assert_eq!(gather.patience(1, NOTHING, millis(10)), Some(millis(4)));
        assert_eq!(gather.patience(2, NOTHING, millis(13)), Some(millis(4)));
        assert_eq!(gather.patience(3, NOTHING, millis(16)), Some(millis(4)));
        // A slow one is not waited for longer than a checkpoint.
        gather.served(&mut [millis(1), millis(900)], 1, COST);
        assert_eq!(gather.patience(1, NOTHING, millis(1000)), Some(COST));
    }

    #[test]
    fn clients_that_do_not_come_back_are_waited_for_ever_more_rarely() {
        let mut gather = Gather::default();
        let mut waited = 0;
        for round in 0..1000 {
            let begun = millis(100 * round);
            let waits = gather.patience(1, NOTHING, begun).is_some();
            waited += u32::from(waits);
            assert_eq!(gather.patience(1, NOTHING, begun + millis(1)), None);
            served(&mut gather, 1, 1, COST);
        }
        assert!((10..=65).contains(&waited), "waited {waited} times");
    }

    #[test]
    fn calls_are_signs_of_more_to_come() {
        let mut gather = Gather::default();
        served(&mut gather, 3, 1, COST);
        assert_eq!(gather.patience(1, call(1, 5), millis(0)), Some(millis(1)));
        assert_eq!(gather.patience(1, call(1, 5), millis(1)), Some(millis(1)), "still under way");
        assert_eq!(gather.patience(1, call(0, 6), millis(2)), Some(millis(1)), "another has begun");
        assert_eq!(gather.patience(1, call(0, 6), millis(3)), None, "it led to nothing");
        served(&mut gather, 1, 3, COST);
        assert_eq!(gather.patience(3, call(1, 7), millis(10)), None, "not after a wait in vain");
        served(&mut gather, 4, 0, COST);
        assert_eq!(gather.patience(3, call(1, 8), millis(20)), Some(millis(1)));
        assert_eq!(gather.patience(3, call(1, 9), millis(36)), None, "not for ever");
    }

    #[test]
    fn fast_checkpoints_are_not_waited_with() {
        let mut gather = Gather::default();
        served(&mut gather, 10, 10, FASTEST / 2);
        assert_eq!(gather.patience(1, NOTHING, millis(0)), None);
    }
}
