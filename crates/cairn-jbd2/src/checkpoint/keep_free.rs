//! How much of the log the checkpoint daemon keeps free, and when it begins.
//!
//! A block that waits in the log may be superseded and need not be written home, so writing early
//! costs time. [`KeepFree::AsNeeded`] waits as long as no handle would have to wait: it knows how
//! much the log fills while a round lasts ([`Pace`]). While nothing is committed it frees more.

use std::time::Duration;

use crate::error::{Error, Result};

/// Log that is free after a rest, in percent.
const AT_REST: u8 = 50;
/// No transaction has been running or committing for this long: a rest.
pub(crate) const REST: Duration = Duration::from_millis(200);
/// Log blocks for handles that need more than their credits.
const SPARE: u32 = 64;

/// What the checkpoint daemon keeps free of the log (mount option `async_checkpoint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepFree {
    /// Under load what the next commits need, after a rest half of the log.
    AsNeeded,
    /// This percentage, 1 to 99.
    Percent(u8),
}

impl KeepFree {
    /// Refuses a percentage outside of 1 to 99.
    pub(crate) fn check(keep: Option<Self>) -> Result<()> {
        match keep {
            Some(Self::Percent(percent)) if !(1..=99).contains(&percent) => {
                Err(Error::Threshold { percent })
            }
            _ => Ok(()),
        }
    }

    /// The most that is kept free, in percent.
    #[must_use]
    pub const fn percent(self) -> u8 {
        match self {
            Self::AsNeeded => AT_REST,
            Self::Percent(percent) => percent,
        }
    }

    /// The same in blocks of a log of `log_blocks`.
    pub(crate) fn most(self, log_blocks: u32) -> u32 {
        let blocks = u64::from(log_blocks) * u64::from(self.percent()) / 100;
        u32::try_from(blocks).unwrap_or(log_blocks)
    }
}

/// How fast the log fills. The largest of the last values counts, so that one small transaction
/// makes no difference.
#[derive(Default)]
pub(crate) struct Pace {
    /// Log blocks of a transaction.
    transaction: u32,
    /// Log blocks allocated while the daemon writes a round. Unknown before the first.
    round: Option<u32>,
    /// Blocks that had been allocated when the round under way began.
    began: Option<u64>,
    /// When a transaction was last written to the log.
    last_commit: Duration,
}

impl Pace {
    /// A transaction of so many log blocks is written.
    pub(crate) fn committed(&mut self, log_blocks: u32, now: Duration) {
        self.transaction = fading(self.transaction).max(log_blocks);
        self.last_commit = now;
    }

    /// A round begins. `allocated` blocks of the log have been allocated so far.
    pub(crate) fn begin_round(&mut self, allocated: u64) {
        self.began = Some(allocated);
    }

    /// The round ends.
    pub(crate) fn end_round(&mut self, allocated: u64) {
        let Some(began) = self.began.take() else { return };
        let filled = u32::try_from(allocated.saturating_sub(began)).unwrap_or(u32::MAX);
        self.round = Some(self.round.map_or(filled, |round| fading(round).max(filled)));
    }

    /// Free blocks of a log of `log_blocks` with which a round must begin: what is allocated while
    /// it is written, and two transactions each for the commit whose flush covers it and for the
    /// one that frees its blocks. At most half of the log.
    pub(crate) fn least_free(&self, log_blocks: u32) -> u32 {
        let round = self.round.unwrap_or(log_blocks / 4);
        let commits = self.transaction.saturating_mul(4);
        let least = SPARE.saturating_add(round).saturating_add(round / 4).saturating_add(commits);
        least.min(log_blocks / 2)
    }

    /// Free blocks that may not last until commits have flushed a round and updated the tail: one
    /// transaction for each.
    pub(crate) fn urgent(&self) -> u32 {
        SPARE.saturating_add(self.transaction.saturating_mul(2))
    }

    /// How long it takes until the log rests, if nothing is committed. `running`: a transaction
    /// is running, so it will be committed.
    pub(crate) fn until_rest(&self, running: bool, now: Duration) -> Duration {
        if running { REST } else { REST.saturating_sub(now.saturating_sub(self.last_commit)) }
    }
}

fn fading(value: u32) -> u32 {
    value - value / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_the_last_rounds_and_transactions_count() {
        let mut pace = Pace::default();
        assert_eq!(pace.least_free(1024), SPARE + 256 + 64, "before the first round");
        pace.committed(40, Duration::ZERO);
        pace.begin_round(1000);
        pace.end_round(1080);
        assert_eq!(pace.least_free(1024), SPARE + 80 + 20 + 160);
        pace.committed(8, Duration::ZERO);
        pace.begin_round(1100);
        pace.end_round(1100);
        assert_eq!(pace.least_free(1024), SPARE + 70 + 17 + 140);
        pace.end_round(9999);
        assert_eq!(pace.least_free(1024), SPARE + 70 + 17 + 140, "no round has begun");
        assert_eq!(pace.urgent(), SPARE + 70);
        pace.committed(250, Duration::ZERO);
        assert_eq!(pace.least_free(1024), 512, "half of it may be in use");
    }

    #[test]
    fn a_rest_begins_after_the_last_commit() {
        let mut pace = Pace::default();
        let second = Duration::from_secs(1);
        pace.committed(1, second);
        assert_eq!(pace.until_rest(false, second), REST);
        assert_eq!(pace.until_rest(false, second + REST / 4), REST * 3 / 4);
        assert_eq!(pace.until_rest(false, 2 * second), Duration::ZERO);
        assert_eq!(pace.until_rest(true, 2 * second), REST);
    }

    #[test]
    fn percentages_are_of_the_log() {
        assert_eq!((KeepFree::AsNeeded.most(1000), KeepFree::Percent(7).most(1000)), (500, 70));
        assert!(KeepFree::check(Some(KeepFree::Percent(100))).is_err());
        assert!(KeepFree::check(Some(KeepFree::AsNeeded)).is_ok());
    }
}
