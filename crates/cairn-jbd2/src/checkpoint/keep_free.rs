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
/// A round of fewer blocks takes as long as its flush, and does not say how fast blocks are
/// written.
const MANY: u64 = 32;
/// Most log blocks freed with one flush and one superblock write.
pub(super) const ROUND_MAX: u32 = 8192;

/// Log blocks that a round of the daemon frees at least: an eighth of the log, because each round
/// costs a flush or a write of the superblock.
pub(crate) fn round_of(log_blocks: u32) -> u32 {
    (log_blocks / 8).min(ROUND_MAX)
}

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

/// How fast the log fills, and how fast the device writes blocks home. The largest of the last
/// values counts, so that one small transaction, or one round of few blocks, makes no difference.
#[derive(Default)]
pub(crate) struct Pace {
    /// Log blocks of a transaction.
    transaction: u32,
    /// Log blocks allocated while the daemon writes a round. Unknown before the first.
    round: Option<u32>,
    /// Time to write a block home, in nanoseconds.
    home_block: u32,
    /// The round under way.
    began: Option<Began>,
    /// When a transaction was last written to the log.
    last_commit: Duration,
    /// Log blocks of the last transactions, in 1/256, and the time that they took. Both fade.
    recent_blocks: u64,
    recent_time: Duration,
}

/// When a round began.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    pub(crate) at: Duration,
    /// Log blocks that had been allocated.
    pub(crate) allocated: u64,
    /// Blocks that had been written home.
    pub(crate) written: u64,
}

impl Pace {
    /// A transaction of so many log blocks is written.
    pub(crate) fn committed(&mut self, log_blocks: u32, now: Duration) {
        self.transaction = fading(self.transaction).max(log_blocks);
        let gap = now.saturating_sub(self.last_commit).min(REST);
        self.recent_time = self.recent_time - self.recent_time / 8 + gap;
        self.recent_blocks =
            self.recent_blocks - self.recent_blocks / 8 + 256 * u64::from(log_blocks);
        self.last_commit = now;
    }

    /// A round begins.
    pub(crate) fn begin_round(&mut self, now: Began) {
        self.began = Some(now);
    }

    /// The round ends.
    pub(crate) fn end_round(&mut self, now: Began) {
        let Some(began) = self.began.take() else { return };
        let filled = now.allocated.saturating_sub(began.allocated);
        let filled = u32::try_from(filled).unwrap_or(u32::MAX);
        self.round = Some(self.round.map_or(filled, |round| fading(round).max(filled)));
        let written = now.written.saturating_sub(began.written);
        if written >= MANY {
            let took = now.at.saturating_sub(began.at).as_nanos();
            let each = u32::try_from(took / u128::from(written)).unwrap_or(u32::MAX);
            self.home_block = fading(self.home_block).max(each);
        }
    }

    /// Log blocks that fill while so many blocks are written home.
    fn filled_during(&self, home_blocks: u32) -> u32 {
        let time = u128::from(home_blocks) * u128::from(self.home_block);
        let filled =
            (time * u128::from(self.recent_blocks) / 256).checked_div(self.recent_time.as_nanos());
        filled.map_or(0, |filled| u32::try_from(filled).unwrap_or(u32::MAX))
    }

    /// Free blocks of a log of `log_blocks` with which a round must begin: what is allocated while
    /// it is written, and two transactions each for the commit whose flush covers it and for the
    /// one that frees its blocks. At most half of the log.
    ///
    /// A round of few blocks says little of the next one. So what fills during a round of
    /// `home_blocks` is also calculated, and doubled, because commits share the device with it.
    pub(crate) fn least_free(&self, log_blocks: u32, home_blocks: u32) -> u32 {
        let seen = self.round.unwrap_or(log_blocks / 4);
        let expected = self.filled_during(home_blocks).saturating_mul(2);
        let round = seen.saturating_add(seen / 4).max(expected);
        let commits = self.transaction.saturating_mul(4);
        let least = SPARE.saturating_add(round).saturating_add(commits);
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

    fn at(milliseconds: u64, allocated: u64, written: u64) -> Began {
        Began { at: Duration::from_millis(milliseconds), allocated, written }
    }

    #[test]
    fn the_largest_of_the_last_rounds_and_transactions_count() {
        let mut pace = Pace::default();
        assert_eq!(pace.least_free(1024, 0), SPARE + 256 + 64, "before the first round");
        pace.committed(40, Duration::ZERO);
        pace.begin_round(at(0, 1000, 0));
        pace.end_round(at(0, 1080, 0));
        assert_eq!(pace.least_free(1024, 0), SPARE + 80 + 20 + 160);
        pace.committed(8, Duration::ZERO);
        pace.begin_round(at(0, 1100, 0));
        pace.end_round(at(0, 1100, 0));
        assert_eq!(pace.least_free(1024, 0), SPARE + 70 + 17 + 140);
        pace.end_round(at(0, 9999, 9999));
        assert_eq!(pace.least_free(1024, 0), SPARE + 70 + 17 + 140, "no round has begun");
        assert_eq!(pace.urgent(), SPARE + 70);
        pace.committed(250, Duration::ZERO);
        assert_eq!(pace.least_free(1024, 0), 512, "half of it may be in use");
    }

    /// Rounds of few blocks, or between commits, allocated nothing. So the first round of many
    /// blocks began too late, and all handles waited for log space.
    #[test]
    fn the_blocks_of_the_next_round_count() {
        let mut pace = Pace::default();
        pace.begin_round(at(0, 0, 0));
        pace.end_round(at(9, 0, 180));
        for number in 1..=64 {
            pace.committed(8, Duration::from_millis(2 * number));
        }
        pace.begin_round(at(128, 512, 180));
        pace.end_round(at(128, 512, 181));
        // 50 us for a block home, and four log blocks in a millisecond.
        assert_eq!(pace.least_free(1024, 0), SPARE + 32);
        assert_eq!(pace.least_free(1024, 100), SPARE + 32 + 2 * 20);
        assert_eq!(pace.least_free(1024, 300), SPARE + 32 + 2 * 60);
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
