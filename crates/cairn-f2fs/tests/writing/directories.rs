//! Directories of many names, also after most names are removed.

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

/// The memory of directories is counted in the budget, and is freed when memory is short.
#[test]
fn blocks_of_many_directories_stay_within_the_cache() {
    const LIMIT: u64 = 8 << 20;
    let device = volume(192 << 20, &[]);
    let fs = open(&device, "cache=8M");
    let targets: Vec<_> = (0..4_u8)
        .map(|number| make(&fs, fs.root(), &[b't', b'0' + number], NewInode::Regular).unwrap().ino)
        .collect();
    let directories: Vec<_> = (0..120)
        .map(|number| {
            make(&fs, fs.root(), format!("d{number}").as_bytes(), NewInode::Directory).unwrap().ino
        })
        .collect();
    let name = |index: usize| format!("{index}-{}", "x".repeat(90)).into_bytes();
    for (number, directory) in directories.iter().enumerate() {
        for index in 0..400 {
            let target = targets[(number + index) % targets.len()];
            fs.link(target, *directory, &name(index)).unwrap();
            fs.forget(target, 1);
        }
    }
    fs.sync().unwrap();
    let budget = fs.inodes().pages.budget();
    let mut seen = 0;
    for _ in 0..2 {
        for directory in &directories {
            seen += names(&fs, *directory).len() - 2;
            find(&fs, *directory, &name(399)).unwrap();
            assert!(budget.used() <= LIMIT + (64 << 10), "{} bytes of {LIMIT}", budget.used());
        }
    }
    assert_eq!(seen, 2 * 120 * 400);
    fs.unmount().unwrap();
    judge(&device);
}
