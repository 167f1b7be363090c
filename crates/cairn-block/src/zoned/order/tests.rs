//! Writes that come in any order, from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::device::BlockDeviceExt;
use crate::memory::MemoryDevice;
use crate::wrap::{Fault, Stats};
use crate::zoned::violation::ZoneRule;
use crate::zoned::{Emulated, ZoneLayout};

const ZONE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

fn emulated() -> Arc<Emulated> {
    let layout = ZoneLayout::new(ZONE, 1, 8);
    Arc::new(Emulated::new(Arc::new(MemoryDevice::new(layout.size())), layout).unwrap())
}

fn write(device: &dyn BlockDevice, offset: u64, byte: u8) -> Completion {
    let requests = vec![Request::Write { offset, bufs: vec![vec![byte; BLOCK as usize].into()] }];
    device.submit(Batch { requests, ..Batch::default() })
}

#[test]
fn what_comes_early_waits_without_a_thread() {
    let stats = Arc::new(Stats::new(emulated()));
    let device = ZoneOrder::new(stats.clone()).unwrap();
    let late: Vec<Completion> =
        (1..10).rev().map(|block| write(&device, ZONE + block * BLOCK, block as u8)).collect();
    assert_eq!(stats.snapshot().writes, 0);
    write(&device, ZONE, 0).wait().unwrap();
    late.into_iter().for_each(|completion| drop(completion.wait().unwrap()));
    assert_eq!(stats.snapshot().writes, 1, "what waited goes out with it");
    let bytes = device.read_at(ZONE, 10 * BLOCK as usize).unwrap();
    assert!((0..10).all(|block| bytes[block * BLOCK as usize] == block as u8));
}

#[test]
fn a_batch_may_mix_everything() {
    let device = ZoneOrder::new(emulated()).unwrap();
    device.write_at(100, vec![9; 50]).unwrap();
    let bufs = || vec![vec![1; BLOCK as usize].into()];
    let requests = vec![
        Request::Read { offset: 100, buf: crate::IoBuf::zeroed(50) },
        Request::Write { offset: ZONE + BLOCK, bufs: bufs() },
        Request::Write { offset: 0, bufs: vec![vec![2; 7].into()] },
        Request::Write { offset: ZONE, bufs: bufs() },
        Request::Read { offset: 0, buf: crate::IoBuf::zeroed(1) },
    ];
    let durability = Durability { preflush: true, fua: true };
    let bufs = device.submit(Batch { requests, durability }).wait().unwrap();
    assert_eq!((bufs.len(), &bufs[0][..]), (2, &[9; 50][..]));
    assert_eq!(device.as_zoned().unwrap().report(ZONE, 1).unwrap()[0].written(), 2 * BLOCK);
}

#[test]
fn a_zone_is_begun_when_the_device_has_room_for_it() {
    let layout = ZoneLayout { capacity: 4 * BLOCK, max_active: 2, ..ZoneLayout::new(ZONE, 1, 8) };
    let stats = Arc::new(Stats::new(Arc::new(
        Emulated::new(Arc::new(MemoryDevice::new(layout.size())), layout).unwrap(),
    )));
    let device = ZoneOrder::new(stats.clone()).unwrap();
    let zone = |zone: u64, block: u64| zone * ZONE + block * BLOCK;
    (1..3).for_each(|number| drop(write(&device, zone(number, 0), 1).wait().unwrap()));
    let mut waiting: Vec<_> = (3..6).map(|number| write(&device, zone(number, 0), 2)).collect();
    assert_eq!(stats.snapshot().writes, 2);
    // One ends by being full, one by its reset, one by being given up: then the device says what it
    // thinks of one more.
    (1..4).for_each(|block| drop(write(&device, zone(1, block), 1).wait().unwrap()));
    waiting.remove(0).wait().unwrap();
    device.begin_anew(zone(2, 0));
    device.start_reset(zone(2, 0)).unwrap().carry_out().unwrap();
    waiting.remove(0).wait().unwrap();
    device.give_up(zone(3, 1));
    let refused = waiting.remove(0).wait().unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::ZoneRule(violation)
            if violation.rule == ZoneRule::ActiveLimit));
    // What a new order finds active counts.
    drop(device);
    let device = ZoneOrder::new(stats.clone()).unwrap();
    let before = stats.snapshot().writes;
    let late = write(&device, zone(6, 0), 3);
    assert_eq!(stats.snapshot().writes, before);
    device.finish(zone(3, 0)).unwrap();
    late.wait().unwrap();
}

/// Places are taken zone after zone; the last writes to a zone may come after the first ones to the
/// next.
#[test]
fn threads_never_exceed_the_active_zones() {
    let layout = ZoneLayout { max_active: 2, max_open: 1, ..ZoneLayout::new(64 * BLOCK, 0, 64) };
    let emulated =
        Arc::new(Emulated::new(Arc::new(MemoryDevice::new(layout.size())), layout).unwrap());
    let device = Arc::new(ZoneOrder::new(emulated).unwrap());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (device, next) = (&device, &next);
            scope.spawn(move || {
                let mut sent = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= 64 * 64 {
                        break;
                    }
                    sent.push(write(&**device, at * BLOCK, at as u8));
                    if at % 5 == thread {
                        sent.drain(..).for_each(|completion| drop(completion.wait().unwrap()));
                    }
                }
                sent.into_iter().for_each(|completion| drop(completion.wait().unwrap()));
            });
        }
    });
    let zones = device.as_zoned().unwrap().report(0, usize::MAX).unwrap();
    assert!(zones.iter().all(|zone| zone.write_pointer == zone.writable_end()));
}

#[test]
fn threads_share_a_zone() {
    let device = Arc::new(ZoneOrder::new(emulated()).unwrap());
    // Places are taken in order, writes are not sent in it: as logs are filled.
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (device, next) = (&device, &next);
            scope.spawn(move || {
                let mut held = Vec::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= 7 * ZONE / BLOCK {
                        break;
                    }
                    held.push(at);
                    if (at + thread).is_multiple_of(3) {
                        let sent: Vec<_> = held
                            .drain(..)
                            .rev()
                            .map(|at| write(&**device, ZONE + at * BLOCK, at as u8))
                            .collect();
                        sent.into_iter().for_each(|completion| drop(completion.wait().unwrap()));
                    }
                }
                held.into_iter().for_each(|at| {
                    drop(write(&**device, ZONE + at * BLOCK, at as u8).wait().unwrap())
                });
            });
        }
    });
    let bytes = device.read_at(ZONE, 7 * ZONE as usize).unwrap();
    assert!(
        bytes
            .chunks_exact(BLOCK as usize)
            .enumerate()
            .all(|(at, block)| block.iter().all(|byte| *byte == at as u8))
    );
}

#[test]
fn what_waits_behind_a_gap_that_stays_is_told() {
    let device = ZoneOrder::new(emulated()).unwrap();
    let behind = write(&device, ZONE + 2 * BLOCK, 1);
    let other_zone = write(&device, 2 * ZONE + BLOCK, 1);
    device.give_up(ZONE + BLOCK);
    assert!(behind.wait().is_err());
    assert!(write(&device, ZONE, 1).wait().is_err(), "the zone is lost until its reset");
    write(&device, 2 * ZONE, 1).wait().unwrap();
    other_zone.wait().unwrap();
    let view = device.as_zoned().unwrap();
    view.finish(2 * ZONE).unwrap();
    view.reset(ZONE).unwrap();
    write(&device, ZONE, 1).wait().unwrap();
    device.give_up(0);
    device.write_at(0, vec![1]).unwrap();
}

#[test]
fn a_failed_write_fails_what_is_behind_it() {
    let fault = Arc::new(Fault::new(emulated()));
    let device = ZoneOrder::new(fault.clone()).unwrap();
    write(&device, ZONE, 1).wait().unwrap();
    let behind = write(&device, ZONE + 2 * BLOCK, 1);
    fault.fail_range(crate::wrap::Operation::Write, ZONE + BLOCK..ZONE + 2 * BLOCK);
    assert!(write(&device, ZONE + BLOCK, 1).wait().is_err());
    assert!(behind.wait().is_err());
    device.as_zoned().unwrap().reset(ZONE).unwrap();
    write(&device, ZONE, 1).wait().unwrap();
}

#[test]
fn rules_are_still_the_devices() {
    let device = ZoneOrder::new(emulated()).unwrap();
    write(&device, ZONE, 1).wait().unwrap();
    let error = write(&device, ZONE, 1).wait().unwrap_err();
    assert!(matches!(error.kind, ErrorKind::ZoneRule(violation)
            if violation.rule == ZoneRule::WritePointer));
    assert_eq!(
        ZoneOrder::new(Arc::new(MemoryDevice::new(1))).err().unwrap().kind,
        ErrorKind::Unsupported
    );
}

#[test]
fn a_zone_that_is_begun_anew_is_reset_first() {
    let device = ZoneOrder::new(emulated()).unwrap();
    assert_eq!((device.next(0), device.next(ZONE + 77)), (None, Some(ZONE)));
    device.begin_anew(ZONE);
    write(&device, ZONE, 1).wait().unwrap();
    write(&device, ZONE + BLOCK, 1).wait().unwrap();
    device.begin_anew(ZONE);
    assert_eq!(device.next(ZONE), Some(ZONE));
    let early = write(&device, ZONE + BLOCK, 3);
    assert_eq!(device.as_zoned().unwrap().report(ZONE, 1).unwrap()[0].written(), 2 * BLOCK);
    write(&device, ZONE, 2).wait().unwrap();
    early.wait().unwrap();
    assert_eq!(
        (device.read_at(ZONE, 1).unwrap()[0], device.read_at(ZONE + BLOCK, 1).unwrap()[0]),
        (2, 3)
    );
    device.give_up(ZONE + 5 * BLOCK);
    device.begin_anew(ZONE);
    write(&device, ZONE, 4).wait().unwrap();
    device.begin_anew(0);
}

#[test]
fn writes_wait_for_a_started_reset() {
    let device = ZoneOrder::new(emulated()).unwrap();
    assert!(device.start_reset(ZONE).is_none(), "it is empty");
    assert!(device.start_reset(0).is_none() && device.start_reset(ZONE + BLOCK).is_none());
    write(&device, ZONE, 1).wait().unwrap();
    let waiting = write(&device, ZONE + 2 * BLOCK, 1);
    assert!(device.start_reset(ZONE).is_none(), "it is in use");
    write(&device, ZONE + BLOCK, 1).wait().unwrap();
    waiting.wait().unwrap();
    let reset = device.start_reset(ZONE).unwrap();
    assert!(device.start_reset(ZONE).is_none());
    device.begin_anew(ZONE);
    let (next, first) = (write(&device, ZONE + BLOCK, 6), write(&device, ZONE, 5));
    reset.carry_out().unwrap();
    first.wait().unwrap();
    next.wait().unwrap();
    assert_eq!(device.as_zoned().unwrap().report(ZONE, 1).unwrap()[0].written(), 2 * BLOCK);
    assert_eq!(device.read_at(ZONE, 1).unwrap()[0], 5);
    // One that is dropped is made up for by the next write.
    drop(device.start_reset(ZONE).unwrap());
    write(&device, ZONE, 7).wait().unwrap();
    assert_eq!(device.read_at(ZONE, 1).unwrap()[0], 7);
}

#[test]
fn a_write_may_cross_zones() {
    let device = ZoneOrder::new(emulated()).unwrap();
    let block = |byte: u8| vec![byte; BLOCK as usize].into();
    // The end of a whole zone and the beginning of the next; before that its own beginning is
    // missing.
    let whole: Vec<Bytes> = (0..ZONE / BLOCK).map(|at| block(at as u8)).collect();
    let bufs = [&whole[1..], &[block(77), block(78)]].concat();
    let odd = [bufs.concat().into()].to_vec();
    let crossing = device.submit(Batch {
        requests: vec![Request::Write { offset: ZONE + BLOCK, bufs: odd }],
        ..Batch::default()
    });
    write(&device, ZONE, 0).wait().unwrap();
    crossing.wait().unwrap();
    assert_eq!(
        device.read_at(ZONE, (ZONE + 2 * BLOCK) as usize).unwrap()[BLOCK as usize..],
        bufs.concat()[..]
    );
    // From the conventional zone into three others.
    let view = device.as_zoned().unwrap();
    (1..4).for_each(|zone| view.reset(zone * ZONE).unwrap());
    let bufs = (0..(2 * ZONE + 2 * BLOCK) / BLOCK).map(|at| block(at as u8)).collect();
    let requests = vec![Request::Write { offset: ZONE - BLOCK, bufs }];
    device.submit(Batch { requests, ..Batch::default() }).wait().unwrap();
    let written: Vec<u64> = view.report(ZONE, 3).unwrap().iter().map(Zone::written).collect();
    assert_eq!(written, [ZONE, ZONE, BLOCK]);
    assert_eq!(device.read_at(3 * ZONE, 1).unwrap()[0], (2 * ZONE / BLOCK + 1) as u8);
}
