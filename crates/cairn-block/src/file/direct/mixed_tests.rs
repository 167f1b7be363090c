//! Large transfers directly, small ones through the page cache.

use std::sync::Arc;

use super::tests::{deep, image, numbers, opened, refuse};
use super::*;
use crate::{BlockDeviceExt, Bytes, Durability, ErrorKind};

const KIB: usize = 1 << 10;
/// The smallest block of a filesystem.
const UNIT: usize = KIB;

fn mixed(device: DirectFile) -> DirectFile {
    device.with_page_cache().unwrap()
}

/// With an io_uring for reads, where the system lets it, and without.
fn both(size: u64) -> Vec<(tempfile::TempDir, DirectFile)> {
    let mut devices = Vec::new();
    let (dir, device) = opened(size);
    devices.push((dir, mixed(device)));
    let (dir, device) = opened(size);
    devices.extend(deep(device).map(|device| (dir, mixed(device))));
    devices
}

fn bytes(len: usize, byte: u8) -> Bytes {
    IoBuf::copy_from(&vec![byte; len]).into_bytes()
}

fn write(offset: usize, len: usize, byte: u8) -> Request {
    Request::Write { offset: offset as u64, bufs: vec![bytes(len, byte)] }
}

fn batch(requests: Vec<Request>) -> Batch {
    Batch { requests, ..Batch::default() }
}

/// One thread for each MiB. What is written is compared at once, and often read in other pieces.
#[test]
fn every_byte_is_what_was_written_last() {
    for (_dir, device) in both(4 << 20) {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || one_area(device, thread << 20, 300));
            }
        });
        device.flush().unwrap();
    }
}

fn one_area(device: &DirectFile, start: usize, rounds: usize) {
    const UNITS: usize = (1 << 20) / UNIT;
    let mut random = numbers(start as u64 + 5);
    let mut model = vec![0_u8; UNITS];
    let read = |from: usize, count: usize| {
        device.read_at((start + from * UNIT) as u64, count * UNIT).unwrap()
    };
    let compare = |model: &[u8], from: usize, read: &[u8], what: &str| {
        for (at, found) in read.chunks(UNIT).enumerate() {
            let byte = model[from + at];
            assert!(found.iter().all(|found| *found == byte), "{what} at {}", from + at);
        }
    };
    for round in 0..rounds {
        let byte = (round % 250 + 1) as u8;
        let from = random(UNITS);
        // A third is large.
        let most = if random(3) == 0 { 300 } else { 12 };
        let count = (1 + random(most)).min(UNITS - from);
        let (offset, len) = (start + from * UNIT, count * UNIT);
        let durability = Durability { preflush: random(40) == 0, fua: random(40) == 0 };
        let request = match random(8) {
            0 => Request::WriteZeroes { offset: offset as u64, len: len as u64 },
            _ => write(offset, len, byte),
        };
        let byte = if matches!(request, Request::Write { .. }) { byte } else { 0 };
        let pending = device.submit(Batch { requests: vec![request], durability });
        // Next to it, meanwhile.
        let near = from.saturating_sub(random(20) + 1);
        if near < from {
            compare(&model, near, &read(near, from - near), "before");
        }
        pending.wait().unwrap();
        model[from..from + count].fill(byte);
        let first = from.saturating_sub(random(8));
        let end = (from + count + random(8)).min(UNITS);
        compare(&model, first, &read(first, end - first), "around");
        let one = from + random(count);
        compare(&model, one, &read(one, 1), "within");
    }
    compare(&model, 0, &read(0, UNITS), "all");
}

#[test]
fn batches_have_both_and_answers_in_their_order() {
    for (_dir, device) in both(8 << 20) {
        let requests = [
            write(0, 3 * KIB, 1),
            write(1 << 20, 256 * KIB, 2),
            write(3 << 20, KIB, 3),
            write((2 << 20) + KIB, 100 * KIB, 4),
        ];
        for durability in
            [Durability::default(), Durability { preflush: true, fua: true }, Durability::default()]
        {
            let requests = requests.iter().map(|request| match request {
                Request::Write { offset, bufs } => {
                    Request::Write { offset: *offset, bufs: bufs.clone() }
                }
                _ => unreachable!("all are writes"),
            });
            let writes = Batch { requests: requests.collect(), durability };
            assert!(device.submit(writes).wait().unwrap().is_empty());
            let read = |offset: usize, len| Request::Read {
                offset: offset as u64,
                buf: IoBuf::zeroed(len),
            };
            let reads = vec![
                read(3 << 20, KIB),
                read(1 << 20, 4 * KIB),
                read((1 << 20) + 4 * KIB, 200 * KIB),
                read(0, KIB),
                read(2 << 20, 101 * KIB),
                read(KIB, 0),
            ];
            let found = device.submit(batch(reads)).wait().unwrap();
            let found: Vec<(usize, u8)> =
                found.iter().map(|buf| (buf.len(), buf.last().copied().unwrap_or(9))).collect();
            let expected =
                [(KIB, 3), (4 * KIB, 2), (200 * KIB, 2), (KIB, 1), (101 * KIB, 4), (0, 9)];
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn the_end_waits_for_writes_that_nobody_waits_for() {
    let (dir, device) = opened(64 << 20);
    let device = mixed(device);
    for number in 0..64_usize {
        drop(device.submit(batch(vec![write(number << 20, 512 * KIB, number as u8 + 1)])));
    }
    drop(device);
    let found = std::fs::read(dir.path().join("image")).unwrap();
    assert!((0..64).all(|number| {
        let piece = &found[number << 20..][..512 * KIB];
        piece.iter().all(|byte| *byte == number as u8 + 1)
    }));
}

/// Each thread that writes is in a callback that waits for another write.
#[test]
fn callbacks_may_write_and_have_the_last_reference() {
    let (dir, device) = opened(64 << 20);
    let device = Arc::new(mixed(device));
    let (told, tells) = std::sync::mpsc::channel();
    for number in 0..2 * WRITERS {
        let (again, told) = (device.clone(), told.clone());
        let offset = number << 20;
        device.submit(batch(vec![write(offset, 128 * KIB, 1)])).then(move |outcome| {
            outcome.unwrap();
            let next = write(offset + 256 * KIB, 128 * KIB, 2);
            again.submit(batch(vec![next])).wait().unwrap();
            drop(again);
            told.send(()).unwrap();
            // Where the write was done already, this is the test's own thread.
            assert!(!Writers::is_own_thread(), "a callback that panics, as a test");
        });
    }
    drop(device);
    (0..2 * WRITERS).for_each(|_| tells.recv().unwrap());
    let found = std::fs::read(dir.path().join("image")).unwrap();
    assert!((0..2 * WRITERS).all(|number| found[(number << 20) + 300 * KIB] == 2));
}

#[test]
fn the_end_of_a_truncated_file_is_an_error_and_stays_one() {
    let (dir, device) = opened(4 << 20);
    let device = mixed(device);
    assert!(device.as_growable().is_none());
    std::fs::File::options()
        .write(true)
        .open(dir.path().join("image"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let refused = device.submit(batch(vec![write(2 << 20, 128 * KIB, 1)])).wait().unwrap_err();
    assert!(refused.kind == ErrorKind::Io && refused.detail.contains("truncated"), "{refused}");
    assert!(device.flush().is_err());
    let short = device.read_at(1 << 20, 128 * KIB).unwrap_err();
    assert_eq!((short.kind, short.range), (ErrorKind::OutOfRange, Some((1 << 20, 128 << 10))));
}

#[test]
fn a_reader_reads() {
    let (_dir, path) = image(1 << 20);
    let device = mixed(DirectFile::open(path, OpenOptions::read()).unwrap());
    assert!(device.read_at(0, 1 << 20).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(device.read_at(512, 1024).unwrap().len(), 1024);
    let refused = device.submit(batch(vec![write(0, 128 * KIB, 1)])).wait().unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ReadOnly);
}

#[test]
fn where_io_uring_is_refused_large_transfers_are_direct_all_the_same() {
    std::thread::spawn(|| {
        refuse(libc::SYS_io_uring_setup);
        let (_dir, device) = opened(4 << 20);
        let device = mixed(device.with_depth());
        assert_eq!(device.depth().unwrap_err().raw_os_error(), Some(libc::EPERM));
        let writes = vec![write(0, 128 * KIB, 1), write(1 << 20, 512 * KIB, 2)];
        device.submit(batch(writes)).wait().unwrap();
        device.write_at(5 << 10, bytes(KIB, 3)).unwrap();
        let read = device.read_at(0, 2 << 20).unwrap();
        let found = [5 << 10, 6 << 10, (1 << 20) + 9000].map(|at| (read[at - 1], read[at]));
        assert_eq!(found, [(1, 3), (3, 1), (2, 2)]);
    })
    .join()
    .unwrap();
}
