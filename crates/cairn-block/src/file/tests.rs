use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{BlockDeviceExt, Durability};

fn image(size: u64) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    File::create_new(&path).unwrap().set_len(size).unwrap();
    (directory, path)
}

fn kind(opened: Result<FileDevice>) -> ErrorKind {
    opened.expect_err("must be refused").kind
}

#[test]
fn what_is_written_is_in_the_file_and_read_back() {
    let (_directory, path) = image(10_000);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    let bufs = vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"cde")];
    let requests = vec![Request::Write { offset: 4_999, bufs }];
    let durability = Durability { preflush: true, fua: true };
    assert!(device.submit(Batch { requests, durability }).wait().unwrap().is_empty());
    assert_eq!(&std::fs::read(&path).unwrap()[4_998..5_005], b"\0abcde\0");
    assert_eq!(&device.read_at(4_999, 5).unwrap()[..], b"abcde");
    device.flush().unwrap();
}

#[test]
fn an_image_file_grows_and_a_reader_does_not() {
    let (_directory, path) = image(1000);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    assert!(device.write_at(1000, vec![1]).is_err());
    let growable = device.as_growable().unwrap();
    growable.grow(5000).unwrap();
    growable.grow(3000).unwrap();
    assert_eq!((device.geometry().size, std::fs::metadata(&path).unwrap().len()), (5000, 5000));
    device.write_at(4999, vec![1]).unwrap();
    assert_eq!(device.read_at(4998, 2).unwrap()[..], [0, 1]);
    device.flush().unwrap();
    drop(device);
    let reader = FileDevice::open(&path, OpenOptions::read()).unwrap();
    assert!(reader.as_growable().is_none());
}

#[test]
fn more_buffers_than_one_system_call_takes_are_all_written() {
    let (_directory, path) = image(1 << 20);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    let bufs: Vec<Bytes> =
        (0..3_000_u32).map(|n| Bytes::copy_from_slice(&n.to_le_bytes())).collect();
    let whole = bufs.concat();
    for fua in [false, true] {
        let offset = 7 + 100_000 * u64::from(fua);
        let requests = vec![Request::Write { offset, bufs: bufs.clone() }];
        device
            .submit(Batch { requests, durability: Durability { preflush: false, fua } })
            .wait()
            .unwrap();
        assert_eq!(&device.read_at(offset, whole.len()).unwrap()[..], whole);
    }
}

#[test]
fn a_batch_gives_its_reads_back_in_order() {
    let (_directory, path) = image(4096);
    std::fs::write(&path, [1, 2, 3, 4]).unwrap();
    let device = FileDevice::open(&path, OpenOptions::read()).unwrap();
    let requests = [3, 0, 2].map(|offset| Request::Read { offset, buf: IoBuf::zeroed(1) }).into();
    let bufs = device.submit(Batch { requests, ..Batch::default() }).wait().unwrap();
    assert_eq!(bufs.iter().map(|buf| buf[0]).collect::<Vec<_>>(), [4, 1, 3]);
}

#[test]
fn an_image_truncated_under_us_is_an_error_not_zeros() {
    let (_directory, path) = image(8192);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    let error = device.read_at(4096, 4096).unwrap_err();
    assert_eq!((error.kind, error.range), (ErrorKind::OutOfRange, Some((4096, 4096))));
    assert!(error.to_string().contains("truncated"), "{error}");
    assert_eq!(device.read_at(0, 4096).unwrap().len(), 4096);
    assert_eq!(device.read_at(8192, 1).unwrap_err().kind, ErrorKind::OutOfRange);
    assert_eq!(device.write_at(8000, vec![0; 193]).unwrap_err().kind, ErrorKind::OutOfRange);
}

/// A write behind the new end would make the image look whole again, with zeros where its contents
/// were.
#[test]
fn nothing_more_is_written_to_an_image_that_was_truncated() {
    let (_directory, path) = image(8192);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    device.write_at(4096, vec![1; 4096]).unwrap();
    let image = File::options().write(true).open(&path).unwrap();
    image.set_len(5000).unwrap();
    let told = device.write_at(4096, vec![2; 4096]).unwrap_err();
    assert!(
        told.kind == ErrorKind::Io && told.to_string().contains("from 8192 bytes to 5000"),
        "{told}"
    );
    assert_eq!(device.flush().unwrap_err().kind, ErrorKind::Io);
    // Another process extends it to its old length: its data is lost all the same.
    image.set_len(8192).unwrap();
    assert!(device.write_at(0, vec![2; 4096]).is_err() && device.flush().is_err());
    assert_eq!(std::fs::read(&path).unwrap()[4096..5000], [1; 904]);
}

#[test]
fn an_image_that_grows_is_not_taken_for_a_truncated_one() {
    let (_dir, path) = image(4096);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                device.write_at(0, vec![1; 512])?;
            }
            Ok(())
        });
        let grown = (2..10_000).try_for_each(|pages| device.grow(pages * 4096));
        is_done.store(true, Ordering::Relaxed);
        writer.join().unwrap().and(grown).unwrap();
    });
}

#[test]
fn discard_and_zeroes_free_space_and_read_as_zeros() {
    let (_directory, path) = image(0);
    std::fs::write(&path, vec![0xaa; 1 << 20]).unwrap();
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let full = blocks();
    device.discard(65_536, 262_144).unwrap();
    device.write_zeroes(524_288 + 3, 262_144).unwrap();
    device.write_zeroes(0, 0).unwrap();
    device.discard(0, 0).unwrap();
    assert!(blocks() < full, "no space was freed");
    let mut expected = vec![0xaa; 1 << 20];
    expected[65_536..][..262_144].fill(0);
    expected[524_288 + 3..][..262_144].fill(0);
    assert!(device.read_at(0, 1 << 20).unwrap()[..] == expected);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

#[test]
fn a_reader_refuses_writes() {
    let (_directory, path) = image(4096);
    let device = FileDevice::open(&path, OpenOptions::read()).unwrap();
    assert!(device.geometry().read_only);
    assert_eq!(device.write_at(0, vec![1]).unwrap_err().kind, ErrorKind::ReadOnly);
    assert_eq!(device.discard(0, 1).unwrap_err().kind, ErrorKind::ReadOnly);
    device.flush().unwrap();
}

#[test]
fn create_makes_and_grows_but_never_shrinks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::write())), ErrorKind::NotFound);
    for (size, expected) in [(10_000, 10_000), (20_000, 20_000), (5_000, 20_000)] {
        let device = FileDevice::open(&path, OpenOptions::create(size)).unwrap();
        assert_eq!(device.geometry().size, expected);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), expected);
    }
    assert_eq!(
        kind(FileDevice::open(directory.path(), OpenOptions::read())),
        ErrorKind::Unsupported
    );
    assert_eq!(kind(FileDevice::open("/dev/null", OpenOptions::write())), ErrorKind::Unsupported);
}

#[test]
fn two_opens_in_one_process_exclude_each_other() {
    let (_directory, path) = image(4096);
    let writer = FileDevice::open(&path, OpenOptions::write()).unwrap();
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::write())), ErrorKind::InUse);
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::read())), ErrorKind::InUse);
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::create(1 << 20))), ErrorKind::InUse);
    assert_eq!(
        std::fs::metadata(&path).unwrap().len(),
        4096,
        "a refused open must not change the image"
    );
    FileDevice::open(&path, OpenOptions { lock: false, ..OpenOptions::read() }).unwrap();
    drop(writer);
    let readers = [(); 2].map(|()| FileDevice::open(&path, OpenOptions::read()).unwrap());
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::write())), ErrorKind::InUse);
    drop(readers);
    FileDevice::open(&path, OpenOptions::write()).unwrap();
}

#[test]
fn a_closed_image_is_free_even_if_a_child_being_started_still_has_a_copy_of_the_descriptor() {
    let (_directory, path) = image(4096);
    let writer = FileDevice::open(&path, OpenOptions::write()).unwrap();
    let copy = writer.file.try_clone().unwrap();
    drop(writer);
    FileDevice::open(&path, OpenOptions::write()).unwrap();
    drop(copy);
}

/// Another process that holds the lock until its input ends.
fn lock_elsewhere(path: &std::path::Path) -> Child {
    let mut child = Command::new("flock")
        .args(["--exclusive", "--nonblock", "--no-fork"])
        .arg(path)
        .args(["sh", "-c", "echo locked; read -r line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock(1) of util-linux");
    let mut line = [0; 7];
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"locked\n");
    child
}

#[test]
fn an_image_held_by_another_process_is_refused_and_the_holder_named() {
    let (_directory, path) = image(4096);
    let mut child = lock_elsewhere(&path);
    for options in [OpenOptions::write(), OpenOptions::read()] {
        let error = FileDevice::open(&path, options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InUse);
        let message = error.to_string();
        assert!(message.contains("in use by") && message.contains("unmount"), "{message}");
        // On some filesystems (overlays) the kernel lists locks under another device number: the
        // name is a courtesy.
        if !message.contains("another program") {
            assert!(message.contains(&format!("process {}", child.id())), "{message}");
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    FileDevice::open(&path, OpenOptions::write()).unwrap();
}

#[test]
fn another_process_is_refused_what_we_hold() {
    let (_directory, path) = image(4096);
    let try_lock = |how| {
        Command::new("flock")
            .args([how, "--nonblock"])
            .arg(&path)
            .arg("true")
            .status()
            .unwrap()
            .success()
    };
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    assert!(!try_lock("--shared"));
    drop(device);
    let device = FileDevice::open(&path, OpenOptions::read()).unwrap();
    assert!(try_lock("--shared"));
    assert!(!try_lock("--exclusive"));
    drop(device);
    assert!(try_lock("--exclusive"));
}

/// What QEMU would find: the bytes that others have locked.
fn locked_bytes(path: &std::path::Path) -> Vec<u64> {
    let file = File::open(path).unwrap();
    (100..110)
        .chain(200..210)
        .filter(|byte| ofd::is_locked_by_others(&file, *byte..byte + 1).unwrap())
        .collect()
}

#[test]
fn qemu_finds_the_bytes_locked_that_it_looks_at() {
    let (_directory, path) = image(4096);
    let device = FileDevice::open(&path, OpenOptions::write()).unwrap();
    assert_eq!(locked_bytes(&path), [100, 101, 102, 103, 200, 201, 202, 203]);
    drop(device);
    assert_eq!(locked_bytes(&path), []);
    let readers = [(); 2].map(|()| FileDevice::open(&path, OpenOptions::read()).unwrap());
    assert_eq!(locked_bytes(&path), [100, 201, 203]);
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::write())), ErrorKind::InUse);
    drop(readers);
    assert_eq!(locked_bytes(&path), [], "a refused open leaves nothing behind");
}

#[test]
fn an_open_that_the_locks_of_qemu_deny_is_refused() {
    let (_directory, path) = image(4096);
    let qemu = File::open(&path).unwrap();
    let held = |byte: u64| assert!(ofd::lock(&qemu, ofd::Kind::Shared, byte..byte + 1).unwrap());
    // It reads, and shares.
    held(100);
    FileDevice::open(&path, OpenOptions::read()).unwrap();
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::write())), ErrorKind::InUse);
    // It writes.
    held(101);
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::read())), ErrorKind::InUse);
    ofd::unlock_all(&qemu).unwrap();
    // This lock excludes readers.
    held(200);
    assert_eq!(kind(FileDevice::open(&path, OpenOptions::read())), ErrorKind::InUse);
    // A child that another test is starting may have a copy of the descriptor, so that closing it
    // releases nothing yet.
    ofd::unlock_all(&qemu).unwrap();
    FileDevice::open(&path, OpenOptions::write()).unwrap();
}

#[test]
fn what_is_neither_a_file_nor_a_block_device_is_refused_without_being_opened() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for options in [OpenOptions::read(), OpenOptions::write(), OpenOptions::create(4096)] {
        let error = FileDevice::open(&fifo, options).unwrap_err();
        assert!(
            error.kind == ErrorKind::Unsupported && error.to_string().contains("FIFO"),
            "{error}"
        );
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Discard(u64, u64),
    Zero(u64, u64),
}

const SIZE: u64 = 40_000;

fn op() -> impl Strategy<Value = Op> {
    let place = (0..SIZE, 0..12_000_u64).prop_map(|(offset, len)| (offset, len.min(SIZE - offset)));
    (place, 0..4_u8, any::<u8>()).prop_map(|((offset, len), kind, byte)| match kind {
        0 => Op::Discard(offset, len),
        1 => Op::Zero(offset, len),
        _ => Op::Write(offset, (0..len).map(|n| (n as u8).wrapping_add(byte)).collect()),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A file, memory, and a plain array stay equal.
    #[test]
    fn all_backends_agree(ops in prop::collection::vec(op(), 1..20)) {
        let (_directory, path) = image(SIZE);
        let file = FileDevice::open(&path, OpenOptions::write()).unwrap();
        let memory = crate::memory::MemoryDevice::new(SIZE);
        let mut array = vec![0_u8; SIZE as usize];
        for op in ops {
            let (offset, bytes) = match &op {
                Op::Write(offset, data) => (*offset, data.clone()),
                Op::Discard(offset, len) | Op::Zero(offset, len) => (*offset,
                    vec![0; *len as usize]),
            };
            array[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            for device in [&file as &dyn BlockDevice, &memory] {
                match &op {
                    Op::Write(offset, data) => device.write_at(*offset, data.clone()),
                    Op::Discard(offset, len) => device.discard(*offset, *len),
                    Op::Zero(offset, len) => device.write_zeroes(*offset, *len),
                }
                .unwrap();
            }
        }
        prop_assert!(file.read_at(0, SIZE as usize).unwrap()[..] == array);
        prop_assert!(memory.read_at(0, SIZE as usize).unwrap()[..] == array);
    }
}
