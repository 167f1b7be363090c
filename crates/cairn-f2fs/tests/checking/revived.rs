//! An old copy of a block of the NAT has nodes of deleted files. A repair drops those whose blocks
//! are something else, without losses, as long as nothing that is counted is missing.

use std::sync::Arc;

use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::{Plan, Scope};
use cairn_f2fs::F2fs;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use crate::inject::Target;
use crate::listed::word;
use crate::names::without_name;
use crate::readers::View;
use crate::repair::{apply, fsck, plan};
use crate::volume::{MIB, open, volume};
use crate::{check, lines};

/// Bytes of an entry of the NAT, and entries of a block.
const ENTRY: usize = 9;
const ENTRIES: usize = 455;
/// Files that are deleted at last: more than the journal has room for.
const LATE: u64 = 60;
const DELETED: &str = "f2fs.nat.deleted";

fn add(fs: &F2fs, name: &str, len: usize) -> Result<(), Error> {
    let made = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
    let bytes = vec![name.as_bytes()[0]; len];
    fs.write(made.ino, 0, &bytes, IoFlags::empty())?;
    fs.forget(made.ino, 1);
    Ok(())
}

/// A volume on which files of this length were deleted, and whose blocks were used again: after the
/// files were made, and at the end.
fn used_again(len: usize, count: usize, rounds: usize) -> [Target; 2] {
    let device = volume(96 * MIB, &[]);
    let fs = open(device.clone(), "");
    for number in 0..count {
        add(&fs, &format!("kept {number}"), 6000).unwrap();
        add(&fs, &format!("gone {number}"), len).unwrap();
    }
    // Their entries do not stay in the journal.
    for number in 0..120 {
        add(&fs, &format!("more {number}"), 100).unwrap();
    }
    fs.unmount().unwrap();
    let first = Target::of(&Arc::new(device.fork()));
    let fs = open(device.clone(), "");
    for number in 0..count {
        fs.unlink(fs.root(), format!("gone {number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    for round in 0..rounds {
        let fs = open(device.clone(), "");
        let made =
            (0..).take_while(|number| add(&fs, &format!("{round} {number}"), 200_000).is_ok());
        let made = made.count();
        for number in (0..made).filter(|number| number % 3 != round) {
            let _ = fs.unlink(fs.root(), format!("{round} {number}").as_bytes());
        }
        fs.unmount().unwrap();
    }
    // The blocks of these stay as they are.
    let fs = open(device.clone(), "nodiscard");
    for number in 0..LATE {
        fs.unlink(fs.root(), format!("more {number}").as_bytes()).unwrap();
    }
    fs.unmount().unwrap();
    [first, Target::of(&device)]
}

/// The volume with entries of its earlier state where it has none.
fn led_back(first: &Target, target: &Target) -> (Arc<Overlay>, usize) {
    let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
    let old: Vec<Vec<u8>> = first.nat_blocks().into_iter().map(|at| first.read(at)).collect();
    let mut back = 0;
    for at in target.nat_blocks() {
        let mut bytes = target.read(at);
        let has_root = |bytes: &[u8]| word(bytes, 3 * ENTRY + 1) == 3;
        if !has_root(&bytes) {
            continue;
        }
        for old in old.iter().filter(|old| has_root(old)) {
            for place in (4..ENTRIES).map(|entry| entry * ENTRY) {
                if word(&bytes, place + 5) == 0 && word(old, place + 5) != 0 {
                    bytes[place..place + ENTRY].copy_from_slice(&old[place..place + ENTRY]);
                    back += 1;
                }
            }
        }
        overlay.write_at(at, bytes).unwrap();
    }
    (overlay, back)
}

fn steps_of(plan: &Plan, code: &str) -> u64 {
    plan.steps.counts().filter(|(kind, _)| kind.code == code).map(|(_, count)| count).sum()
}

#[test]
fn nodes_of_deleted_files_are_dropped_without_losses() {
    for (len, count, rounds, least) in [(6000, 150, 1, 80), (6000, 150, 3, 40), (5 << 20, 6, 3, 4)]
    {
        let [first, target] = used_again(len, count, rounds);
        let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
        let sound = View::of(&sound);
        for scope in [Scope::Accounting, Scope::All] {
            let (overlay, back) = led_back(&first, &target);
            let device: Arc<dyn BlockDevice> = overlay.clone();
            let found = check(device.clone()).unwrap();
            let done = plan(&device, scope).unwrap();
            let dropped = steps_of(&done, DELETED);
            assert!(dropped >= least, "{len}: {dropped} dropped of {back}:\n{}", lines(&found));
            assert_eq!(steps_of(&done, "f2fs.inode.unreachable"), LATE, "{len}");
            assert!(done.steps.losing().next().is_none(), "{len}");
            assert_eq!(done.after.count(), 0, "{len}:\n{}", lines(&done.after));
            apply(&done, &device);
            assert!(plan(&device, Scope::All).unwrap().changes.is_empty(), "{len}");
            // Files that are whole get other names: those that they had may be of another user now.
            let (back, wrong): (Vec<_>, Vec<_>) =
                View::of(&device).wrong(&sound).into_iter().partition(|wrong| {
                    wrong.starts_with("/lost+found") && wrong.ends_with("it was not there")
                });
            let count = back.len() as u64;
            assert!(wrong.is_empty() && count == LATE + 1, "{len}: {wrong:?}, {back:?}");
            fsck(&target, &overlay).unwrap_or_else(|error| panic!("{len}: {error}"));
        }
    }
}

/// A file without its name, whose entry leads to another node: its block is there, or is gone, too.
#[test]
fn a_file_that_is_lost_is_none_that_was_deleted() {
    let device = volume(64 * MIB, &[]);
    let fs = open(device.clone(), "");
    for number in 0..300 {
        add(&fs, &format!("file {number}"), 6000).unwrap();
    }
    let [ino, other] = ["file 17", "file 33"]
        .map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap().ino.get() as u32);
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let [own, to] = [ino, other].map(|ino| target.inode_of(ino));
    for is_gone in [false, true] {
        let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
        let nat = target.inject_nat(ino as usize, ("block_addr", 5, 4), (to >> 12) as u32);
        for (at, bytes) in without_name(&target, b"file 17").blocks.iter().chain(&nat.blocks) {
            overlay.write_at(*at, bytes.clone()).unwrap();
        }
        if is_gone {
            overlay.write_at(own, vec![0; 4096]).unwrap();
        }
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.node.footer") && !found.contains(DELETED), "{found}");
        let safe = plan(&device, Scope::Accounting).unwrap();
        assert!(steps_of(&safe, DELETED) == 0 && safe.steps.losing().next().is_none());
        let all = plan(&device, Scope::All).unwrap();
        assert_eq!(steps_of(&all, DELETED), 0);
        assert_eq!(all.steps.losing().next().is_some(), is_gone);
        apply(&all, &device);
        let wrong = View::of(&device).wrong(&sound);
        assert_eq!(wrong, Vec::from_iter(is_gone.then_some("/file 17: missing")));
        fsck(&target, &overlay).unwrap();
    }
}
