use std::collections::HashSet;

use super::*;
use crate::memory::MemoryDevice;
use crate::wrap::{Fault, Lasting, Operation};

fn recorded() -> Record {
    Record::new(Arc::new(MemoryDevice::new(1 << 16)))
}

fn write(offset: u64, byte: u8, fua: bool) -> Event {
    Event::Write { offset, data: Bytes::from(vec![byte; 2]), fua }
}

#[test]
fn changes_and_barriers_are_logged_in_order() {
    let device = recorded();
    device.write_at(0, vec![1; 2]).unwrap();
    device.write_durable(8, vec![2; 2], Durability { preflush: true, fua: true }).unwrap();
    device.discard(16, 4).unwrap();
    device.write_zeroes(24, 4).unwrap();
    device.read_at(0, 8).unwrap();
    device.flush().unwrap();
    let log = device.log();
    let discard = Event::Discard { offset: 16, len: 4, fua: false };
    let zeroes = Event::WriteZeroes { offset: 24, len: 4, fua: false };
    assert_eq!(
        log.events,
        [write(0, 1, false), Event::Flush, write(8, 2, true), discard, zeroes, Event::Flush]
    );
    assert_eq!(log.epochs(), [vec![0], vec![2, 3, 4], vec![]]);
    assert_eq!(log.end, 12);
    assert!(log.spans.iter().all(|span| span.completed == Some(span.submitted + 1)));
}

#[test]
fn a_crash_keeps_what_was_flushed_and_may_keep_the_rest() {
    let device = recorded();
    device.write_at(0, vec![1; 2]).unwrap();
    let flushed_at = {
        device.flush().unwrap();
        device.moment()
    };
    device.write_at(0, vec![2; 2]).unwrap();
    device.write_durable(4, vec![3; 2], Durability { preflush: false, fua: true }).unwrap();
    let log = device.log();
    let point = |durable: &[usize], volatile: &[usize]| CrashPoint {
        durable: durable.into(),
        volatile: volatile.into(),
    };
    assert_eq!(log.crash_point(0), point(&[], &[]));
    assert_eq!(
        log.crash_point(flushed_at - 1),
        point(&[], &[0]),
        "the flush has not completed yet"
    );
    assert_eq!(log.crash_point(flushed_at), point(&[0], &[]));
    assert_eq!(
        log.crash_point(log.end - 1),
        point(&[0], &[2, 3]),
        "forced unit access counts from completion"
    );
    assert_eq!(log.crash_point(log.end), point(&[0, 3], &[2]));
}

#[test]
fn all_crash_states_of_two_writes_and_a_commit_can_be_built() {
    let device = recorded();
    device.write_at(0, vec![1]).unwrap();
    device.write_at(1, vec![2]).unwrap();
    device.write_durable(2, vec![3], Durability { preflush: true, fua: true }).unwrap();
    let log = device.log();
    let mut states = HashSet::new();
    for moment in 0..=log.end {
        let point = log.crash_point(moment);
        for chosen in 0..1_u32 << point.volatile.len() {
            let extra = point
                .volatile
                .iter()
                .enumerate()
                .filter(|(bit, _)| chosen >> bit & 1 == 1)
                .map(|(_, at)| *at);
            let crashed = MemoryDevice::new(1 << 16);
            log.apply(&crashed, point.durable.iter().copied().chain(extra)).unwrap();
            states.insert(crashed.read_at(0, 3).unwrap().to_vec());
        }
    }
    let expected =
        [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]].map(|state| state.to_vec());
    assert_eq!(
        states,
        HashSet::from(expected),
        "the commit is never there without what it commits"
    );
}

/// Lets a flush be caught in the middle: it waits for a write that another thread makes meanwhile.
struct SlowFlush {
    inner: MemoryDevice,
    entered: std::sync::Barrier,
    leave: std::sync::Barrier,
}

impl BlockDevice for SlowFlush {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.entered.wait();
        self.leave.wait();
        Ok(())
    }
}

#[test]
fn a_write_made_while_a_flush_is_under_way_is_not_covered_by_it() {
    let inner = MemoryDevice::new(64);
    let slow = Arc::new(SlowFlush {
        inner,
        entered: std::sync::Barrier::new(2),
        leave: std::sync::Barrier::new(2),
    });
    let device = Record::new(slow.clone());
    device.write_at(0, vec![1]).unwrap();
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| device.flush());
        slow.entered.wait();
        device.write_at(1, vec![2]).unwrap();
        slow.leave.wait();
        flushing.join().unwrap().unwrap();
    });
    let log = device.log();
    assert_eq!(log.events[1], Event::Flush);
    assert_eq!(log.epochs(), [vec![0], vec![2]]);
    assert_eq!(log.crash_point(log.end), CrashPoint { durable: vec![0], volatile: vec![2] });
    let during = log.spans[2].completed.unwrap() + 1;
    assert_eq!(log.crash_point(during), CrashPoint { durable: vec![], volatile: vec![0, 2] });
}

#[test]
fn a_failed_flush_covers_nothing_and_a_failed_write_stays_volatile() {
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(64))));
    let device = Record::new(fault.clone());
    device.write_at(0, vec![1]).unwrap();
    fault.fail_next(Operation::Flush, Lasting::Once);
    device.write_durable(1, vec![2], Durability { preflush: true, fua: true }).unwrap_err();
    assert_eq!(device.log().events.len(), 2, "nothing follows a failed preflush");
    assert_eq!(device.log().crash_point(u64::MAX).volatile, [0]);
    fault.fail_next(Operation::Write, Lasting::Once);
    device.write_at(2, vec![3]).unwrap_err();
    device.flush().unwrap();
    let log = device.log();
    assert_eq!(log.crash_point(log.end), CrashPoint { durable: vec![0], volatile: vec![2] });
    assert_eq!(log.epochs(), [vec![0], vec![2]]);
}

#[test]
fn replaying_everything_gives_the_device_also_after_contention() {
    let memory = Arc::new(MemoryDevice::new(1 << 16));
    let device = Record::new(memory.clone());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let device = &device;
            scope.spawn(move || {
                for n in 0..200_u64 {
                    device
                        .write_at((u64::from(thread) << 14) + n * 32, vec![thread + 1; 48])
                        .unwrap();
                    if n % 50 == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
    let log = device.log();
    assert_eq!((log.events.len(), log.end), (816, 1632));
    let copy = MemoryDevice::new(1 << 16);
    log.apply(&copy, 0..log.events.len()).unwrap();
    assert!(copy.read_at(0, 1 << 16).unwrap()[..] == memory.read_at(0, 1 << 16).unwrap()[..]);
    let grouped: usize = log.epochs().iter().map(Vec::len).sum();
    assert_eq!(grouped, 800);
}
