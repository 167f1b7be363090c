//! Power cuts during cleaning: on a full volume every few writes clean a section. Everything that
//! was fsynced is there, whatever was moved.

use cairn_block::memory::MemoryDevice;
use cairn_testkit::deep;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::crash::{BEFORE, Workload, barrier_cuts, clean, judge};
use crate::support::{ZONED, open, volume};

const BLOCK: u64 = 4096;
/// Blocks left for the files that are checked.
const LEFT: u64 = 1500;
/// Blocks of the filler that are overwritten in each step. The number is higher if less is
/// reserved, so that sections are cleaned.
const CHURN: u32 = 40;
const ADAPTIVE_CHURN: u32 = 4 * CHURN;

/// A volume that one file fills, and the blocks of that file.
fn filled(args: &[&str], options: &str) -> (MemoryDevice, u64) {
    let device = volume(64 << 20, args);
    let fs = open(device.clone(), options);
    let ino = fs.create(fs.root(), b"filler", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let mut blocks = 0;
    loop {
        match fs.write(ino, blocks * BLOCK, &[1; 4096], IoFlags::empty()) {
            Ok(_) => blocks += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("block {blocks}: {error}"),
        }
    }
    blocks -= LEFT;
    fs.setattr(ino, &SetAttributes { size: Some(blocks * BLOCK), ..SetAttributes::default() })
        .unwrap();
    fs.unmount().unwrap();
    drop(fs);
    (device.fork(), blocks)
}

fn search(args: &[&str], options: &str, churn: u32, seed: u64) {
    let (device, blocks) = filled(args, options);
    let mut work = Workload::over(device, options, seed);
    let filler = work.fs.lookup(work.fs.root(), b"filler").unwrap().ino;
    for _ in 0..if deep() { 400 } else { 90 } {
        work.step();
        for _ in 0..churn {
            let at = work.rng.u64(0..blocks) * BLOCK;
            assert_eq!(work.fs.write(filler, at, &[2; 4096], IoFlags::empty()).unwrap(), 4096);
        }
    }
    let Workload { recording, fs, promises, .. } = work;
    let stats = fs.gc_stats();
    let (sections, moved) = (stats.data_sections.get(), stats.data_blocks_moved.get());
    assert!(
        sections > 5 && moved > 100,
        "{options}: {sections} sections, {moved} blocks were cleaned"
    );
    fs.shutdown(false).unwrap();
    drop(fs);
    let log = recording.finish();
    let (most, random) = if deep() { (400, 200) } else { (16, 8) };
    let barriers = barrier_cuts(&log);
    let every = barriers.len().div_ceil(most).max(1);
    for cut in barriers.into_iter().step_by(every).chain(log.random_cuts(random, seed)) {
        let device = log.device(cut);
        clean(&device, BEFORE)
            .and_then(|()| judge(device, &promises, cut.moment, options, false))
            .unwrap_or_else(|error| panic!("seed {seed}, {args:?}, {options:?}, {cut}: {error}"));
    }
}

#[test]
fn what_was_fsynced_survives_power_cuts_during_cleaning() {
    for seed in 0..if deep() { 5 } else { 1 } {
        search(&[], "mode=lfs,cache=4M,gc_victim=data_first,gc_merge", CHURN, 4 * seed + 1);
        search(&[], "mode=lfs,cache=4M,gc_victim=greedy,nocheckpoint_merge", CHURN, 4 * seed + 2);
        search(&[], "mode=lfs,cache=4M,gc_victim=adaptive", ADAPTIVE_CHURN, 4 * seed + 3);
        search(ZONED, "cache=4M", ADAPTIVE_CHURN, 4 * seed + 4);
    }
}
