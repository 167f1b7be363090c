//! Files that were cut and made longer again have holes. An old entry of the SIT calls the blocks
//! that were cut off used, and an old entry of the NAT leads to the inode from before: no repair
//! puts these blocks into the holes.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_f2fs::F2fs;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::called_free::{ENTRY, entry_place};
use crate::check;
use crate::inject::{Injection, Target};
use crate::lines;
use crate::repair::damaged;
use crate::stale::{led_back, place_of};
use crate::types::{Judge, planted};
use crate::volume::open;

const BLOCK: u64 = 4096;
/// Files, with their blocks before the cut, and those that stay.
const FILES: [(&str, u64, u64); 4] =
    [("cut 1", 10, 1), ("cut 2", 10, 9), ("cut 3", 40, 0), ("cut 4", 1500, 1000)];
/// The volume has no room for more.
const MOST_RESERVED: u64 = 100;

fn resize(fs: &F2fs, ino: cairn_base::Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

/// What the files have where they were cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Hole,
    /// Places that `fallocate` has reserved.
    Reserved,
}

/// A volume whose files have holes, as it was before they were cut, and as it is.
fn cut(end: End) -> (Target, Judge, Vec<u32>) {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard");
    for (name, blocks, _) in FILES {
        let new = NewInode::Regular;
        let ino = fs.create(fs.root(), name.as_bytes(), new, 0o644, &Caller::ROOT).unwrap().ino;
        let contents: Vec<u8> = (0..blocks * BLOCK).map(|at| (at / BLOCK) as u8 | 1).collect();
        fs.write(ino, 0, &contents, IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    let before = Target::of(&Arc::new(device.fork()));
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    let mut numbers = Vec::new();
    for (name, blocks, kept) in FILES {
        let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().ino;
        resize(&fs, ino, kept * BLOCK);
        resize(&fs, ino, blocks * BLOCK);
        if end == End::Reserved {
            let mode = AllocateMode::KeepSize;
            let reserved = (blocks - kept).min(MOST_RESERVED);
            fs.allocate(ino, mode, kept * BLOCK, reserved * BLOCK).unwrap();
        }
        numbers.push(u32::try_from(ino.get()).unwrap());
    }
    fs.unmount().unwrap();
    (before, Judge::of(&device), numbers)
}

fn keeps_all(judge: &Judge, injection: &Injection) {
    let what = &injection.what;
    for scope in [Scope::Accounting, Scope::All] {
        let found = lines(&check(Arc::new(damaged(&judge.target, injection))).unwrap());
        let (tree, lost) = judge.repair(injection, scope);
        assert!(lost.is_empty(), "{what}: {lost:?}\n{found}");
        assert!(tree.unwrap() == judge.sound, "{what}:\n{found}");
    }
}

/// Calls `each` with each old entry of the SIT alone.
fn old_entries((before, judge): (&Target, &Judge), each: &mut dyn FnMut(&Injection)) {
    let target = &judge.target;
    let entry = |target: &Target, segment| {
        let (at, base) = entry_place(target, segment);
        target.read(at)[base..base + ENTRY].to_vec()
    };
    let mut changed = 0;
    for segment in 0..target.layout().main_segments {
        let old = entry(before, segment);
        // What was not in use has no bits.
        if old[..66] == entry(target, segment)[..66] || old[..2] == [0; 2] {
            continue;
        }
        let (at, base) = entry_place(target, segment);
        let mut one = target.read(at);
        one[base..base + ENTRY].copy_from_slice(&old);
        let what = format!("the entry of segment {segment}");
        each(&Injection { what, blocks: vec![(at, one)] });
        changed += 1;
    }
    assert!(changed > 1, "{changed}");
}

#[test]
fn blocks_that_an_old_entry_of_the_sit_calls_used_are_not_put_into_holes() {
    let (before, judge, _) = cut(End::Hole);
    old_entries((&before, &judge), &mut |injection| keeps_all(&judge, injection));
}

/// Nothing says whether such a place has lost its block: a repair without losses leaves it.
#[test]
fn old_entries_of_the_sit_fill_no_reserved_place_without_a_question() {
    let (before, judge, _) = cut(End::Reserved);
    let mut left = 0;
    old_entries((&before, &judge), &mut |injection| {
        let what = &injection.what;
        let found = lines(&check(Arc::new(damaged(&judge.target, injection))).unwrap());
        let (tree, lost) = judge.repair(injection, Scope::Accounting);
        assert!(lost.is_empty(), "{what}: {lost:?}\n{found}");
        assert!(tree.as_ref().is_none_or(|tree| *tree == judge.sound), "{what}:\n{found}");
        left += u32::from(tree.is_none());
        let (tree, lost) = judge.repair(injection, Scope::All);
        let mut tree = tree.unwrap();
        for path in lost {
            tree.insert(path.clone(), judge.sound[&path].clone());
        }
        assert!(tree == judge.sound, "{what}:\n{found}");
    });
    assert!(left > 0);
}

#[test]
fn blocks_of_the_inode_before_are_not_put_into_holes() {
    let (before, judge, numbers) = cut(End::Hole);
    let device: &MemoryDevice = &before.device;
    for ino in numbers {
        let injection = led_back(&judge, ino, place_of(device, ino));
        keeps_all(&judge, &Injection { what: format!("inode {ino}"), ..injection });
    }
}
