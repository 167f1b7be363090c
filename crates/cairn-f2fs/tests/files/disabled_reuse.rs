//! `checkpoint=disable` uses blocks of nodes again that were freed since the last checkpoint. What
//! they look like to a roll-forward is ignored by the next mount.

use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, open, volume};

/// Makes files and fsyncs them.
fn make(fs: &F2fs, round: u32, count: u32) {
    for number in 0..count {
        let name = format!("{round} {number}").into_bytes();
        let made = fs.create(fs.root(), &name, NewInode::Regular, 0o644, &Caller::ROOT);
        let ino = made.unwrap().ino;
        fs.write(ino, 0, b"contents", IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        fs.forget(ino, 1);
    }
}

#[test]
fn nodes_that_look_like_a_loop_are_ignored() {
    let device = volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    make(&fs, 0, 20);
    fs.unmount().unwrap();
    let fs = open(device.clone(), "checkpoint=disable:100%");
    for round in 1..12 {
        make(&fs, round, 2500);
        for number in 0..2500 {
            fs.unlink(fs.root(), format!("{round} {number}").as_bytes()).unwrap();
        }
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let fs = open(device.clone(), "");
    assert!(fs.lookup(fs.root(), b"0 19").is_ok());
    make(&fs, 12, 20);
    fs.unmount().unwrap();
    judge(&device);
}
