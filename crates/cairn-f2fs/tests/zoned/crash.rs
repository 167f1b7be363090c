//! Power cuts on a zoned volume: everything that was fsynced is there, logs leave zones whose write
//! pointer is ahead of the checkpoint, and no rule of zones is broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::tagged::{BLOCK, Tag};
use cairn_block::zoned::ZoneLayout;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::{Promises, Recording};
use cairn_testkit::{deep, transfer};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, layout, layout_with_capacity, open, volume};

const FILES: u32 = 4;

fn name(file: u32) -> String {
    format!("file-{file}")
}

fn filled(tag: Tag) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    tag.fill(&mut block);
    block
}

/// Versions of a file's blocks.
type Versions = BTreeMap<u32, u32>;

/// Every block of the file is at least as new as promised: a later version may have become durable,
/// too.
fn holds(fs: &F2fs, file: u32, promised: &Versions) -> Result<(), String> {
    let found = fs
        .lookup(fs.root(), name(file).as_bytes())
        .map_err(|error| format!("file {file}: {error}"))?;
    for (index, version) in promised {
        let mut buf = vec![0; BLOCK];
        fs.read(found.ino, u64::from(*index) * BLOCK as u64, &mut buf, IoFlags::empty())
            .map_err(|e| e.to_string())?;
        match Tag::of(&buf) {
            Some(tag) if (tag.file, tag.index) == (file, *index) && tag.version >= *version => {}
            other => {
                return Err(format!(
                    "block {index} of file {file} is {other:?}, version {version} was promised"
                ));
            }
        }
    }
    Ok(())
}

fn all_hold(fs: &F2fs, promised: &BTreeMap<&u32, &Versions>) -> Result<(), String> {
    (0..FILES).try_for_each(|file| {
        promised.get(&file).map_or(Ok(()), |promised| holds(fs, file, promised))
    })
}

/// Files of `blocks` blocks, all of them written before if `full`.
struct Work {
    zones: ZoneLayout,
    options: &'static str,
    blocks: u32,
    full: bool,
    seed: u64,
    steps: u32,
}

/// The volume with its files, and their contents.
fn begin(work: &Work) -> (Arc<MemoryDevice>, Vec<Versions>) {
    let device = volume(work.zones);
    let fs = open(device.clone(), work.options);
    let written = if work.full { 0..work.blocks } else { 0..0 };
    for file in 0..FILES {
        let ino = fs
            .create(fs.root(), name(file).as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
            .unwrap()
            .ino;
        for index in written.clone() {
            let block = filled(Tag { file, index, version: 0 });
            fs.write(ino, u64::from(index) * BLOCK as u64, &block, IoFlags::empty()).unwrap();
        }
    }
    let space = fs.statfs().unwrap();
    assert!(!work.full || space.free_blocks * 8 < space.blocks, "{space:?}");
    fs.unmount().unwrap();
    (device, vec![written.map(|index| (index, 0)).collect(); FILES as usize])
}

fn run(work: &Work) -> (Promises<u32, Versions>, cairn_testkit::crash::CrashLog) {
    let Work { options, blocks, seed, steps, .. } = *work;
    let (device, mut versions) = begin(work);
    let recording = Recording::start(device.fork());
    let fs = open(recording.device(), options);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut promises = Promises::new();
    for step in 0..steps {
        let file = rng.u32(0..FILES);
        let ino = fs.lookup(fs.root(), name(file).as_bytes()).unwrap().ino;
        for _ in 0..rng.u32(1..200) {
            let index = rng.u32(0..blocks);
            let version = step + 1;
            versions[file as usize].insert(index, version);
            let (at, flags) = (u64::from(index) * BLOCK as u64, transfer::flags(&mut rng, 8));
            let data = filled(Tag { file, index, version });
            transfer::write(&*fs, ino, at, &data, flags).unwrap();
        }
        match rng.u8(0..8) {
            0 => fs.sync().unwrap(),
            1..6 => {
                fs.fsync(ino, 0, false).unwrap();
                promises.kept(file, versions[file as usize].clone(), recording.moment());
            }
            _ => {}
        }
    }
    drop(fs);
    (promises, recording.finish())
}

fn search(work: &Work) {
    let (promises, log) = run(work);
    let Work { options, seed, full, .. } = *work;
    let mut cuts = log.barrier_cuts();
    let (most, random) = match (deep(), full) {
        (true, _) => (cuts.len(), 400),
        (false, true) => (10, 4),
        (false, false) => (24, 16),
    };
    let step = cuts.len().div_ceil(most).max(1);
    cuts = cuts.into_iter().step_by(step).collect();
    cuts.extend(log.random_cuts(random, seed));
    for (number, cut) in cuts.into_iter().enumerate() {
        let image = Arc::new(log.device(cut));
        let promised = promises.at(cut.moment);
        if number % 5 == 1 || deep() {
            // The power fails again while the volume recovers.
            let recording = Recording::start(image.fork());
            drop(open(recording.device(), options));
            let again = recording.finish();
            let cuts = again.barrier_cuts();
            let step = if deep() { 1 } else { cuts.len().div_ceil(3).max(1) };
            for second in cuts.into_iter().step_by(step) {
                let fs = open(Arc::new(again.device(second)), options);
                all_hold(&fs, &promised)
                    .unwrap_or_else(|fault| panic!("{cut}, then {second}: {fault}"));
            }
        }
        let fs = open(image.clone(), options);
        all_hold(&fs, &promised).unwrap_or_else(|fault| panic!("{cut}: {fault}"));
        // The volume can be written afterwards.
        let ino = fs.lookup(fs.root(), name(0).as_bytes()).map(|found| found.ino);
        if let Ok(ino) = ino {
            // Enough writes that every log needs another zone.
            for index in (0..work.blocks).chain(0..work.blocks) {
                let tag = Tag { file: 0, index, version: u32::MAX };
                fs.write(ino, u64::from(index) * BLOCK as u64, &filled(tag), IoFlags::empty())
                    .unwrap();
            }
            fs.fsync(ino, 0, false).unwrap();
        }
        fs.unmount().unwrap_or_else(|error| panic!("{cut}: {error}"));
        drop(fs);
        if number % 4 == 0 || deep() {
            judge(&image);
        }
    }
}

#[test]
fn what_was_fsynced_survives_power_cuts() {
    let steps = if deep() { 200 } else { 25 };
    search(&Work {
        zones: layout(2, 40),
        options: "cache=4M",
        blocks: 600,
        full: false,
        seed: 0x20ed,
        steps,
    });
}

/// Zones of which 1,275 of 2,048 blocks can be written, on a volume that is nearly full.
#[test]
fn power_cuts_where_zones_have_less_capacity_than_size() {
    let zones = layout_with_capacity(8, 24, 5100);
    let steps = if deep() { 200 } else { 30 };
    for options in ["cache=4M,gc_victim=data_first", "cache=4M"] {
        search(&Work { zones, options, blocks: 2560, full: true, seed: 0xca9, steps });
    }
}

/// A volume that is full except for the reserve: there are fewer free sections than logs when
/// recovery moves the logs.
#[test]
fn recovery_finds_room_for_every_log_of_a_full_volume() {
    for options in [
        "cache=4M,gc_victim=data_first",
        "cache=4M,gc_victim=greedy",
        "cache=4M,gc_victim=adaptive",
    ] {
        let steps = if deep() { 200 } else { 30 };
        search(&Work {
            zones: layout(2, 40),
            options,
            blocks: 2900,
            full: true,
            seed: 0xada,
            steps,
        });
    }
}
