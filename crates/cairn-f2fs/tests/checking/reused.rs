//! A NAT that calls the nodes of files free: an entry is lost, or an old copy of a block is put
//! back. New files get other numbers, so that a repair finds the old ones as they were.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::{CheckpointFlags, inode};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, XattrMode};

use crate::inject::{Injection, Target};
use crate::lines;
use crate::packs::seal;
use crate::readers::{View, repaired_view};
use crate::repair::{apply, fsck, plan};
use crate::types::plant;
use crate::volume::{MIB, volume};

/// Bytes of an entry of the NAT, and entries of a block.
const ENTRY: usize = 9;
const ENTRIES: usize = 455;

/// `next_free_nid` of a checkpoint.
const NEXT_FREE_NID: Range<usize> = 152..156;

const OPTIONS: [&str; 4] = ["", "mode=lfs", "checkpoint_merge", "fsync_mode=nobarrier"];

fn mounted(device: Arc<dyn BlockDevice>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).unwrap();
    F2fs::open(device, Threads::new(), &options).unwrap()
}

/// Makes `count` files of 8 KiB in the root; every tenth is fsynced.
fn add(fs: &F2fs, what: &str, count: usize) {
    for number in 0..count {
        let name = format!("{what} {number}").into_bytes();
        let made = fs.create(fs.root(), &name, NewInode::Regular, 0o644, &Caller::ROOT);
        let ino = made.unwrap().ino;
        let contents = format!("contents of {what} {number}\n").repeat(250).into_bytes();
        fs.write(ino, 0, &contents, IoFlags::empty()).unwrap();
        if number % 10 == 0 {
            fs.fsync(ino, 0, false).unwrap();
        }
        fs.forget(ino, 1);
    }
}

/// A volume whose files were made in two sessions, and the volume after the first one.
fn made_in_two_sessions() -> (Target, Arc<MemoryDevice>) {
    let device = volume(128 * MIB, &[]);
    plant(&mounted(device.clone(), ""));
    let fs = mounted(device.clone(), "");
    add(&fs, "first", 300);
    fs.unmount().unwrap();
    let first = Arc::new(device.fork());
    let fs = mounted(device.clone(), "");
    add(&fs, "second", 600);
    fs.unmount().unwrap();
    (Target::of(&device), first)
}

/// Some entries are lost, or all of a block that have no address in an older state of the volume.
fn cases(target: &Target, older: &Target) -> Vec<Injection> {
    let mut cases = Vec::new();
    for block in target.nat_blocks() {
        let sound = target.read(block);
        let is_used = |entry: &&usize| {
            // The root must be found.
            let at = **entry * ENTRY;
            sound[at..at + ENTRY] != [0; ENTRY] && sound[at + 1..at + 5] != 3_u32.to_le_bytes()
        };
        let used: Vec<usize> =
            (0..ENTRIES).collect::<Vec<_>>().iter().filter(is_used).copied().collect();
        let mut lose = |what: String, lost: &[usize]| {
            let mut bytes = sound.clone();
            lost.iter().for_each(|entry| bytes[entry * ENTRY..][..ENTRY].fill(0));
            cases.push(Injection { what, blocks: vec![(block, bytes)] });
        };
        lose(format!("all {} entries of {block:#x}", used.len()), &used);
        for entry in used.iter().step_by(used.len().div_ceil(4)) {
            lose(format!("entry {entry} of {block:#x}"), &[*entry]);
        }
        // Both copies are looked at, because the older state has its own.
        let old = older.nat_blocks().into_iter().map(|at| older.read(at));
        let is_its = |old: &Vec<u8>| old[3 * ENTRY..5 * ENTRY] == sound[3 * ENTRY..5 * ENTRY];
        if let Some(old) = old.into_iter().find(is_its) {
            let new = |entry: &&usize| old[*entry * ENTRY..][..ENTRY] == [0; ENTRY];
            let new: Vec<usize> = used.iter().copied().filter(|entry| new(&entry)).collect();
            lose(format!("{} entries of {block:#x} that are younger", new.len()), &new);
        }
    }
    cases
}

/// What was there before is as it was.
fn nothing_is_wrong(view: &View, before: &View, what: &str) {
    let mut wrong = view.wrong(before);
    wrong.retain(|wrong| !wrong.ends_with("it was not there"));
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

#[test]
fn no_new_file_gets_the_number_of_a_node_in_use() {
    let (target, older) = made_in_two_sessions();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    assert!(sound.failed.is_empty() && sound.found.len() > 900);
    let cases = cases(&target, &Target::of(&older));
    // Free numbers are looked for from the first block of the NAT on.
    let from_the_start = target.pack_ends().map(|at| {
        let mut bytes = target.read(at);
        bytes[NEXT_FREE_NID].copy_from_slice(&4_u32.to_le_bytes());
        seal(&mut bytes);
        (at, bytes)
    });
    let mut asked = 0;
    for (number, injection) in cases.iter().enumerate() {
        let options = OPTIONS[number % OPTIONS.len()];
        let what = format!("{}, {options:?}", injection.what);
        let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in injection.blocks.iter().chain(&from_the_start) {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let before = View::of(&device);
        let fs = mounted(device.clone(), options);
        add(&fs, "third", 700);
        fs.unmount().unwrap();
        let now = View::of(&device);
        let failed: Vec<_> = now.failed.difference(&before.failed).collect();
        assert!(failed.is_empty(), "{what}: {failed:?}");
        nothing_is_wrong(&now, &before, &what);
        let last = mounted(device.clone(), "ro").disk().checkpoint.checkpoint.flags;
        // What the journal of the checkpoint has is not lost.
        if !before.failed.is_empty() {
            assert!(last.contains(CheckpointFlags::FSCK), "{what}");
            asked += 1;
        }
        let repaired = repaired_view(&device, &what);
        nothing_is_wrong(&repaired, &sound, &what);
        nothing_is_wrong(&repaired, &now, &what);
        fsck(&target, &overlay).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert!(asked > 8, "{asked} of {}", cases.len());
}

/// Numbers that are freed while the first files are made are no contradiction.
#[test]
fn a_sound_volume_gives_all_free_numbers() {
    let (target, _) = made_in_two_sessions();
    for round in 0..8 {
        let device: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
        let fs = mounted(device.clone(), OPTIONS[round % OPTIONS.len()]);
        std::thread::scope(|scope| {
            scope.spawn(|| add(&fs, "third", 500));
            scope.spawn(|| {
                for number in 0..600 {
                    fs.unlink(fs.root(), format!("second {number}").as_bytes()).unwrap();
                    if number % 100 == round {
                        fs.sync().unwrap();
                    }
                }
            });
        });
        add(&fs, "fourth", 500);
        fs.unmount().unwrap();
        let fs = mounted(device.clone(), "");
        let last = fs.disk().checkpoint.checkpoint.flags;
        assert!(!last.contains(CheckpointFlags::FSCK), "round {round}");
        add(&fs, "fifth", 500);
        fs.unmount().unwrap();
        assert_eq!(crate::check(device).unwrap().count(), 0, "round {round}");
    }
}

/// A volume after a power cut: of old files, 20 were appended to and fsynced, and new ones were.
/// The numbers of the changed ones, of another old one, and of the first new one.
pub fn cut(new: usize) -> (Target, Vec<u32>, [Option<u32>; 2]) {
    let device = volume(64 * MIB, &[]);
    let fs = mounted(device.clone(), "");
    add(&fs, "old", 60);
    fs.unmount().unwrap();
    let fs = mounted(device.clone(), "");
    add(&fs, "new", new);
    let number = |name: &str| fs.lookup(fs.root(), name.as_bytes()).ok().map(|found| found.ino);
    let changed: Vec<u32> = (0..20)
        .map(|index| {
            let ino = number(&format!("old {index}")).unwrap();
            fs.write(ino, 4096, &[b'f'; 6000], IoFlags::empty()).unwrap();
            fs.fsync(ino, 0, false).unwrap();
            ino.get() as u32
        })
        .collect();
    let others = ["old 40", "new 0"].map(|name| number(name).map(|ino| ino.get() as u32));
    fs.shutdown(false).unwrap();
    drop(fs);
    (Target::of(&Arc::new(device.fork())), changed, others)
}

/// The NAT calls inodes free that were fsynced before a power cut: a mount that recovers would lose
/// what was fsynced, so it refuses, and the check does not.
#[test]
fn what_was_fsynced_is_recovered_with_a_number_that_is_called_free() {
    for new in [0, 3] {
        let (target, changed, _) = cut(new);
        recovers_all(&target, &changed);
    }
}

fn recovers_all(target: &Target, changed: &[u32]) {
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let mut refused = 0;
    for block in target.nat_blocks() {
        for lost in [changed, &changed[7..8]] {
            let what = format!("{} of {block:#x}", lost.len());
            let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
            let device: Arc<dyn BlockDevice> = overlay.clone();
            let mut bytes = target.read(block);
            for ino in lost {
                let at = *ino as usize % ENTRIES * ENTRY;
                bytes[at..at + ENTRY].fill(0);
            }
            device.write_at(block, bytes).unwrap();
            match F2fs::open(device.clone(), Threads::new(), &MountOptions::default()) {
                Ok(fs) => fs.shutdown(false).unwrap(),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("that was fsynced is called free"), "{what}: {error}");
                    refused += 1;
                }
            }
            nothing_is_wrong(&repaired_view(&device, &what), &sound, &what);
            fsck(target, &overlay).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    assert_eq!(refused, 2);
}

/// A new file was fsynced with the number of an old one that the NAT calls free, as Linux gives it
/// away: a mount refuses, and the old file stays.
#[test]
fn the_number_of_a_node_in_use_is_not_recovered_for_a_new_file() {
    let (target, _, [Some(old), Some(new)]) = cut(3) else { panic!("two files") };
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let device = target.device.fork();
    let mut renumbered = 0;
    for at in (0..64 * MIB).step_by(4096) {
        let mut bytes = target.read(at);
        if bytes[4072..4080] == [new, new].map(u32::to_le_bytes).concat()[..] {
            bytes[4072..4080].copy_from_slice(&[old, old].map(u32::to_le_bytes).concat());
            inode::seal(&mut bytes, target.layout());
            device.load(at, &bytes);
            renumbered += 1;
        }
    }
    assert!(renumbered > 0);
    for block in target.nat_blocks() {
        let mut bytes = target.read(block);
        bytes[old as usize * ENTRY..][..ENTRY].fill(0);
        device.load(block, &bytes);
    }
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let opened = F2fs::open(device.clone(), Threads::new(), &MountOptions::default());
    let error = opened.err().expect("the volume is damaged").to_string();
    assert!(error.contains("that was fsynced is called free"), "{error}");
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert!(safe.after.count() > 0, "{}", lines(&safe.after));
    let all = plan(&device, Scope::All).unwrap();
    let lost: Vec<_> = all.steps.losing().map(ToString::to_string).collect();
    assert!(lost.len() == 1 && lost[0].contains("what was fsynced of new 0"), "{lost:?}");
    apply(&all, &device);
    assert_eq!(crate::check(device.clone()).unwrap().count(), 0);
    let mut view = View::of(&device);
    let mut sound = sound;
    for view in [&mut view, &mut sound] {
        view.found.remove(&b"/new 0"[..]);
    }
    nothing_is_wrong(&view, &sound, "repaired");
    assert!(view.failed.is_empty());
}

/// An old entry of the NAT, from when the number was an inode's: it is the node with the attributes
/// of another file now, and is found.
#[test]
fn a_number_that_was_an_inodes_is_found_as_a_node_of_another() {
    let device = volume(64 * MIB, &[]);
    let fs = mounted(device.clone(), "");
    add(&fs, "first", 120);
    fs.unmount().unwrap();
    let first = Target::of(&Arc::new(device.fork()));
    let fs = mounted(device.clone(), "");
    for number in 0..120 {
        fs.unlink(fs.root(), format!("first {number}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    add(&fs, "second", 50);
    for number in 0..50 {
        let ino = fs.lookup(fs.root(), format!("second {number}").as_bytes()).unwrap().ino;
        fs.setxattr(ino, b"user.large", &[number; 2000], XattrMode::Set).unwrap();
    }
    fs.unmount().unwrap();
    let target = Target::of(&device);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let has = |target: &Target, nid: usize, ino: fn(u32, u32) -> bool| {
        let mut blocks = target.nat_blocks().into_iter().map(|block| target.read(block));
        blocks.any(|block| ino(word(&block, nid * ENTRY + 1), nid as u32))
    };
    let is_reused = |nid: &usize| {
        has(&first, *nid, |ino, nid| ino == nid)
            && has(&target, *nid, |ino, nid| ino != nid && ino != 0)
    };
    let reused: Vec<usize> = (4..ENTRIES).filter(is_reused).collect();
    assert!(reused.len() > 10, "{}", reused.len());
    for nid in reused.into_iter().step_by(5) {
        let what = format!("nid {nid}");
        let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        let old = first.nat_blocks().into_iter().map(|block| first.read(block));
        let mut old = old.map(|block| block[nid * ENTRY..][..ENTRY].to_vec());
        let old = old.find(|entry| word(entry, 1) == nid as u32).unwrap();
        for block in target.nat_blocks() {
            let mut bytes = target.read(block);
            bytes[nid * ENTRY..][..ENTRY].copy_from_slice(&old);
            device.write_at(block, bytes).unwrap();
        }
        nothing_is_wrong(&repaired_view(&device, &what), &sound, &what);
        fsck(&target, &overlay).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
