use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Flushing, Hold, Stats};
use cairn_block::{BlockDevice, BlockDeviceExt, Durability};

use super::{FlushOrigin, Flushes, Ledger, Part};

#[test]
fn only_a_flush_that_began_after_the_write_covers_it() {
    let flushes = Flushes::new(Arc::new(MemoryDevice::new(1 << 16)), Threads::new());
    let ledger = Ledger::<u64>::fresh(&flushes);
    assert_eq!(ledger.written(), None);
    ledger.wrote();
    let mark = ledger.written().unwrap();
    assert!(!flushes.is_covered(mark));
    flushes.flush().unwrap();
    assert!(flushes.is_covered(mark));
    assert_eq!(flushes.cover(mark).unwrap(), FlushOrigin::Already);
    // A preflush covers earlier writes.
    ledger.wrote();
    let barrier = Durability { preflush: true, fua: true };
    flushes.write_durable(0, vec![1; 4096], barrier).unwrap();
    assert!(flushes.is_covered(ledger.written().unwrap()));
    flushes.write_durable(0, vec![1; 4096], Durability { preflush: false, fua: true }).unwrap();
    ledger.wrote();
    assert_eq!(flushes.cover(ledger.written().unwrap()).unwrap(), FlushOrigin::Flushed);
}

#[test]
fn no_caller_returns_before_the_flush_that_covers_its_mark_has_succeeded() {
    let stats = Arc::new(Stats::new(Arc::new(MemoryDevice::new(1 << 16))));
    let device = Arc::new(Hold::new(stats.clone()));
    let flushes = Flushes::new(device.clone(), Threads::new());
    let mark = flushes.mark();
    device.set(Flushing::Held);
    let returned = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let wait = || {
            let covered = flushes.cover(mark).unwrap();
            returned.fetch_add(1, Ordering::SeqCst);
            covered
        };
        let both = [scope.spawn(wait), scope.spawn(wait)];
        device.wait_for(1);
        // A flush in progress does not cover later writes.
        let late = flushes.mark();
        assert!(late > mark && returned.load(Ordering::SeqCst) == 0);
        device.set(Flushing::Free);
        let how = both.map(|thread| thread.join().unwrap());
        assert_eq!(how.iter().filter(|how| **how == FlushOrigin::Flushed).count(), 1, "{how:?}");
        assert!(!flushes.is_covered(late));
    });
    assert_eq!(stats.snapshot().flushes, 1, "one flush served both");
}

#[test]
fn all_waiters_of_a_failed_flush_get_the_error() {
    let device = Arc::new(Hold::new(Arc::new(MemoryDevice::new(1 << 16))));
    let flushes = Flushes::new(device.clone(), Threads::new());
    let mark = flushes.mark();
    device.set(Flushing::Held);
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| flushes.cover(mark)), scope.spawn(|| flushes.cover(mark))];
        device.wait_for(1);
        device.set(Flushing::Failing);
        both.into_iter().for_each(|thread| drop(thread.join().unwrap().unwrap_err()));
    });
    assert!(!flushes.is_covered(mark));
    device.set(Flushing::Free);
    assert_eq!(flushes.cover(mark).unwrap(), FlushOrigin::Flushed);
}

/// Writers in a closed loop on a slow device, where flushes wait for further callers: none returns
/// without a flush that began after its call. How many share one depends on the machine.
#[test]
fn calls_that_are_waited_for_are_covered() {
    const WRITERS: u64 = 8;
    const CALLS: u64 = 20;
    let stats = Arc::new(Stats::new(Arc::new(Slow(MemoryDevice::new(1 << 16)))));
    let flushes = Flushes::new(stats.clone(), Threads::new());
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..CALLS {
                    let mark = flushes.mark();
                    flushes.cover(mark).unwrap();
                    assert!(flushes.is_covered(mark));
                }
            });
        }
    });
    let count = stats.snapshot().flushes;
    assert!(count >= CALLS, "{count} flushes for {WRITERS} times {CALLS} calls");
}

/// A device whose flush takes ten milliseconds.
struct Slow(MemoryDevice);

impl BlockDevice for Slow {
    fn geometry(&self) -> cairn_block::Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: cairn_block::Batch) -> cairn_block::Completion {
        self.0.submit(batch)
    }

    fn flush(&self) -> cairn_block::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(10));
        self.0.flush()
    }
}

#[test]
fn a_loaded_inode_is_as_durable_as_what_is_under_way() {
    let flushes = Flushes::new(Arc::new(MemoryDevice::new(1 << 16)), Threads::new());
    let ledger = Ledger::loaded(&flushes, &[Part::Attributes, Part::Data], 7_u64);
    assert!(!flushes.is_covered(ledger.written().unwrap()));
    assert!(ledger.changed_in(Part::Attributes, 7) && ledger.changed_in(Part::Data, 7));
    assert_eq!(ledger.last_change(Part::Names), None);
    ledger.changed(Part::Data, 9);
    assert_eq!(
        (ledger.last_change(Part::Data), ledger.last_change(Part::Attributes)),
        (Some(9), Some(7))
    );
}
