//! Breaks every rule once, and checks the state afterwards.

use super::*;
use crate::IoBuf;
use crate::memory::MemoryDevice;
use crate::zoned::violation::ZoneRule;
use crate::zoned::{ZoneCondition, ZoneKind, create_image, open_image};

const K: u64 = 1024;
const ZONE: u64 = 64 * K;

/// Two conventional zones, six sequential ones of 48 KiB in 64 KiB.
fn layout() -> ZoneLayout {
    ZoneLayout { capacity: 48 * K, ..ZoneLayout::new(ZONE, 2, 8) }
}

fn device(layout: ZoneLayout) -> Emulated {
    Emulated::new(Arc::new(MemoryDevice::new(layout.size())), layout).unwrap()
}

fn zone(device: &dyn BlockDevice, number: u64) -> Zone {
    device.as_zoned().unwrap().report(number * ZONE, 1).unwrap()[0]
}

/// The rule that the outcome broke, with zone, pointer and offset.
#[track_caller]
fn broken<T: std::fmt::Debug>(outcome: Result<T>) -> (ZoneRule, u32, u64, u64) {
    let error = outcome.unwrap_err();
    let ErrorKind::ZoneRule(violation) = error.kind else { panic!("{error}") };
    let text = error.to_string();
    for number in [u64::from(violation.zone), violation.write_pointer, violation.offset] {
        assert!(text.contains(&number.to_string()), "{text} does not name {number}");
    }
    (violation.rule, violation.zone, violation.write_pointer, violation.offset)
}

#[test]
fn conventional_zones_take_anything() {
    let device = device(layout());
    device.write_at(ZONE + 5, vec![7; 100]).unwrap();
    device.write_at(5, vec![8; 3]).unwrap();
    device.discard(0, 2 * ZONE).unwrap();
    device.write_zeroes(10, 100).unwrap();
    let found = zone(&device, 1);
    assert_eq!(
        (found.kind, found.condition, found.capacity),
        (ZoneKind::Conventional, ZoneCondition::NotWritePointer, ZONE)
    );
}

#[test]
fn writes_go_to_the_pointer() {
    let device = device(layout());
    let start = 3 * ZONE;
    assert_eq!(zone(&device, 3).condition, ZoneCondition::Empty);
    device.write_at(start, vec![1; 8192]).unwrap();
    let pointer = start + 8192;
    assert_eq!(
        (zone(&device, 3).write_pointer, zone(&device, 3).condition),
        (pointer, ZoneCondition::ImplicitOpen)
    );
    for wrong in [start, start + 4096, pointer + 4096] {
        let expected = (ZoneRule::WritePointer, 3, pointer, wrong);
        assert_eq!(broken(device.write_at(wrong, vec![2; 4096])), expected);
        assert_eq!(broken(device.write_zeroes(wrong, 4096)), expected);
    }
    assert_eq!(
        broken(device.write_at(pointer, vec![2; 100])),
        (ZoneRule::Alignment, 3, pointer, pointer)
    );
    device.write_zeroes(pointer, 4096).unwrap();
    assert_eq!(
        device.read_at(start, 12_288).unwrap()[..],
        [vec![1; 8192], vec![0; 4096]].concat()[..]
    );
}

#[test]
fn the_capacity_ends_before_the_zone() {
    let device = device(layout());
    let start = 2 * ZONE;
    assert_eq!(
        broken(device.write_at(start, vec![1; 52 * 1024])),
        (ZoneRule::Capacity, 2, start, start)
    );
    device.write_at(start, vec![1; 48 * 1024]).unwrap();
    assert_eq!(
        (zone(&device, 2).condition, zone(&device, 2).writable_end()),
        (ZoneCondition::Full, start + 48 * K)
    );
    let end = start + 48 * K;
    assert_eq!(broken(device.write_at(end, vec![1; 4096])), (ZoneRule::Full, 2, end, end));
    // From a conventional zone into a sequential one, and from one of these into the next.
    device.as_zoned().unwrap().reset(start).unwrap();
    device.write_at(start - 4096, vec![3; 8192]).unwrap();
    assert_eq!(zone(&device, 2).written(), 4096);
    assert_eq!(
        broken(device.write_at(start - 4096, vec![3; 8192])),
        (ZoneRule::WritePointer, 2, start + 4096, start)
    );
    assert_eq!(broken(device.write_at(start + 4096, vec![1; 64 * 1024])).0, ZoneRule::Capacity);
}

#[test]
fn zones_are_given_up_as_a_whole() {
    let device = device(layout());
    let view = device.as_zoned().unwrap();
    let start = 4 * ZONE;
    device.write_at(start, vec![1; 8192]).unwrap();
    assert_eq!(broken(device.discard(start, 4096)), (ZoneRule::Discard, 4, start + 8192, start));
    assert_eq!(broken(device.discard(ZONE, 2 * ZONE)).0, ZoneRule::Discard);
    for wrong in [0, ZONE, start + 4096, 8 * ZONE] {
        assert_eq!(broken(view.reset(wrong)).0, ZoneRule::NoWritePointer);
        assert_eq!(broken(view.finish(wrong)).0, ZoneRule::NoWritePointer);
    }
    view.finish(start).unwrap();
    assert_eq!(broken(device.write_at(start + 8192, vec![1; 4096])).0, ZoneRule::Full);
    assert_eq!(
        device.read_at(start, 16_384).unwrap()[..],
        [vec![1; 8192], vec![0; 8192]].concat()[..]
    );
    view.reset(start).unwrap();
    assert_eq!(zone(&device, 4).condition, ZoneCondition::Empty);
    assert_eq!(device.read_at(start, 8192).unwrap()[..], [0; 8192]);
    device.write_at(start, vec![2; 4096]).unwrap();
}

#[test]
fn open_zones_are_closed_and_active_ones_are_counted() {
    let device = device(ZoneLayout { max_open: 2, max_active: 3, ..layout() });
    let view = device.as_zoned().unwrap();
    let write = |number: u64| device.write_at(zone(&device, number).write_pointer, vec![1; 4096]);
    let conditions = || [2, 3, 4, 5].map(|number| zone(&device, number).condition);
    use ZoneCondition::{Closed, Empty, Full, ImplicitOpen};
    [2, 3, 4].into_iter().for_each(|number| write(number).unwrap());
    assert_eq!(conditions(), [Closed, ImplicitOpen, ImplicitOpen, Empty]);
    assert_eq!(broken(write(5)), (ZoneRule::ActiveLimit, 5, 5 * ZONE, 5 * ZONE));
    write(2).unwrap();
    assert_eq!(conditions(), [ImplicitOpen, Closed, ImplicitOpen, Empty]);
    view.finish(2 * ZONE).unwrap();
    write(5).unwrap();
    assert_eq!(conditions(), [Full, Closed, ImplicitOpen, ImplicitOpen]);
    assert_eq!(broken(write(6)).0, ZoneRule::ActiveLimit);
    view.reset(3 * ZONE).unwrap();
    write(6).unwrap();
    // A zone that a single write fills is never active.
    device.write_at(zone(&device, 5).write_pointer, vec![1; 44 * 1024]).unwrap();
    write(7).unwrap();
}

#[test]
fn a_failed_zone_keeps_what_it_has_or_loses_it() {
    let layout = ZoneLayout { max_active: 2, ..layout() };
    let below: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.image_size()));
    let device = create_image(below.clone(), layout).unwrap();
    [2, 3].into_iter().for_each(|number| device.write_at(number * ZONE, vec![1; 8192]).unwrap());
    device.flush().unwrap();
    assert_eq!(broken(device.write_at(4 * ZONE, vec![1; 4096])).0, ZoneRule::ActiveLimit);
    device.fail_zone(2 * ZONE, ZoneCondition::ReadOnly).unwrap();
    device.fail_zone(3 * ZONE, ZoneCondition::Offline).unwrap();
    assert!(device.fail_zone(4 * ZONE, ZoneCondition::Full).is_err());
    for device in [&device, &open_image(&below).unwrap().unwrap()] {
        assert_eq!([2, 3].map(|number| zone(device, number).has_failed()), [true; 2]);
        assert_eq!(device.read_at(2 * ZONE, 8192).unwrap()[..], [1; 8192]);
        assert_eq!(
            broken(device.read_at(3 * ZONE, 4096)),
            (ZoneRule::Failed, 3, 3 * ZONE + 8192, 3 * ZONE)
        );
        let view = device.as_zoned().unwrap();
        for start in [2 * ZONE, 3 * ZONE] {
            assert_eq!(broken(device.write_at(start + 8192, vec![1; 4096])).0, ZoneRule::Failed);
            assert_eq!(
                [view.reset(start), view.finish(start)].map(|outcome| broken(outcome).0),
                [ZoneRule::Failed; 2]
            );
            assert_eq!(broken(device.fail_zone(start, ZoneCondition::Offline)).0, ZoneRule::Failed);
        }
    }
    // They are not active any more.
    device.write_at(4 * ZONE, vec![1; 4096]).unwrap();
}

#[test]
fn a_refused_batch_moves_nothing() {
    let device = device(layout());
    let write = |offset, len| Request::Write { offset, bufs: vec![vec![1; len].into()] };
    let requests =
        vec![write(2 * ZONE, 4096), write(2 * ZONE + 4096, 4096), write(3 * ZONE + 4096, 4096)];
    assert!(device.submit(Batch { requests, ..Batch::default() }).wait().is_err());
    assert_eq!((zone(&device, 2).written(), zone(&device, 3).written()), (0, 0));
    let requests = vec![write(2 * ZONE, 4096), write(2 * ZONE + 4096, 4096), write(3 * ZONE, 4096)];
    device.submit(Batch { requests, ..Batch::default() }).wait().unwrap();
    assert_eq!((zone(&device, 2).written(), zone(&device, 3).written()), (8192, 4096));
}

#[test]
fn reads_behind_the_pointer_give_zeros_or_fail() {
    let below = Arc::new(MemoryDevice::new(layout().size()));
    below.write_at(2 * ZONE, vec![9; 4 * ZONE as usize]).unwrap();
    let device = Emulated::new(below.clone(), layout()).unwrap();
    device.write_at(2 * ZONE, vec![1; 4096]).unwrap();
    let mut expected = vec![0; 2 * ZONE as usize];
    expected[..4096].fill(1);
    assert_eq!(device.read_at(2 * ZONE, expected.len()).unwrap()[..], expected[..]);
    let strict =
        Emulated::new(below, ZoneLayout { unrestricted_reads: false, ..layout() }).unwrap();
    strict.write_at(2 * ZONE, vec![1; 4096]).unwrap();
    assert_eq!(strict.read_at(2 * ZONE - 10, 4106).unwrap()[10..], [1; 4096]);
    assert_eq!(
        broken(strict.read_at(2 * ZONE, 4097)),
        (ZoneRule::Read, 2, 2 * ZONE + 4096, 2 * ZONE)
    );
    strict.read_at(0, 2 * ZONE as usize).unwrap();
}

#[test]
fn impossible_layouts_are_refused() {
    let memory = || Arc::new(MemoryDevice::new(8 * ZONE));
    let good = layout();
    for wrong in [
        ZoneLayout { zone_size: 0, ..good },
        ZoneLayout { zone_size: 5000, capacity: 4096, ..good },
        ZoneLayout { capacity: ZONE + 4096, ..good },
        ZoneLayout { capacity: 0, ..good },
        ZoneLayout { zones: 9, ..good },
        ZoneLayout { conventional: 9, ..good },
        ZoneLayout { zone_size: 1 << 62, ..good },
        ZoneLayout { max_open: 5, max_active: 4, ..good },
    ] {
        assert!(Emulated::new(memory(), wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn an_image_keeps_its_pointers() {
    let layout = ZoneLayout { max_open: 3, max_active: 4, ..layout() };
    let below: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.image_size()));
    assert!(open_image(&below).unwrap().is_none());
    let device = create_image(below.clone(), layout).unwrap();
    device.write_at(2 * ZONE, vec![1; 8192]).unwrap();
    device.write_at(3 * ZONE, vec![2; 4096]).unwrap();
    device.as_zoned().unwrap().finish(3 * ZONE).unwrap();
    device.flush().unwrap();
    device
        .write_durable(4 * ZONE, vec![3; 4096], Durability { preflush: false, fua: true })
        .unwrap();
    device.write_at(2 * ZONE + 8192, vec![4; 4096]).unwrap();
    let pointers = |device: &Emulated| [2, 3, 4].map(|number| zone(device, number).written());
    assert_eq!(pointers(&device), [12_288, 48 * K, 4096]);
    // As after a power cut: unflushed data is not there, and its place can be written.
    let again = open_image(&below).unwrap().unwrap();
    assert_eq!(again.layout, layout);
    assert_eq!(pointers(&again), [8192, 48 * K, 4096]);
    again.write_at(2 * ZONE + 8192, vec![5; 4096]).unwrap();
    assert_eq!(
        again.read_at(3 * ZONE, 8192).unwrap()[..],
        [vec![2; 4096], vec![0; 4096]].concat()[..]
    );
    again.as_zoned().unwrap().reset(2 * ZONE).unwrap();
    assert_eq!(pointers(&open_image(&below).unwrap().unwrap()), [0, 48 * K, 4096]);
}

#[test]
fn damaged_images_are_refused() {
    let layout = layout();
    let made: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.image_size()));
    create_image(made.clone(), layout).unwrap();
    let (table, last) = (layout.size(), layout.image_size() - 4096);
    for at in [table, table + 9, last, last + 17, last + 4000] {
        let byte = made.read_at(at, 1).unwrap()[0];
        made.write_at(at, vec![byte ^ 4]).unwrap();
        assert!(open_image(&made).is_err(), "{at}");
        made.write_at(at, vec![byte]).unwrap();
    }
    assert!(open_image(&made).unwrap().is_some());
    let small: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.image_size() - 1));
    assert!(create_image(small.clone(), layout).is_err() && open_image(&small).unwrap().is_none());
    // The last block of a longer image.
    let long: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.image_size() + 4096));
    let block = made.read_at(last, 4096).unwrap().into_bytes();
    long.write_at(layout.image_size(), block).unwrap();
    assert_eq!(open_image(&long).map(|_| ()).unwrap_err().kind, ErrorKind::OutOfRange);
}

#[test]
fn threads_write_zones_of_their_own() {
    let device = device(ZoneLayout::new(ZONE, 2, 8));
    std::thread::scope(|scope| {
        for number in 2..8_u64 {
            let device = &device;
            scope.spawn(move || {
                for block in 0..16 {
                    device
                        .write_at(number * ZONE + block * 4096, vec![number as u8; 4096])
                        .unwrap();
                    device.flush().unwrap();
                }
            });
        }
    });
    assert!((2..8).all(|number| zone(&device, number).condition == ZoneCondition::Full));
    let mut buf = IoBuf::zeroed(ZONE as usize);
    buf.fill(5);
    assert_eq!(device.read_at(5 * ZONE, ZONE as usize).unwrap()[..], buf[..]);
}
