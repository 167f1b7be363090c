use std::sync::Arc;

use super::stats::StatsSnapshot;
use super::*;
use crate::device::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Durability, Geometry, Request,
};
use crate::memory::MemoryDevice;
use crate::{Error, ErrorKind, IoBuf, Result};

fn memory(size: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(size))
}

#[test]
fn a_partition_is_a_window() {
    let disk = memory(1000);
    let part = Partition::new(disk.clone(), 100, 200).unwrap();
    assert_eq!(part.geometry().size, 200);
    part.write_at(5, b"abc".to_vec()).unwrap();
    assert_eq!(&disk.read_at(104, 5).unwrap()[..], b"\0abc\0");
    part.write_zeroes(6, 1).unwrap();
    assert_eq!(&part.read_at(5, 3).unwrap()[..], b"a\0c");
    let error = part.read_at(199, 2).unwrap_err();
    assert_eq!((error.kind, error.range), (ErrorKind::OutOfRange, Some((199, 2))));
    part.flush().unwrap();
}

#[test]
fn a_partition_beyond_the_device_is_refused() {
    for (offset, len) in [(900, 101), (1001, 0), (u64::MAX, 2)] {
        assert_eq!(
            Partition::new(memory(1000), offset, len).err().unwrap().kind,
            ErrorKind::OutOfRange
        );
    }
    let sectors = Geometry { logical_block: 512, size: 4096, ..memory(0).geometry() };
    let disk = Arc::new(MemoryDevice::with_geometry(sectors));
    assert!(Partition::new(disk.clone(), 512, 1024).is_ok());
    assert_eq!(Partition::new(disk, 100, 1024).err().unwrap().kind, ErrorKind::OutOfRange);
}

#[test]
fn errors_from_below_a_partition_count_from_its_start() {
    let fault = Arc::new(Fault::new(memory(1000)));
    fault.fail_range(Operation::Read, 150..151);
    let part = Partition::new(fault, 100, 200).unwrap();
    assert_eq!(part.read_at(40, 20).unwrap_err().range, Some((40, 20)));
}

#[test]
fn read_only_lets_nothing_through() {
    let disk = memory(100);
    let stats = Arc::new(Stats::new(disk));
    let device = ReadOnly::new(stats.clone());
    assert!(device.geometry().read_only);
    for refused in [device.write_at(0, vec![1]), device.discard(0, 1), device.write_zeroes(0, 1)] {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::ReadOnly);
    }
    device.flush().unwrap();
    device.read_at(0, 10).unwrap();
    let seen = stats.snapshot();
    assert_eq!((seen.batches, seen.reads, seen.flushes), (1, 1, 0));
}

#[test]
fn stats_count_requests_bytes_and_barriers() {
    let device = Stats::new(memory(1000));
    let requests = vec![
        Request::Write { offset: 0, bufs: vec![vec![1; 10].into(), vec![2; 20].into()] },
        Request::Write { offset: 50, bufs: vec![vec![3; 5].into()] },
        Request::Read { offset: 100, buf: IoBuf::zeroed(7) },
        Request::Discard { offset: 200, len: 100 },
        Request::WriteZeroes { offset: 300, len: 50 },
    ];
    device
        .submit(Batch { requests, durability: Durability { preflush: true, fua: true } })
        .wait()
        .unwrap();
    device.write_at(999, vec![0; 2]).unwrap_err();
    device.flush().unwrap();
    let seen = StatsSnapshot { batch_ns: 0, flush_ns: 0, ..device.snapshot() };
    let expected = StatsSnapshot {
        batches: 2,
        reads: 1,
        read_bytes: 7,
        writes: 3,
        write_bytes: 37,
        discards: 1,
        discard_bytes: 100,
        write_zeroes: 1,
        write_zeroes_bytes: 50,
        flushes: 1,
        preflushes: 1,
        fua_writes: 2,
        errors: 1,
        ..StatsSnapshot::default()
    };
    assert_eq!(seen, expected);
}

#[test]
fn the_nth_operation_fails_once_or_for_ever() {
    let device = Fault::new(memory(100));
    device.fail(Operation::Read, 2, Lasting::Once);
    device.fail(Operation::Write, 3, Lasting::Forever);
    let reads: Vec<bool> = (0..4).map(|_| device.read_at(0, 1).is_ok()).collect();
    assert_eq!(reads, [true, false, true, true]);
    let writes: Vec<bool> = (0..4).map(|_| device.write_at(0, vec![1]).is_ok()).collect();
    assert_eq!(writes, [true, true, false, false]);
    device.clear();
    device.write_at(0, vec![1]).unwrap();
    assert_eq!((device.count(Operation::Read), device.count(Operation::Write)), (4, 5));
    device.fail_next(Operation::Flush, Lasting::Once);
    assert_eq!(device.flush().unwrap_err().kind, ErrorKind::Io);
    device.flush().unwrap();
    assert_eq!(device.count(Operation::Flush), 2);
}

#[test]
fn a_batch_is_done_up_to_its_failing_request() {
    let device = Fault::new(memory(100));
    device.fail(Operation::Write, 2, Lasting::Once);
    let write = |offset| Request::Write { offset, bufs: vec![vec![9].into()] };
    let batch = |preflush| Batch {
        requests: vec![write(0), write(1), write(2)],
        durability: Durability { preflush, fua: false },
    };
    assert_eq!(device.submit(batch(false)).wait().unwrap_err().range, Some((1, 1)));
    assert_eq!(&device.read_at(0, 3).unwrap()[..], [9, 0, 0]);
    device.write_zeroes(0, 3).unwrap();
    device.fail_next(Operation::Flush, Lasting::Once);
    device.submit(batch(true)).wait().unwrap_err();
    assert_eq!(
        &device.read_at(0, 3).unwrap()[..],
        [0, 0, 0],
        "a failed preflush must stop the writes"
    );
    device.submit(batch(true)).wait().unwrap();
    assert_eq!(&device.read_at(0, 3).unwrap()[..], [9, 9, 9]);
}

#[test]
fn every_request_that_covers_a_bad_sector_fails() {
    let device = Fault::new(memory(4096));
    device.fail_range(Operation::Write, 1024..1536);
    device.write_at(0, vec![1; 1024]).unwrap();
    device.write_at(1536, vec![1; 10]).unwrap();
    for (offset, len) in [(1023, 2), (1535, 1), (0, 4096)] {
        device.write_at(offset, vec![1; len]).unwrap_err();
    }
    device.read_at(0, 4096).unwrap();
}

/// Completes on another thread, after `submit` has returned.
struct Deferred(Arc<MemoryDevice>);

impl BlockDevice for Deferred {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let (completion, completer) = Completion::pending();
        let inner = self.0.clone();
        std::thread::spawn(move || {
            std::thread::yield_now();
            completer.complete(inner.submit(batch).wait());
        });
        completion
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

#[test]
fn wrappers_pass_late_completions_on() {
    let record = Arc::new(Record::new(Arc::new(Deferred(memory(1000)))));
    let stats = Arc::new(Stats::new(record.clone()));
    let device = Partition::new(Arc::new(Fault::new(stats.clone())), 100, 100).unwrap();
    for n in 0..50 {
        device.write_at(n, vec![n as u8 + 1]).unwrap();
        assert_eq!(device.read_at(n, 1).unwrap()[0], n as u8 + 1);
    }
    assert_eq!(device.read_at(100, 1).unwrap_err().kind, ErrorKind::OutOfRange);
    assert!(record.log().spans.iter().all(|span| span.completed.is_some()));
    assert_eq!((stats.snapshot().writes, stats.snapshot().reads), (50, 50));
}

#[test]
fn a_mapped_completion_changes_the_outcome_early_or_late() {
    let failure = || Error::new(ErrorKind::Io, "test", "changed");
    let ready = Completion::ready(Ok(Vec::new())).map(move |_| Err(failure()));
    assert_eq!(ready.wait().unwrap_err().detail, "changed");
    let (late, completer) = Completion::pending();
    let late = late.map(move |_| Err(failure()));
    completer.complete(Ok(Vec::new()));
    assert_eq!(late.wait().unwrap_err().detail, "changed");
}
