//! Checks of the space that sequential writers reserve ahead: the mapper is called rarely, and no
//! other writer loses space.
//!
//! The checks are the same for every format. Each format has its own volumes ([`Subject`]). Some
//! formats count the blocks of a file's map as the file's (`maps`: at most this many).

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, Seek, SetAttributes};

use super::Subject;

const MIB: u64 = 1 << 20;

type Volume = dyn FileSystem;

/// Asserts that a count is `wanted`, or at most `maps` more, which are blocks of files' maps.
#[track_caller]
fn assert_taken(what: &str, taken: u64, wanted: u64, maps: u64) {
    assert!(
        (wanted..=wanted + maps).contains(&taken),
        "{what}: {taken} blocks, not {wanted} (and {maps} for maps)"
    );
}

#[track_caller]
fn finish(subject: &dyn Subject, volume: &Volume, device: &Arc<MemoryDevice>) {
    volume.unmount().unwrap();
    subject.judge(device);
}

fn create(volume: &Volume, name: &str) -> Ino {
    volume
        .create(volume.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
        .unwrap()
        .ino
}

/// Writes `bytes` from `start` on in calls of one size.
#[track_caller]
fn write(volume: &Volume, ino: Ino, start: u64, bytes: u64, call: usize) {
    let piece = vec![0x5a; call];
    for at in (start..start + bytes).step_by(call) {
        assert_eq!(volume.write(ino, at, &piece, IoFlags::empty()).unwrap(), call, "at {at}");
    }
}

/// Writes from `start` on until the volume is full. Returns the number of written blocks.
fn write_until_full(volume: &Volume, ino: Ino, start: u64, call: usize) -> u64 {
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

fn calls(volume: &Volume) -> u64 {
    volume.report().u64("cache.map_calls").unwrap()
}

/// Blocks that writers can have. `statfs` counts blocks that a format keeps for maps as free; no
/// writer gets them.
fn free(volume: &Volume) -> u64 {
    volume.statfs().unwrap().free_blocks.min(volume.room(true) / 4096)
}

/// Blocks of a file, as `stat` shows them.
fn blocks(volume: &Volume, ino: Ino) -> u64 {
    volume.getattr(ino).unwrap().sectors / 8
}

fn set_size(volume: &Volume, ino: Ino, size: u64) {
    volume.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

/// Sequential writes of any size call the mapper at most once per MiB, cold reads at most twice.
///
/// # Panics
/// A check fails.
pub fn sequential_calls_of_any_size_ask_less_than_once_a_mib(subject: &dyn Subject) {
    for call in [4 << 10, 64 << 10, 1 << 20] {
        let device = subject.make();
        let volume = subject.open(&device);
        let ino = create(&*volume, "file");
        for kind in ["append", "overwrite"] {
            let before = calls(&*volume);
            write(&*volume, ino, 0, 32 * MIB, call);
            volume.fsync(ino, 0, false).unwrap();
            let asked = calls(&*volume) - before;
            assert!(asked <= 32, "{kind} in calls of {call}: {asked} questions for 32 MiB");
        }
        volume.unmount().unwrap();

        let volume = subject.open(&device);
        let ino = volume.lookup(volume.root(), b"file").unwrap().ino;
        let before = calls(&*volume);
        let mut buf = vec![0; call];
        for at in (0..32 * MIB).step_by(call) {
            assert_eq!(volume.read(ino, at, &mut buf, IoFlags::empty()).unwrap(), call);
            assert!(buf.iter().all(|byte| *byte == 0x5a));
        }
        let asked = calls(&*volume) - before;
        assert!(asked <= 64, "reads of {call}: {asked} questions for 32 MiB");
        finish(subject, &*volume, &device);
    }
}

/// Random writes and small files reserve only what they write, and the baseline calls the mapper
/// for each block. The volume is opened with `nobuffered_iomap`.
///
/// # Panics
/// A check fails.
pub fn only_sequential_writers_reserve_ahead(subject: &dyn Subject) {
    let device = subject.make();
    let volume = subject.open(&device);
    let before = calls(&*volume);
    write(&*volume, create(&*volume, "per block"), 0, MIB, 64 << 10);
    assert_eq!(calls(&*volume) - before, 256);
    volume.remount("buffered_iomap").unwrap();
    let ino = create(&*volume, "random");
    let before = calls(&*volume);
    for block in (0..100).rev() {
        write(&*volume, ino, block * 8192, 4096, 4096);
    }
    assert_eq!(calls(&*volume) - before, 100);
    finish(subject, &*volume, &device);
}

/// Space that was reserved ahead and not used appears in no count, and other writers get it.
///
/// # Panics
/// A check fails.
pub fn what_is_not_used_takes_no_space(subject: &dyn Subject, maps: u64) {
    let device = subject.make();
    let volume = subject.open(&device);
    let (ino, other) = (create(&*volume, "file"), create(&*volume, "other"));
    volume.sync().unwrap();
    let whole = free(&*volume);
    for round in 0..3 {
        // After five MiB and a block, more is reserved.
        write(&*volume, ino, 0, 5 * MIB + 4096, 4096);
        assert_taken("before", whole - free(&*volume), 1281, maps);
        write(&*volume, ino, 5 * MIB + 4096, 4096, 4096);
        assert_taken("of the file", blocks(&*volume, ino), 1282, maps);
        assert_taken("after", whole - free(&*volume), 1282, maps);
        match round {
            0 => set_size(&*volume, ino, 0),
            1 => {
                volume.fsync(ino, 0, false).unwrap();
                assert_taken("synced", blocks(&*volume, ino), 1282, maps);
                set_size(&*volume, ino, 0);
            }
            _ => volume.unlink(volume.root(), b"file").unwrap(),
        }
        if round == 2 {
            volume.forget(ino, 1);
        }
        volume.sync().unwrap();
        assert_taken("free again", free(&*volume), whole, maps);
    }
    // The write is into a hole. A reservation there is not data, and can be allocated.
    set_size(&*volume, other, 16 * MIB);
    write(&*volume, other, 0, 2 * MIB, 64 << 10);
    assert_eq!(volume.seek(other, 0, Seek::Hole).unwrap(), 2 * MIB);
    write(&*volume, other, 2 * MIB, 2 * MIB, 64 << 10);
    volume.allocate(other, AllocateMode::KeepSize, 0, 16 * MIB).unwrap();
    volume.fsync(other, 0, false).unwrap();
    assert_taken("allocated", blocks(&*volume, other), 4096, maps);
    finish(subject, &*volume, &device);
}

/// On a full volume a writer gets the blocks that others have reserved ahead.
///
/// # Panics
/// A check fails.
pub fn no_writer_fails_for_the_reservation_of_another(subject: &dyn Subject, maps: u64) {
    let device = subject.make();
    let volume = subject.open(&device);
    let (first, second) = (create(&*volume, "first"), create(&*volume, "second"));
    volume.sync().unwrap();
    let whole = free(&*volume);
    write(&*volume, first, 0, 6 * MIB, 64 << 10);
    let taken = write_until_full(&*volume, second, 0, 4096);
    assert_taken("left", whole - 6 * 256, taken, maps);
    assert_taken("free", free(&*volume), 0, maps);
    assert!(matches!(
        volume.write(first, 6 * MIB, &[1; 4096], IoFlags::empty()),
        Err(Error::NoSpace)
    ));
    volume.sync().unwrap();
    assert_taken("first", blocks(&*volume, first), 6 * 256, maps);
    assert_taken("free", free(&*volume), 0, maps);
    assert_taken("second", blocks(&*volume, second), taken, maps);
    finish(subject, &*volume, &device);
}

/// Several writers fill the volume. Each block is in one of the files at the end, whatever was
/// reserved meanwhile.
///
/// # Panics
/// A check fails.
pub fn contending_writers_fill_the_volume_to_the_last_block(subject: &dyn Subject, maps: u64) {
    for round in 0..4 {
        let device = subject.make();
        let volume = subject.open(&device);
        let files: Vec<Ino> =
            (0..4).map(|number| create(&*volume, &format!("f{number}"))).collect();
        volume.sync().unwrap();
        let whole = free(&*volume);
        let taken: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = files
                .iter()
                .map(|ino| {
                    scope.spawn(|| {
                        write_until_full(
                            &*volume,
                            *ino,
                            0,
                            if round % 2 == 0 { 4096 } else { 65536 },
                        )
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_taken("taken", whole, taken, maps);
        assert_taken("free", free(&*volume), 0, maps);
        volume.sync().unwrap();
        let kept: u64 = files.iter().map(|ino| volume.getattr(*ino).unwrap().size / 4096).sum();
        assert_eq!(kept, taken);
        finish(subject, &*volume, &device);
    }
}
