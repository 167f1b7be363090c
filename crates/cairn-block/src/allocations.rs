//! Counts the allocations of memory, for measurements. The allocator of the program
//! ([`crate::reserve::Reserving`]) reports each one; outside a measurement that costs one load.
//!
//! Locking: none. Measurements that overlap count each other's allocations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static MEASUREMENTS: AtomicU32 = AtomicU32::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Allocations of all threads. A block that grows or shrinks counts once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Number.
    pub calls: u64,
    /// The bytes that were asked for.
    pub bytes: u64,
}

/// Does `work` and counts the allocations of all threads meanwhile. None are counted if the program
/// has another allocator.
pub fn during<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    /// Ends the measurement, also after a panic.
    struct Measurement;
    impl Drop for Measurement {
        fn drop(&mut self) {
            MEASUREMENTS.fetch_sub(1, Ordering::Relaxed);
        }
    }
    MEASUREMENTS.fetch_add(1, Ordering::Relaxed);
    let measurement = Measurement;
    let before = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let result = work();
    let calls = CALLS.load(Ordering::Relaxed) - before.0;
    let bytes = BYTES.load(Ordering::Relaxed) - before.1;
    drop(measurement);
    (result, Allocations { calls, bytes })
}

/// Reports an allocation.
#[inline]
pub(crate) fn note(bytes: usize) {
    if MEASUREMENTS.load(Ordering::Relaxed) > 0 {
        count(bytes);
    }
}

#[cold]
fn count(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}
