//! Counters that many threads raise without waiting for each other.
//!
//! The name of the field that holds a counter ends with its unit (`wait_ns`, `read_bytes`).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use serde::Serialize;

pub mod report;

pub use report::{Report, Value};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Raises it by `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Changes it by `delta`.
    pub fn add(&self, delta: i64) {
        self.0.fetch_add(delta, Relaxed);
    }

    /// Replaces it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Each power of two has this many buckets: a quantile is at most one eighth too high.
const STEPS: u64 = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Each value below `STEPS` has a bucket; the powers of two from `STEPS` to 2^63 have `STEPS` each.
const BUCKETS: usize = ((u64::BITS - STEP_BITS + 1) as usize) * STEPS as usize;

/// How often each magnitude of a value occurred, on a logarithmic scale.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    total: AtomicU64,
    max: AtomicU64,
}

/// A histogram's figures, in the unit of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Values recorded.
    pub count: u64,
    /// Their sum (modulo 2^64).
    pub total: u64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// 99 of 100 values are at most this.
    pub p99: u64,
    /// The greatest value.
    pub max: u64,
}

impl Histogram {
    /// Nothing recorded.
    #[must_use]
    pub fn new() -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, total: AtomicU64::new(0), max: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.buckets[bucket(value)].fetch_add(1, Relaxed);
        self.total.fetch_add(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
    }

    /// Values recorded so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// The sum of the values (modulo 2^64).
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The greatest value, 0 if none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The median, at most one eighth too high.
    #[must_use]
    pub fn p50(&self) -> u64 {
        self.summary().p50
    }

    /// The value that 99 of 100 do not exceed, at most one eighth too high.
    #[must_use]
    pub fn p99(&self) -> u64 {
        self.summary().p99
    }

    /// How many values there are at most `2^n - 1` and above the bound before, for each power that
    /// has some: pairs of bound and number, in order.
    #[must_use]
    pub fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers: Vec<(u64, u64)> = Vec::new();
        for (index, bucket) in self.buckets.iter().enumerate() {
            let count = bucket.load(Relaxed);
            let bound = u64::MAX >> upper_bound(index).leading_zeros().min(u64::BITS - 1);
            match powers.last_mut() {
                _ if count == 0 => {}
                Some((last, so_far)) if *last == bound => *so_far += count,
                _ => powers.push((bound, count)),
            }
        }
        powers
    }

    /// All figures, taken from one pass over the buckets.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count = counts.iter().sum();
        let max = self.max();
        let quantile = |percent: u64| quantile(&counts, count, percent).min(max);
        Summary { count, total: self.total(), p50: quantile(50), p99: quantile(99), max }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket(value: u64) -> usize {
    let index = match value.checked_ilog2() {
        Some(power) if power >= STEP_BITS => {
            let shift = power - STEP_BITS;
            u64::from(shift) * STEPS + (value >> shift)
        }
        _ => value,
    };
    index as usize
}

/// The greatest value that falls into a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let lowest = (STEPS + bucket % STEPS) << shift;
    lowest + ((1 << shift) - 1)
}

fn quantile(counts: &[u64], count: u64, percent: u64) -> u64 {
    let wanted = (u128::from(count) * u128::from(percent)).div_ceil(100);
    let mut seen = 0;
    for (index, n) in counts.iter().enumerate() {
        seen += u128::from(*n);
        if seen >= wanted && seen > 0 {
            return upper_bound(index);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_in_order() {
        for bucket_index in 0..BUCKETS {
            let upper = upper_bound(bucket_index);
            assert_eq!(bucket(upper), bucket_index);
            if let Some(next) = upper.checked_add(1) {
                assert_eq!(bucket(next), bucket_index + 1);
            }
        }
        assert_eq!(upper_bound(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_high() {
        let histogram = Histogram::new();
        for value in 1..=10_000 {
            histogram.record(value);
        }
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.total, summary.max), (10_000, 50_005_000, 10_000));
        assert!((5_000..=5_625).contains(&summary.p50), "{}", summary.p50);
        assert!((9_900..=10_000).contains(&summary.p99), "{}", summary.p99);
        assert_eq!(Histogram::new().summary(), Summary::default());
    }

    #[test]
    fn powers_of_two_count_every_value_once() {
        let histogram = Histogram::new();
        for value in [0, 1, 2, 3, 7, 8, 1023, 1024, u64::MAX] {
            histogram.record(value);
        }
        let powers = [(1, 2), (3, 2), (7, 1), (15, 1), (1023, 1), (2047, 1), (u64::MAX, 1)];
        assert_eq!(histogram.powers(), powers);
        assert_eq!(Histogram::new().powers(), []);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let (counter, gauge, histogram) = (Counter::new(), Gauge::new(), Histogram::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (counter, gauge, histogram) = (&counter, &gauge, &histogram);
                scope.spawn(move || {
                    for n in 0..10_000 {
                        counter.add(2);
                        gauge.add(if thread % 2 == 0 { 1 } else { -1 });
                        histogram.record(n);
                    }
                });
            }
        });
        assert_eq!((counter.get(), gauge.get()), (80_000, 0));
        assert_eq!((histogram.count(), histogram.max()), (40_000, 9_999));
    }
}
