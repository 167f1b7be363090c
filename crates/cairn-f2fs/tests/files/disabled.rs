//! `checkpoint=disable`: later changes can be dropped, or kept by `checkpoint=enable`.

use std::sync::Arc;

use cairn_f2fs::F2fs;
use cairn_f2fs::format::CheckpointFlags;
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::support::{judge, look, open, volume};

const MIB: usize = 1 << 20;

fn write(fs: &F2fs, name: &str, byte: u8, len: usize) {
    let ino = match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(found) => found.ino,
        Err(_) => {
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                .unwrap()
                .ino
        }
    };
    let data = vec![byte; MIB];
    for at in (0..len).step_by(MIB) {
        fs.write(ino, at as u64, &data[..MIB.min(len - at)], IoFlags::empty()).unwrap();
    }
    fs.fsync(ino, 0, false).unwrap();
}

/// First byte and size of a file. None if it does not exist.
fn read(fs: &F2fs, name: &str) -> Option<(u8, u64)> {
    let found = fs.lookup(fs.root(), name.as_bytes()).ok()?;
    let mut buf = [0; 1];
    fs.read(found.ino, 0, &mut buf, IoFlags::empty()).unwrap();
    Some((buf[0], found.size))
}

fn flags(fs: &F2fs) -> CheckpointFlags {
    fs.store().map_or(fs.disk().checkpoint.checkpoint.flags, |store| store.checkpoints.last().flags)
}

#[test]
fn what_happens_without_checkpoints_is_gone_after_the_unmount() {
    let device = volume(128 << 20, &[]);
    let fs = open(device.clone(), "");
    write(&fs, "kept", 1, 20 * MIB);
    let free = fs.statfs().unwrap().free_blocks;
    fs.unmount().unwrap();
    drop(fs);
    for ending in ["unmount", "power cut"] {
        let fs = open(device.clone(), "checkpoint=disable:100%");
        let version = fs.store().unwrap().checkpoints.version();
        // Everything is overwritten repeatedly: blocks of the checkpoint stay, all others are
        // reused.
        for round in 2..10 {
            write(&fs, "kept", round, 20 * MIB);
            write(&fs, "new", round, 9 * MIB);
            fs.sync().unwrap();
        }
        fs.unlink(fs.root(), b"kept").unwrap();
        fs.create(fs.root(), b"directory", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
        assert_eq!(fs.store().unwrap().checkpoints.version(), version, "no checkpoint");
        assert_eq!(
            fs.report().u64("checkpoint.unusable_blocks").map(|blocks| blocks >= 5120),
            Some(true)
        );
        assert!(fs.statfs().unwrap().free_blocks < free, "blocks of the checkpoint are not free");
        match ending {
            "unmount" => fs.unmount().unwrap(),
            _ => fs.shutdown(false).unwrap(),
        }
        drop(fs);
        judge(&device);
        let marked = look(Arc::new(device.fork()));
        assert!(flags(&marked).contains(CheckpointFlags::DISABLED));
        assert_eq!(
            (read(&marked, "kept"), read(&marked, "new")),
            (Some((1, 20 << 20)), None),
            "{ending}"
        );
    }
    let fs = open(device.clone(), "");
    assert!(!flags(&fs).contains(CheckpointFlags::DISABLED));
    assert_eq!((read(&fs, "kept"), read(&fs, "directory")), (Some((1, 20 << 20)), None));
    assert_eq!(fs.statfs().unwrap().free_blocks, free);
    fs.unmount().unwrap();
    judge(&device);
}

#[test]
fn enabling_makes_everything_stay() {
    let device = volume(128 << 20, &[]);
    let fs = open(device.clone(), "");
    write(&fs, "file", 1, 5 * MIB);
    fs.remount("checkpoint=disable").unwrap();
    write(&fs, "file", 2, 6 * MIB);
    for number in 0..2000 {
        let name = format!("name-{number}");
        fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    }
    let refused = fs.remount("checkpoint_merge").unwrap_err().to_string();
    assert!(
        refused.contains("checkpoint=merge cannot be used with checkpoint=disable"),
        "{refused}"
    );
    assert!(fs.remount("ro").is_err());
    fs.remount("checkpoint=enable").unwrap();
    assert_eq!(fs.report().u64("checkpoint.unusable_blocks"), Some(0));
    fs.shutdown(false).unwrap();
    drop(fs);
    judge(&device);
    let fs = open(device.clone(), "");
    assert_eq!(read(&fs, "file"), Some((2, 6 << 20)));
    assert!(read(&fs, "name-1999").is_some());
    fs.unmount().unwrap();
    judge(&device);
}

#[test]
fn too_much_unusable_space_is_refused() {
    let device = volume(128 << 20, &[]);
    let fs = open(device.clone(), "");
    // Frees every other block of a file that fills most of the volume.
    let blocks = fs.statfs().unwrap().free_blocks * 9 / 10;
    write(&fs, "file", 1, blocks as usize * 4096);
    fs.sync().unwrap();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    for block in (0..blocks).step_by(2) {
        fs.allocate(ino, cairn_vfs::AllocateMode::PunchHole, block * 4096, 4096).unwrap();
    }
    fs.sync().unwrap();
    let holes = fs.store().unwrap().segments.holes();
    assert!(holes[0] > blocks / 4, "{holes:?} of {blocks}");
    let outcome = fs.remount("checkpoint=disable:1");
    if let Err(refused) = outcome {
        assert!(
            refused.to_string().contains("blocks would be unusable, and 1 are allowed"),
            "{refused}"
        );
        assert_eq!(fs.report().text("options.checkpoint"), Some("enable"));
    }
    // In both cases the volume works, and the limit is high enough now.
    fs.remount("checkpoint=disable:100%").unwrap();
    fs.setattr(ino, &SetAttributes { size: Some(4096), ..SetAttributes::default() }).unwrap();
    fs.remount("checkpoint=enable").unwrap();
    fs.unmount().unwrap();
    judge(&device);
}

/// What a write was promised has its place: the write without room fails, and nothing later does.
#[test]
fn a_full_volume_refuses_writes_and_nothing_else() {
    for (mode, overwrites) in [("adaptive", false), ("lfs", false), ("adaptive", true)] {
        let device = volume(128 << 20, &[]);
        let fs = open(device.clone(), "");
        write(&fs, "kept", 1, 8 * MIB);
        fs.unmount().unwrap();
        drop(fs);
        let fs = open(device.clone(), &format!("mode={mode},checkpoint=disable"));
        let root = fs.root();
        if overwrites {
            // Takes new blocks beside those of the checkpoint.
            write(&fs, "kept", 2, 8 * MIB);
        }
        let full = fs.create(root, b"full", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        let data = vec![3; 256 << 10];
        let (mut size, refused) = loop {
            let size = fs.getattr(full).unwrap().size;
            assert!(size < 128 << 20, "{mode}: everything fits");
            match fs.write(full, size, &data, IoFlags::empty()) {
                Ok(_) => (),
                Err(error) => break (size, error),
            }
        };
        assert!(matches!(refused, Error::NoSpace), "{mode}: {refused}");
        assert!(fs.room(false) < 256 << 10, "{mode}: {} bytes are offered", fs.room(false));
        fs.fsync(full, 0, false).unwrap();
        fs.sync().unwrap();
        // Space that was preallocated is there for its data.
        let half = size / 2;
        fs.setattr(full, &SetAttributes { size: Some(half), ..SetAttributes::default() }).unwrap();
        let promised = fs.create(root, b"promised", NewInode::Regular, 0o644, &Caller::ROOT);
        let promised = promised.unwrap().ino;
        let wanted = fs.room(false) / 2;
        fs.allocate(promised, AllocateMode::Extend, 0, wanted).unwrap();
        size = half;
        while fs.write(full, size, &data, IoFlags::empty()).is_ok() {
            size += data.len() as u64;
        }
        for at in (0..wanted).step_by(data.len()) {
            let data = &data[..data.len().min((wanted - at) as usize)];
            fs.write(promised, at, data, IoFlags::empty()).unwrap();
        }
        fs.sync().unwrap();
        fs.unlink(root, b"full").unwrap();
        fs.forget(full, 1);
        assert!(fs.room(false) > half / 2, "{mode}: {} bytes after unlink", fs.room(false));
        write(&fs, "another", 4, MIB);
        fs.unmount().unwrap();
        drop(fs);
        judge(&device);
        let after = look(Arc::new(device.fork()));
        assert_eq!((read(&after, "kept"), read(&after, "another")), (Some((1, 8 << 20)), None));
    }
}

/// A full volume keeps everything when checkpoints are enabled again.
#[test]
fn a_full_volume_can_enable_checkpoints() {
    for size in [100_000, 10] {
        let device = volume(64 << 20, &[]);
        let fs = open(device.clone(), "checkpoint=disable");
        let (root, caller) = (fs.root(), Caller::ROOT);
        let name = |file: u32| format!("file-{file}").into_bytes();
        let mut files = 0;
        let full = loop {
            let ino = match fs.create(root, &name(files), NewInode::Regular, 0o644, &caller) {
                Ok(made) => made.ino,
                Err(error) => break error,
            };
            match fs.write(ino, 0, &vec![5; size], IoFlags::empty()) {
                Ok(done) if done == size => files += 1,
                Ok(_) => break Error::NoSpace,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace) && files > 20, "{full} after {files} files");
        let gone = files / 10;
        (0..gone).for_each(|file| fs.unlink(root, &name(file)).unwrap());
        fs.remount("checkpoint=enable").unwrap();
        fs.shutdown(false).unwrap();
        drop(fs);
        judge(&device);
        let fs = open(device.clone(), "");
        for file in gone..files {
            let found = fs.lookup(fs.root(), &name(file)).unwrap();
            let mut bytes = vec![0; size];
            let read = fs.read(found.ino, 0, &mut bytes, IoFlags::empty()).unwrap();
            assert!(read == size && bytes.iter().all(|byte| *byte == 5), "file {file}");
        }
        fs.unmount().unwrap();
    }
}
