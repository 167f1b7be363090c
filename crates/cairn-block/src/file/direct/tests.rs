use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{BlockDeviceExt, Bytes, Durability, ErrorKind};

const BLOCK: usize = 4096;

/// In the crate's directory: the temporary one may be a tmpfs, which has direct I/O only on new
/// kernels.
pub(super) fn image(size: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("image");
    File::create_new(&path).unwrap().set_len(size).unwrap();
    (dir, path)
}

pub(super) fn opened(size: u64) -> (tempfile::TempDir, DirectFile) {
    let (dir, path) = image(size);
    (dir, DirectFile::open(path, OpenOptions::write()).unwrap())
}

/// One request at a time, and many at once where the system lets it.
fn both(size: u64) -> Vec<(tempfile::TempDir, DirectFile)> {
    let (dir, device) = opened(size);
    assert_eq!(device.depth().unwrap(), 1);
    let mut devices = vec![(dir, device)];
    let (dir, device) = opened(size);
    devices.extend(deep(device).map(|device| (dir, device)));
    devices
}

pub(super) fn deep(device: DirectFile) -> Option<DirectFile> {
    let device = device.with_depth();
    match device.depth() {
        Ok(depth) => assert_eq!(depth, DEPTH),
        Err(why) => {
            println!("no io_uring here ({why}): nothing is tested");
            return None;
        }
    }
    Some(device)
}

fn block(byte: u8) -> Bytes {
    IoBuf::copy_from(&[byte; BLOCK]).into_bytes()
}

fn writes(blocks: impl IntoIterator<Item = (usize, u8)>) -> Batch {
    let write = |(number, byte)| Request::Write {
        offset: (number * BLOCK) as u64,
        bufs: vec![block(byte)],
    };
    Batch { requests: blocks.into_iter().map(write).collect(), ..Batch::default() }
}

fn reads(blocks: impl IntoIterator<Item = usize>) -> Batch {
    let read =
        |number| Request::Read { offset: (number * BLOCK) as u64, buf: IoBuf::zeroed(BLOCK) };
    Batch { requests: blocks.into_iter().map(read).collect(), ..Batch::default() }
}

#[test]
fn direct_and_buffered_transfers_see_each_other() {
    for (_dir, device) in both(1 << 16) {
        device.write_at(4096, IoBuf::copy_from(&[1; 8192]).into_bytes()).unwrap();
        assert_eq!(device.read_at(4100, 3).unwrap()[..], [1, 1, 1]);
        device.write_at(5000, vec![2; 100]).unwrap();
        let read = device.read_at(4096, 4096).unwrap();
        assert_eq!((read[903], read[904], read[1003], read[1004]), (1, 2, 2, 1));
        // In one batch, and what was read in the order of the requests.
        let read = |offset, len| Request::Read { offset, buf: IoBuf::zeroed(len) };
        let requests = vec![read(4096, 4096), read(5000, 1), read(0, 4096), read(4100, 2)];
        let found = device.submit(Batch { requests, ..Batch::default() }).wait().unwrap();
        let found: Vec<(usize, u8)> = found.iter().map(|buf| (buf.len(), buf[0])).collect();
        assert_eq!(found, [(4096, 1), (1, 2), (4096, 0), (2, 1)]);
        device.flush().unwrap();
    }
}

#[test]
fn many_buffers_in_one_request_and_memory_of_any_alignment() {
    for (_dir, device) in both(16 << 20) {
        // More than one command takes.
        let bufs: Vec<Bytes> = (0..2500_u32).map(|number| block(number as u8)).collect();
        let durability = Durability { preflush: true, fua: true };
        for durability in [Durability::default(), durability] {
            let requests = vec![Request::Write { offset: 8192, bufs: bufs.clone() }];
            device.submit(Batch { requests, durability }).wait().unwrap();
            let read = device.read_at(8192, 2500 * BLOCK).unwrap();
            assert!((0..2500).all(|number| {
                read[number * BLOCK..][..BLOCK].iter().all(|found| *found == number as u8)
            }));
        }
        let odd = Bytes::from(vec![9; 3 * BLOCK]).slice(7..7 + 2 * BLOCK);
        device.write_at(0, odd).unwrap();
        assert!(device.read_at(0, 2 * BLOCK).unwrap().iter().all(|byte| *byte == 9));
    }
}

#[test]
fn durable_batches_of_every_kind() {
    for (_dir, device) in both(1 << 20) {
        for (preflush, fua) in [(false, true), (true, false), (true, true)] {
            let mut batch = writes([(3, 3), (90, 90)]);
            let (offset, len) = (16384, 8192);
            batch.requests.push(Request::Discard { offset, len });
            batch.requests.push(Request::WriteZeroes { offset: 50, len: 100 });
            batch.durability = Durability { preflush, fua };
            assert!(device.submit(batch).wait().unwrap().is_empty());
            let read = device.submit(reads([3, 90])).wait().unwrap();
            assert_eq!((read[0][7], read[1][7]), (3, 90));
        }
        assert!(device.submit(Batch::default()).wait().unwrap().is_empty());
        let empty = vec![
            Request::Read { offset: 0, buf: IoBuf::zeroed(0) },
            Request::Write { offset: 0, bufs: vec![] },
        ];
        let read = device.submit(Batch { requests: empty, ..Batch::default() }).wait().unwrap();
        assert_eq!((read.len(), read[0].len()), (1, 0));
    }
}

#[test]
fn several_batches_are_in_flight_and_complete_in_any_order() {
    let (_dir, device) = opened(8 << 20);
    let Some(device) = deep(device) else { return };
    // More than the kernel takes at once.
    let batches = 3 * DEPTH;
    let completions: Vec<Completion> =
        (0..batches).map(|number| device.submit(writes([(number, number as u8)]))).collect();
    for completion in completions.into_iter().rev() {
        completion.wait().unwrap();
    }
    let called = Arc::new(AtomicUsize::new(0));
    for number in 0..batches {
        let called = called.clone();
        device.submit(reads([number, batches + number])).then(move |outcome| {
            let read = outcome.unwrap();
            assert!(read[0].iter().all(|byte| *byte == number as u8));
            assert!(read[1].iter().all(|byte| *byte == 0));
            called.fetch_add(1, Ordering::SeqCst);
        });
    }
    drop(device);
    assert_eq!(called.load(Ordering::SeqCst), batches, "the end waits for what is in flight");
}

#[test]
fn what_nobody_waits_for_is_written_and_its_memory_stays() {
    let (dir, device) = opened(8 << 20);
    let Some(device) = deep(device) else { return };
    for number in 0..1000 {
        // Nobody keeps the answer; the memory is used again at once.
        drop(device.submit(writes([(number, number as u8), (number + 1000, 7)])));
        drop(device.submit(reads([number, number + 1000])));
    }
    drop(device);
    let bytes = std::fs::read(dir.path().join("image")).unwrap();
    assert!((0..1000).all(|number| {
        let at = |block: usize| &bytes[block * BLOCK..][..BLOCK];
        at(number).iter().all(|byte| *byte == number as u8)
            && at(number + 1000).iter().all(|byte| *byte == 7)
    }));
}

#[test]
fn callbacks_may_submit_panic_and_have_the_last_reference() {
    let (dir, device) = opened(1 << 20);
    let Some(device) = deep(device) else { return };
    let device = Arc::new(device);
    panic_in_a_callback(&device);
    let (told, tells) = std::sync::mpsc::channel();
    let again = device.clone();
    device.submit(writes([(1, 1), (2, 2)])).then(move |outcome| {
        outcome.unwrap();
        // Also what waits: it must not wait for its own thread.
        let mut batch = writes([(3, 3), (4, 4)]);
        batch.durability.fua = true;
        again.submit(batch).wait().unwrap();
        let last = again.clone();
        again.submit(writes([(5, 5), (6, 6)])).then(move |outcome| {
            drop(last);
            told.send(outcome.is_ok()).unwrap();
        });
    });
    drop(device);
    assert!(tells.recv().unwrap());
    let bytes = std::fs::read(dir.path().join("image")).unwrap();
    assert!((1..7).all(|number| bytes[number * BLOCK] == number as u8));
}

/// Panics on the thread of the ring. Where a batch is done before its callback is there, the caller
/// calls it: then another batch follows.
fn panic_in_a_callback(device: &DirectFile) {
    let caller = std::thread::current().id();
    let is_callers = || {
        let (told, tells) = std::sync::mpsc::channel();
        // Not neighbours: the ring has them.
        device.submit(reads([0, 2])).then(move |_| {
            let is_callers = std::thread::current().id() == caller;
            told.send(is_callers).unwrap();
            assert!(is_callers, "a callback that panics, as a test");
        });
        tells.recv().unwrap()
    };
    while is_callers() {}
}

#[test]
fn the_end_is_the_end_and_a_truncated_file_an_error_with_its_place() {
    for (dir, device) in both(1 << 20) {
        let beyond = device.submit(reads([255, 256])).wait().unwrap_err();
        assert_eq!((beyond.kind, beyond.range), (ErrorKind::OutOfRange, Some((1 << 20, 4096))));
        // Off every alignment, in the midst of a request.
        let file = File::options().write(true).open(dir.path().join("image")).unwrap();
        file.set_len(10_000).unwrap();
        let whole = Request::Read { offset: 0, buf: IoBuf::zeroed(5 * BLOCK) };
        let batch = Batch { requests: vec![whole], ..reads([]) };
        let mut both = reads([0, 1]);
        both.requests.extend(batch.requests);
        let short = device.submit(both).wait().unwrap_err();
        assert_eq!((short.kind, short.range), (ErrorKind::OutOfRange, Some((0, 5 * 4096))));
        let refused = device.submit(writes([(100, 1), (101, 1)])).wait().unwrap_err();
        assert!(refused.kind == ErrorKind::Io && refused.detail.contains("truncated"), "{refused}");
        assert_eq!(file.metadata().unwrap().len(), 10_000, "the file looks whole again");
        assert!(device.flush().is_err());
    }
}

/// Threads write and read blocks of their own, in batches of all sizes, some of which they do not
/// wait for until the next.
#[test]
fn threads_read_what_they_have_written() {
    for (_dir, device) in both(16 << 20) {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let device = &device;
                scope.spawn(move || one_thread(device, thread * 500, 500));
            }
        });
    }
}

fn one_thread(device: &DirectFile, first: usize, count: usize) {
    let mut random = numbers(first as u64 + 1);
    let mut model = vec![0_u8; count];
    for round in 0..150 {
        let mut chosen = BTreeSet::new();
        for _ in 0..=random(6) {
            chosen.insert(random(count));
        }
        let batch: Vec<(usize, u8)> =
            chosen.iter().map(|block| (*block, random(256) as u8)).collect();
        let mut request = writes(batch.iter().map(|(block, byte)| (first + block, *byte)));
        request.durability.fua = round % 40 == 3;
        request.durability.preflush = round % 30 == 7;
        let pending = device.submit(request);
        let others: Vec<usize> = (0..=random(4))
            .map(|_| random(count))
            .filter(|block| !chosen.contains(block))
            .collect();
        let read = device.submit(reads(others.iter().map(|block| first + block)));
        for (block, buf) in others.iter().zip(read.wait().unwrap()) {
            assert!(buf.iter().all(|byte| *byte == model[*block]), "block {block}");
        }
        pending.wait().unwrap();
        batch.iter().for_each(|(block, byte)| model[*block] = *byte);
    }
    let all = device.submit(reads(first..first + count)).wait().unwrap();
    assert!(all.iter().zip(&model).all(|(buf, byte)| buf.iter().all(|found| found == byte)));
}

/// Numbers below a bound, by xorshift.
pub(super) fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    }
}

#[test]
fn a_reader_reads_and_a_full_file_grows() {
    let (_dir, path) = image(1 << 20);
    let device = DirectFile::open(&path, OpenOptions::read()).unwrap();
    let device =
        deep(device).unwrap_or_else(|| DirectFile::open(&path, OpenOptions::read()).unwrap());
    assert_eq!(device.submit(reads([3, 5])).wait().unwrap().len(), 2);
    assert_eq!(device.submit(writes([(3, 5)])).wait().unwrap_err().kind, ErrorKind::ReadOnly);
    assert!(device.as_growable().is_none());
    drop(device);
    for (_dir, device) in both(1 << 16) {
        device.as_growable().unwrap().grow(1 << 20).unwrap();
        device.submit(writes([(100, 1), (101, 2)])).wait().unwrap();
        assert_eq!(device.read_at(101 * 4096, 4096).unwrap()[0], 2);
        assert!(device.extents(0..1 << 20).unwrap().len() > 1, "holes are found");
    }
}

/// A filter of system calls refuses it to this thread and those that it starts, as containers do.
#[test]
fn where_io_uring_is_refused_it_goes_one_by_one() {
    std::thread::spawn(|| {
        refuse(libc::SYS_io_uring_setup);
        let (_dir, device) = opened(1 << 20);
        let device = device.with_depth();
        let why = device.depth().unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::EPERM));
        device.submit(writes([(1, 1), (2, 2)])).wait().unwrap();
        assert_eq!(device.submit(reads([2, 1])).wait().unwrap()[0][0], 2);
        device.flush().unwrap();
        let buffered = device.into_buffered();
        assert_eq!(buffered.read_at(4096, 1).unwrap()[0], 1);
    })
    .join()
    .unwrap();
}

/// The system call fails with EPERM in this thread.
pub(super) fn refuse(number: libc::c_long) {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the filter, which lives during the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}
