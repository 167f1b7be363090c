//! A SIT that calls blocks of files free. That is no contradiction: fewer may be in use than the
//! checkpoint counts, because `fallocate` reserves blocks without an address, and as many if others
//! are wrongly in use. Nothing is written over such a block, whatever is done with the volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::format::CheckpointFlags;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use crate::inject::{Injection, Target};
use crate::listed::{SIT_AT, SIT_ENTRY, journal_of, unmarked, word};
use crate::readers::{View, repaired_view, repaired_views};
use crate::repair::{damaged, fsck};
use crate::types::plant;
use crate::volume::{MIB, volume};

/// Bytes of an entry of the SIT.
pub const ENTRY: usize = 74;

/// What a SIT loses of a segment's entry.
type Loss = (&'static str, fn(&mut [u8]));

const LOSSES: [Loss; 4] = [
    ("the entry", |entry| entry.fill(0)),
    ("all blocks", |entry| {
        entry[0] = 0;
        entry[1] &= !3;
        entry[2..66].fill(0);
    }),
    ("the first block", |entry| unmarked(entry, 0)),
    ("the second half", |entry| {
        let lost: u32 = entry[34..66].iter().map(|byte| byte.count_ones()).sum();
        entry[34..66].fill(0);
        let count = u16::from_le_bytes([entry[0], entry[1]]) - lost as u16;
        entry[..2].copy_from_slice(&count.to_le_bytes());
    }),
];

/// Mounts with them differ in what they do with free blocks.
const OPTIONS: [&str; 4] = ["", "mode=lfs", "discard", "checkpoint_merge"];

/// A planted volume with a file of several segments, and room for more.
fn planted_with_room() -> Target {
    let device = volume(128 * MIB, &[]);
    plant(&mounted(device.clone(), ""));
    // What is freed is not discarded.
    let fs = mounted(device.clone(), "nodiscard");
    let file = fs.create(fs.root(), b"segments", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    let contents: Vec<u8> = (0..5 * MIB).map(|at| (at >> 12) as u8).collect();
    for _ in 0..2 {
        fs.write(file.ino, 0, &contents, IoFlags::empty()).unwrap();
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    Target::of(&device)
}

/// Where the SIT's entry of a segment is: the block, and the place in it.
pub fn entry_place(target: &Target, segment: u32) -> (u64, usize) {
    let (at, journal) = journal_of(target);
    let mut entries = (0..usize::from(journal[SIT_AT])).map(|entry| SIT_AT + 2 + entry * SIT_ENTRY);
    if let Some(entry) = entries.find(|entry| word(&journal, *entry) == segment) {
        return (at, entry + 4);
    }
    let place = target.sit_entry(segment);
    (place & !0xfff, (place & 0xfff) as usize)
}

/// Blocks in use of an entry, and its log.
fn counts(entry: &[u8]) -> (u16, u8) {
    (u16::from_le_bytes([entry[0], entry[1]]) & 0x3ff, entry[1] >> 2)
}

/// All such losses of segments with data.
fn cases(target: &Target) -> Vec<Injection> {
    let mut cases = Vec::new();
    for segment in 0..target.layout().main_segments {
        let (block, base) = entry_place(target, segment);
        let sound = target.read(block);
        let (count, log) = counts(&sound[base..]);
        // The numbers of nodes must agree.
        if count == 0 || log > 2 {
            continue;
        }
        for (what, lose) in LOSSES {
            let mut bytes = sound.clone();
            lose(&mut bytes[base..base + ENTRY]);
            if bytes != sound {
                let what = format!("{what} of segment {segment}, log {log}");
                cases.push(Injection { what, blocks: vec![(block, bytes)] });
            }
        }
    }
    cases
}

/// Changes that keep all sums: a segment's entry is exchanged with that of a free segment, and a
/// bit is moved to another block of the segment.
fn cases_with_equal_sums(target: &Target) -> Vec<Injection> {
    let head = target.read(target.pack().0);
    let current: Vec<u32> =
        [36, 40, 44, 84, 88, 92].into_iter().map(|at| word(&head, at)).collect();
    let places: Vec<(u32, u64, usize)> = (0..target.layout().main_segments)
        .filter(|segment| !current.contains(segment))
        .map(|segment| {
            let (at, base) = entry_place(target, segment);
            (segment, at, base)
        })
        .collect();
    let entry = |at: u64, base: usize| target.read(at)[base..base + ENTRY].to_vec();
    let free = places.iter().find(|(_, at, base)| counts(&entry(*at, *base)).0 == 0);
    let (free, free_at, free_base) = *free.expect("a free segment");
    let mut cases = Vec::new();
    for (segment, at, base) in places {
        let own = entry(at, base);
        let (count, log) = counts(&own);
        if count == 0 {
            continue;
        }
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut set = |at: u64, base: usize, entry: &[u8]| {
            let block = blocks.entry(at).or_insert_with(|| target.read(at));
            block[base..base + ENTRY].copy_from_slice(entry);
        };
        set(at, base, &entry(free_at, free_base));
        set(free_at, free_base, &own);
        let what = format!("segment {segment}, log {log}, exchanged with {free}");
        cases.push(Injection { what, blocks: blocks.into_iter().collect() });
        let mut moved = own.clone();
        let is_used = |bit: &usize| moved[2 + bit / 8] & 0x80 >> (bit % 8) != 0;
        let from = (0..512).find(is_used).unwrap();
        if let Some(to) = (0..512).rev().find(|bit| !is_used(bit)) {
            moved[2 + from / 8] &= !(0x80 >> (from % 8));
            moved[2 + to / 8] |= 0x80 >> (to % 8);
            let mut bytes = target.read(at);
            bytes[base..base + ENTRY].copy_from_slice(&moved);
            let what = format!("bit {from} of segment {segment}, log {log}, moved to {to}");
            cases.push(Injection { what, blocks: vec![(at, bytes)] });
        }
    }
    cases
}

/// Fills a volume with files, deletes half of them, and fills it again.
fn fill(fs: &F2fs) {
    let mut names = Vec::new();
    for round in 0..2 {
        for index in 0.. {
            let name = format!("filled {round} {index}").into_bytes();
            let created = fs.create(fs.root(), &name, NewInode::Regular, 0o644, &Caller::ROOT);
            let Ok(attr) = created else { break };
            let written = fs.write(attr.ino, 0, &[0xe5; 1 << 20], IoFlags::empty());
            let synced = fs.fsync(attr.ino, 0, false);
            fs.forget(attr.ino, 1);
            names.push(name);
            match written.map(drop).and(synced) {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        for name in names.iter().step_by(2).filter(|_| round == 0) {
            fs.unlink(fs.root(), name).unwrap();
        }
        fs.sync().unwrap();
    }
    assert!(names.len() > 20, "{} files", names.len());
}

/// Reads what was there before, and repairs the volume.
fn judge(device: Arc<dyn BlockDevice>, sound: &View, what: &str) {
    repaired_views(&device, what).into_iter().for_each(|view| nothing_is_wrong(view, sound, what));
}

/// What was there before is as it was.
fn nothing_is_wrong(mut view: View, sound: &View, what: &str) {
    view.found.retain(|path, _| !path.starts_with(b"/filled"));
    assert!(view.wrong(sound).is_empty(), "{what}: {:?}", view.wrong(sound));
}

fn mounted(device: Arc<MemoryDevice>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).unwrap();
    F2fs::open(device, Threads::new(), &options).unwrap()
}

#[test]
fn a_full_volume_has_all_files() {
    let target = planted_with_room();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let cases = cases(&target);
    assert!(cases.len() > 8, "{}", cases.len());
    for (number, injection) in cases.iter().enumerate() {
        let options = OPTIONS[number % OPTIONS.len()];
        let what = format!("{}, {options:?}", injection.what);
        let device = Arc::new(damaged(&target, injection));
        let fs = mounted(device.clone(), options);
        fill(&fs);
        fs.unmount().unwrap();
        judge(device, &sound, &what);
    }
}

/// Also if the power fails, and the volume is then filled further.
#[test]
fn a_volume_that_recovers_has_all_files() {
    let target = planted_with_room();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let none = Injection { what: "nothing".into(), blocks: vec![] };
    for injection in [none].into_iter().chain(cases(&target)) {
        let device = Arc::new(damaged(&target, &injection));
        let fs = mounted(device.clone(), "");
        let (root, name) = (fs.root(), b"filled first");
        let file = fs.create(root, name, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        fs.write(file, 0, &[0xe5; 3 << 20], IoFlags::empty()).unwrap();
        fs.fsync(file, 0, false).unwrap();
        fs.shutdown(false).unwrap();
        drop(fs);
        let device = Arc::new(device.fork());
        let fs = mounted(device.clone(), "");
        fill(&fs);
        fs.unmount().unwrap();
        judge(device, &sound, &injection.what);
    }
}

/// What is free is discarded; what is only called free is not.
#[test]
fn nothing_in_use_is_discarded() {
    let target = planted_with_room();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    for injection in cases(&target) {
        let device = Arc::new(damaged(&target, &injection));
        let fs = mounted(device.clone(), "");
        assert!(fs.trim(0, u64::MAX, 0).unwrap() > MIB, "{}", injection.what);
        fs.unmount().unwrap();
        judge(device, &sound, &injection.what);
    }
}

/// The volume is marked to be checked when such a block is found.
#[test]
fn a_volume_with_such_blocks_asks_for_a_check() {
    let target = planted_with_room();
    let injection = cases(&target).into_iter().next().unwrap();
    let device = Arc::new(damaged(&target, &injection));
    let fs = mounted(device.clone(), "");
    fs.trim(0, u64::MAX, 0).unwrap();
    fs.unmount().unwrap();
    let fs = mounted(Arc::new(device.fork()), "ro");
    assert!(fs.disk().checkpoint.checkpoint.flags.contains(CheckpointFlags::FSCK));
}

/// Changes that keep the sums: what is called free is neither overwritten nor discarded. A node
/// that is called free may be an old version, for all that a mount knows. So nothing is read of it
/// before a repair.
#[test]
fn equal_sums_hide_no_loss() {
    let target = planted_with_room();
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let sound = View::of(&sound);
    let cases = cases_with_equal_sums(&target);
    let (mut mounts, mut of_data) = (0, 0);
    for (number, injection) in cases.iter().enumerate() {
        let options = OPTIONS[number % OPTIONS.len()];
        let what = format!("{}, {options:?}", injection.what);
        let overlay = Arc::new(Overlay::new(Arc::new(target.device.fork())).unwrap());
        let device: Arc<dyn BlockDevice> = overlay.clone();
        for (at, bytes) in &injection.blocks {
            device.write_at(*at, bytes.clone()).unwrap();
        }
        let before = View::of(&device);
        let options = MountOptions::parse(options).unwrap();
        match F2fs::open(device.clone(), Threads::new(), &options) {
            Ok(fs) => {
                mounts += 1;
                fs.trim(0, u64::MAX, 0).unwrap();
                fill(&fs);
                fs.unmount().unwrap();
            }
            // The root cannot be read.
            Err(error) => assert!(error.to_string().contains("old version"), "{what}: {error}"),
        }
        let now = View::of(&device);
        let failed: Vec<_> =
            now.failed.iter().filter(|failed| !before.failed.contains(*failed)).collect();
        assert!(failed.is_empty(), "{what}: {failed:?}");
        if before.failed.is_empty() {
            of_data += 1;
            nothing_is_wrong(now, &sound, &what);
        }
        nothing_is_wrong(repaired_view(&device, &what), &sound, &what);
        fsck(&target, &overlay).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert!(mounts > 4 && of_data > 4, "{mounts} {of_data} of {}", cases.len());
}
