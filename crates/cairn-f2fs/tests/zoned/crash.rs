//! Power cuts on a zoned volume: what was fsynced is there, logs leave zones that were written further, and no rule is broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::tagged::{BLOCK, Tag};
use cairn_f2fs::F2fs;
use cairn_testkit::crash::{Promises, Recording};
use cairn_testkit::deep;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, layout, open, volume, zoned};

const FILES: u32 = 4;
const BLOCKS: u32 = 600;

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

/// Every block of the file is at least as new as promised: a later version may have become durable, too.
fn holds(fs: &F2fs, file: u32, promised: &Versions) -> Result<(), String> {
    let found = fs.lookup(fs.root(), name(file).as_bytes()).map_err(|error| format!("file {file}: {error}"))?;
    for (index, version) in promised {
        let mut buf = vec![0; BLOCK];
        fs.read(found.ino, u64::from(*index) * BLOCK as u64, &mut buf, IoFlags::empty()).map_err(|e| e.to_string())?;
        match Tag::of(&buf) {
            Some(tag) if (tag.file, tag.index) == (file, *index) && tag.version >= *version => {}
            other => return Err(format!("block {index} of file {file} is {other:?}, version {version} was promised")),
        }
    }
    Ok(())
}

fn run(seed: u64, steps: u32) -> (Promises<u32, Versions>, cairn_testkit::crash::CrashLog) {
    let recording = Recording::start(volume(layout(2, 40)).fork());
    let fs = open(zoned(recording.device()), "cache=4M");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut promises = Promises::new();
    let mut versions: Vec<Versions> = vec![Versions::new(); FILES as usize];
    for file in 0..FILES {
        fs.create(fs.root(), name(file).as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    }
    fs.sync().unwrap();
    for step in 0..steps {
        let file = rng.u32(0..FILES);
        let ino = fs.lookup(fs.root(), name(file).as_bytes()).unwrap().ino;
        for _ in 0..rng.u32(1..200) {
            let index = rng.u32(0..BLOCKS);
            let version = step + 1;
            versions[file as usize].insert(index, version);
            let flags = if rng.u8(0..8) == 0 { IoFlags::DIRECT } else { IoFlags::empty() };
            fs.write(ino, u64::from(index) * BLOCK as u64, &filled(Tag { file, index, version }), flags).unwrap();
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

#[test]
fn what_was_fsynced_survives_power_cuts() {
    let seed = 0x20ed;
    let (promises, log) = run(seed, if deep() { 200 } else { 40 });
    let mut cuts = log.barrier_cuts();
    let most = if deep() { cuts.len() } else { 24 };
    let step = cuts.len().div_ceil(most).max(1);
    cuts = cuts.into_iter().step_by(step).collect();
    cuts.extend(log.random_cuts(if deep() { 400 } else { 16 }, seed));
    for (number, cut) in cuts.into_iter().enumerate() {
        let image = Arc::new(log.device(cut));
        let fs = open(zoned(image.clone()), "cache=4M");
        for file in 0..FILES {
            let promised = promises.at(cut.moment);
            let Some(promised) = promised.get(&file) else { continue };
            holds(&fs, file, promised).unwrap_or_else(|fault| panic!("{cut}: {fault}"));
        }
        // It goes on from there.
        let ino = fs.lookup(fs.root(), name(0).as_bytes()).map(|found| found.ino);
        if let Ok(ino) = ino {
            for index in 0..300 {
                let tag = Tag { file: 0, index, version: u32::MAX };
                fs.write(ino, u64::from(index) * BLOCK as u64, &filled(tag), IoFlags::empty()).unwrap();
            }
            fs.fsync(ino, 0, false).unwrap();
        }
        fs.unmount().unwrap_or_else(|error| panic!("{cut}: {error}"));
        drop(fs);
        if number % 4 == 0 || deep() {
            judge(&*zoned(image));
        }
    }
}
