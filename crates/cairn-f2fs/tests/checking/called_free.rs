//! A SIT that calls blocks of files free, so that fewer are in use than the checkpoint counts. That
//! is no contradiction, because `fallocate` reserves blocks without an address. Nothing is written
//! over such a block, whatever is done with the volume.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::format::CheckpointFlags;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode};

use crate::inject::{Injection, Target};
use crate::listed::{SIT_AT, SIT_ENTRY, journal_of, unmarked, word};
use crate::readers::{View, repaired_views};
use crate::repair::damaged;
use crate::types::plant;
use crate::volume::{MIB, volume};

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

/// All such losses of segments with data.
fn cases(target: &Target) -> Vec<Injection> {
    let (at, journal) = journal_of(target);
    let entries = (0..usize::from(journal[SIT_AT])).map(|entry| SIT_AT + 2 + entry * SIT_ENTRY);
    let entries: Vec<(u32, usize)> = entries.map(|at| (word(&journal, at), at + 4)).collect();
    let mut cases = Vec::new();
    for segment in 0..target.layout().main_segments {
        let (block, base) = match entries.iter().find(|(known, _)| *known == segment) {
            Some((_, base)) => (at, *base),
            None => {
                let Some(place) = target.sit_place(segment) else { continue };
                (place & !0xfff, (place & 0xfff) as usize)
            }
        };
        let sound = target.read(block);
        let entry = &sound[base..base + 74];
        let (count, log) = (u16::from_le_bytes([entry[0], entry[1]]) & 0x3ff, entry[1] >> 2);
        // The numbers of nodes must agree.
        if count == 0 || log > 2 {
            continue;
        }
        for (what, lose) in LOSSES {
            let mut bytes = sound.clone();
            lose(&mut bytes[base..base + 74]);
            if bytes != sound {
                let what = format!("{what} of segment {segment}, log {log}");
                cases.push(Injection { what, blocks: vec![(block, bytes)] });
            }
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
    for mut view in repaired_views(&device, what) {
        view.found.retain(|path, _| !path.starts_with(b"/filled"));
        assert!(view.wrong(sound).is_empty(), "{what}: {:?}", view.wrong(sound));
    }
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
        let options = ["", "mode=lfs", "discard", "checkpoint_merge"][number % 4];
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
