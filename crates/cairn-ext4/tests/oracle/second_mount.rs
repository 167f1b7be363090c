//! The promises of fsync, checked by a second mount of a copy of the device.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::Ext4;
use cairn_vfs::{
    AllocateMode, Caller, FileSystem, IoFlags, NewInode, SetAttributes, SetTime, Timestamp,
};

use crate::support::{judge, open, volume};

fn file(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

fn resize(fs: &Ext4, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

/// Contents after a crash now.
fn after_crash(device: &MemoryDevice, name: &[u8]) -> Vec<u8> {
    let fs = open(&Arc::new(device.fork()), "");
    let found = fs.lookup(fs.root(), name).unwrap();
    let mut bytes = vec![0xee; usize::try_from(found.size).unwrap()];
    let read = fs.read(found.ino, 0, &mut bytes, IoFlags::empty()).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

/// The size on disk once waited for a write that raises it. If only a mapped block was overwritten,
/// no write raised it, and the file was too short after a crash although fsync had returned.
#[test]
fn a_file_made_longer_over_dirty_data_keeps_its_size() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024"]] {
        let device = volume(16 << 20, args);
        let fs = open(&device, "");
        let ino = file(&fs, b"f");
        fs.write(ino, 0, &[1; 4096], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        fs.write(ino, 0, &[2; 100], IoFlags::empty()).unwrap();
        resize(&fs, ino, 1 << 20);
        fs.fsync(ino, 0, false).unwrap();
        let bytes = after_crash(&device, b"f");
        assert_eq!(bytes.len(), 1 << 20);
        assert!(bytes[..100].iter().all(|b| *b == 2) && bytes[100..4096].iter().all(|b| *b == 1));
        assert!(bytes[4096..].iter().all(|b| *b == 0));
    }
}

/// The size on disk waits until the block with the old end is zeroed behind it. If a hole is
/// punched there, the size must not wait for ever.
#[test]
fn a_hole_over_the_old_end_does_not_hold_the_size_back() {
    let device = volume(16 << 20, &["-t", "ext4"]);
    let fs = open(&device, "");
    let ino = file(&fs, b"f");
    fs.write(ino, 0, &[1; 100], IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, false).unwrap();
    resize(&fs, ino, 50_000);
    fs.allocate(ino, AllocateMode::PunchHole, 0, 8192).unwrap();
    fs.fsync(ino, 0, true).unwrap();
    assert_eq!(after_crash(&device, b"f"), vec![0; 50_000]);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let device = volume(16 << 20, &["-t", "ext4"]);
    let fs = open(&device, "");
    let ino = file(&fs, b"f");
    fs.write(ino, 0, &[7; 10_000], IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, false).unwrap();
    resize(&fs, ino, 5000);
    resize(&fs, ino, 9000);
    fs.fsync(ino, 0, true).unwrap();
    let bytes = after_crash(&device, b"f");
    assert_eq!(bytes.len(), 9000);
    assert!(bytes[..5000].iter().all(|b| *b == 7) && bytes[5000..].iter().all(|b| *b == 0));
}

#[test]
fn fdatasync_keeps_overwritten_data_and_new_sizes() {
    let device = volume(16 << 20, &["-t", "ext4"]);
    let fs = open(&device, "");
    let ino = file(&fs, b"f");
    for round in 1..20_u8 {
        fs.write(ino, 0, &[round; 5000], IoFlags::empty()).unwrap();
        fs.write(ino, u64::from(round) * 5000, &[round; 5000], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, true).unwrap();
        let bytes = after_crash(&device, b"f");
        assert_eq!(bytes.len(), (usize::from(round) + 1) * 5000);
        assert!(bytes[..5000].iter().chain(&bytes[bytes.len() - 5000..]).all(|b| *b == round));
    }
}

/// A kernel with a writeback cache sends the times of each removed file, and those of a new file
/// although they have not changed. Each of them took a handle and the inode's block.
#[test]
fn times_of_removed_files_and_unchanged_times_take_no_handle() {
    let device = volume(16 << 20, &["-t", "ext4"]);
    let fs = open(&device, "");
    let (kept, removed) = (file(&fs, b"kept"), file(&fs, b"removed"));
    let unnamed = fs.tmpfile(fs.root(), 0o644, &Caller::ROOT).unwrap().ino;
    fs.unlink(fs.root(), b"removed").unwrap();
    let handles = || fs.report().u64("journal.handles").unwrap();
    let set = |ino, seconds: i64| {
        let time = Timestamp { seconds, nanoseconds: 5 };
        let (mtime, ctime) = (Some(SetTime::To(time)), Some(time));
        let found = fs.setattr(ino, &SetAttributes { mtime, ctime, ..SetAttributes::default() });
        let found = found.unwrap();
        assert_eq!((found.mtime, found.ctime), (time, time));
    };
    let before = handles();
    set(kept, 1000);
    assert_eq!(handles(), before + 1, "they have changed");
    set(kept, 1000);
    set(removed, 2000);
    set(unnamed, 3000);
    assert_eq!(handles(), before + 1);
    // Whoever gives the file a name stores its times, too.
    fs.link(unnamed, fs.root(), b"named").unwrap();
    fs.forget(removed, 1);
    fs.sync().unwrap();
    let fork = device.fork();
    fs.unmount().unwrap();
    for device in [Arc::new(fork), device] {
        let fs = open(&device, "");
        let seconds = |name| fs.lookup(fs.root(), name).unwrap().mtime.seconds;
        assert_eq!((seconds(b"kept".as_slice()), seconds(b"named".as_slice())), (1000, 3000));
        fs.unmount().unwrap();
        judge(&device);
    }
}
