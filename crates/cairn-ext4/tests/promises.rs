//! What sequential writers are promised ahead: how seldom the mapping is asked, and that nobody loses space over it.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{assert_clean, mke2fs};
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, Seek, SetAttributes};

const MIB: u64 = 1 << 20;

fn device(mib: u64) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), mib << 20, &["-t", "ext4", "-b", "4096"]);
    Arc::new(read_image(file.path()).unwrap())
}

fn open(device: &Arc<MemoryDevice>, options: &str) -> Arc<Ext4> {
    Ext4::open(device.clone(), Arc::new(Threads::new()), &MountOptions::parse(options).unwrap()).unwrap()
}

#[track_caller]
fn judge(volume: &Ext4, device: &MemoryDevice) {
    volume.unmount().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(device, file.path()).unwrap();
    assert_clean(file.path());
}

fn create(volume: &Ext4, name: &str) -> Ino {
    volume.create(volume.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

/// Writes `bytes` from `start` on in calls of one size.
#[track_caller]
fn write(volume: &Ext4, ino: Ino, start: u64, bytes: u64, call: usize) {
    let piece = vec![0x5a; call];
    for at in (start..start + bytes).step_by(call) {
        assert_eq!(volume.write(ino, at, &piece, IoFlags::empty()).unwrap(), call, "at {at}");
    }
}

/// Writes from the start on until nothing fits; the blocks that did.
fn write_until_full(volume: &Ext4, ino: Ino, start: u64, call: usize) -> u64 {
    let piece = vec![0x6b; call];
    let mut done = start;
    loop {
        match volume.write(ino, done, &piece, IoFlags::empty()) {
            Ok(taken) => done += taken as u64,
            Err(Error::NoSpace) => return (done - start) / 4096,
            Err(error) => panic!("{error}"),
        }
    }
}

fn calls(volume: &Ext4) -> u64 {
    volume.report().u64("cache.map_calls").unwrap()
}

fn free(volume: &Ext4) -> u64 {
    volume.statfs().unwrap().free_blocks
}

/// Blocks of a file, as `stat` shows them.
fn blocks(volume: &Ext4, ino: Ino) -> u64 {
    volume.getattr(ino).unwrap().sectors / 8
}

fn set_size(volume: &Ext4, ino: Ino, size: u64) {
    volume.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

#[test]
fn sequential_calls_of_any_size_ask_less_than_once_a_mib() {
    for call in [4 << 10, 64 << 10, 1 << 20] {
        let device = device(256);
        let volume = open(&device, "cache=256M");
        let ino = create(&volume, "file");
        for kind in ["append", "overwrite"] {
            let before = calls(&volume);
            write(&volume, ino, 0, 32 * MIB, call);
            volume.fsync(ino, 0, false).unwrap();
            let asked = calls(&volume) - before;
            assert!(asked <= 32, "{kind} in calls of {call}: {asked} questions for 32 MiB");
        }
        volume.unmount().unwrap();

        let volume = open(&device, "cache=256M");
        let ino = volume.lookup(volume.root(), b"file").unwrap().ino;
        let before = calls(&volume);
        let mut buf = vec![0; call];
        for at in (0..32 * MIB).step_by(call) {
            assert_eq!(volume.read(ino, at, &mut buf, IoFlags::empty()).unwrap(), call);
            assert!(buf.iter().all(|byte| *byte == 0x5a));
        }
        let asked = calls(&volume) - before;
        assert!(asked <= 64, "reads of {call}: {asked} questions for 32 MiB");
        judge(&volume, &device);
    }
}

/// Random writes and small files are promised what they write, and the baseline asks for each block.
#[test]
fn only_who_writes_in_a_row_is_promised_ahead() {
    let device = device(64);
    let volume = open(&device, "nobuffered_iomap");
    let before = calls(&volume);
    write(&volume, create(&volume, "per block"), 0, MIB, 64 << 10);
    assert_eq!(calls(&volume) - before, 256);
    volume.remount("buffered_iomap").unwrap();
    let ino = create(&volume, "random");
    let before = calls(&volume);
    for block in (0..100).rev() {
        write(&volume, ino, block * 8192, 4096, 4096);
    }
    assert_eq!(calls(&volume) - before, 100);
    judge(&volume, &device);
}

#[test]
fn what_is_not_used_takes_no_space() {
    let device = device(64);
    let volume = open(&device, "");
    let (ino, other) = (create(&volume, "file"), create(&volume, "other"));
    volume.sync().unwrap();
    let whole = free(&volume);
    for round in 0..3 {
        // Five MiB and a block: more is promised.
        write(&volume, ino, 0, 5 * MIB + 4096, 4096);
        assert_eq!(free(&volume), whole - 1281, "round {round}");
        write(&volume, ino, 5 * MIB + 4096, 4096, 4096);
        assert_eq!((blocks(&volume, ino), free(&volume)), (1282, whole - 1282));
        match round {
            0 => set_size(&volume, ino, 0),
            1 => {
                volume.fsync(ino, 0, false).unwrap();
                assert_eq!(blocks(&volume, ino), 1282);
                set_size(&volume, ino, 0);
            }
            _ => volume.unlink(volume.root(), b"file").unwrap(),
        }
        if round == 2 {
            volume.forget(ino, 1);
        }
        volume.sync().unwrap();
        assert_eq!(free(&volume), whole, "round {round}");
    }
    // Into a hole: what is promised there is no data, and can be allocated.
    set_size(&volume, other, 16 * MIB);
    write(&volume, other, 0, 2 * MIB, 64 << 10);
    assert_eq!(volume.seek(other, 0, Seek::Hole).unwrap(), 2 * MIB);
    write(&volume, other, 2 * MIB, 2 * MIB, 64 << 10);
    volume.allocate(other, AllocateMode::KeepSize, 0, 16 * MIB).unwrap();
    volume.fsync(other, 0, false).unwrap();
    assert_eq!(blocks(&volume, other), 4096);
    judge(&volume, &device);
}

#[test]
fn nobody_fails_for_what_another_was_promised() {
    let device = device(40);
    let volume = open(&device, "");
    let (first, second) = (create(&volume, "first"), create(&volume, "second"));
    volume.sync().unwrap();
    let whole = free(&volume);
    write(&volume, first, 0, 6 * MIB, 64 << 10);
    let taken = write_until_full(&volume, second, 0, 4096);
    assert_eq!((taken, free(&volume)), (whole - 6 * 256, 0));
    assert!(matches!(volume.write(first, 6 * MIB, &[1; 4096], IoFlags::empty()), Err(Error::NoSpace)));
    volume.sync().unwrap();
    assert_eq!((blocks(&volume, first), free(&volume)), (6 * 256, 0));
    assert_eq!(blocks(&volume, second), taken);
    judge(&volume, &device);
}

/// Several write until nothing fits: whatever they were promised meanwhile, each block ends in one of the files.
#[test]
fn contending_writers_fill_the_volume_to_the_last_block() {
    for round in 0..4 {
        let device = device(40);
        let volume = open(&device, "");
        let files: Vec<Ino> = (0..4).map(|number| create(&volume, &format!("f{number}"))).collect();
        volume.sync().unwrap();
        let whole = free(&volume);
        let taken: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = files
                .iter()
                .map(|ino| {
                    scope.spawn(|| write_until_full(&volume, *ino, 0, if round % 2 == 0 { 4096 } else { 65536 }))
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!((taken, free(&volume)), (whole, 0), "round {round}");
        volume.sync().unwrap();
        let kept: u64 = files.iter().map(|ino| volume.getattr(*ino).unwrap().size / 4096).sum();
        assert_eq!(kept, whole);
        judge(&volume, &device);
    }
}
