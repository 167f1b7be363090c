//! Directories of many names, and what is left of them.

use std::collections::BTreeSet;

use cairn_vfs::{FileSystem, NewInode};

use crate::support::{KINDS, find, judge, make, names, open, remount, volume};

/// Names of very different lengths.
fn name(index: u32) -> Vec<u8> {
    let filler = "x".repeat((index.wrapping_mul(2_654_435_761) >> 20) as usize % 40);
    format!("{index}-{filler}").into_bytes()
}

#[test]
fn twenty_thousand_names_come_and_go() {
    for args in KINDS {
        let device = volume(256 << 20, args);
        let fs = open(&device, "");
        let directory = make(&fs, fs.root(), b"many", NewInode::Directory).unwrap().ino;
        for index in 0..20_000 {
            make(&fs, directory, &name(index), NewInode::Fifo).unwrap();
        }
        let fs = remount(&device, fs);
        let found: BTreeSet<_> = names(&fs, directory).into_iter().collect();
        assert_eq!(found.len(), 20_002);
        for index in (0..20_000).step_by(97) {
            find(&fs, directory, &name(index)).unwrap();
        }
        for index in (0..20_000).filter(|index| index % 10 != 0) {
            fs.unlink(directory, &name(index)).unwrap();
        }
        let fs = remount(&device, fs);
        assert_eq!(names(&fs, directory).len(), 2002);
        for index in (0..20_000).step_by(10) {
            fs.unlink(directory, &name(index)).unwrap();
        }
        fs.rmdir(fs.root(), b"many").unwrap();
        fs.unmount().unwrap();
        judge(&device);
    }
}
