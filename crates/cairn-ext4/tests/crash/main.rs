//! The crash search: seeded workloads on a recording device, power cuts at every flush and between,
//! two recoveries each, and the proof that the search detects a missing flush. Then failing
//! devices.
//!
//! `CAIRN_DEEP=1` examines many times as many states.

mod commits;
mod durability;
mod fault;

mod partial;
mod policy;
mod run;
mod search;

use std::sync::Arc;

use cairn_block::wrap::Operation;
use cairn_testkit::crash::{Cut, Volatile};
use run::{CHECKPOINTING, Careless, Checkpointing, Workload};
use search::{depth, judge_cairn, judge_torn, search};

const K4: &[&str] = &["-t", "ext4", "-b", "4096", "-J", "size=4"];
const K4_ORPHANS: &[&str] =
    &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "orphan_file,metadata_csum_seed"];
const K1: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
const K1_ORPHANS: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "orphan_file"];
const K1_NO_SUMS: &[&str] =
    &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^64bit,uninit_bg"];
const EXT3: &[&str] = &["-t", "ext3", "-b", "1024", "-J", "size=1"];

/// A RAID's chunk and stripe in the superblock.
const K4_RAID: &[&str] =
    &["-t", "ext4", "-b", "4096", "-J", "size=4", "-E", "stride=2,stripe_width=6"];

/// Folio sizes of buffered I/O, and the alignment of files.
const GRAINS: &[&str] =
    &["", "nobuffered_iomap", "max_folio=4K", "max_folio=64K", "stripe=4", "stripe=7"];
/// Random subsets of unflushed writes per workload.
const RANDOM: usize = 12;

fn workload(seed: u64, mke2fs: &'static [&'static str], workers: u16) -> Workload {
    let megabytes = if mke2fs.contains(&"4096") { 16 } else { 8 };
    let steps = if workers == 1 { 60 } else { 24 };
    // Half of the small logs wrap: each lap takes about 20 blocks of 1,024.
    let laps = if megabytes == 8 && seed % 2 == 1 { 44 } else { 0 };
    let options = GRAINS[(seed / 2) as usize % GRAINS.len()];
    let journal = Checkpointing::Fixed("");
    Workload { seed, mke2fs, options, journal, megabytes, steps, workers, laps }
}

fn search_all(workloads: &[Workload]) {
    let (mut states, mut by_e2fsck, mut by_kernel, mut recoveries, mut promises) = (0, 0, 0, 0, 0);
    for base in workloads {
        for more in 0..depth() as u64 {
            let workload = Workload { seed: base.seed + more * 1000, ..*base };
            let seen = search(&workload, RANDOM).unwrap_or_else(|error| panic!("{error}"));
            states += seen.states;
            by_e2fsck += seen.by_e2fsck;
            by_kernel += seen.by_kernel;
            recoveries += seen.recoveries;
            promises += seen.promises;
        }
    }
    println!(
        "{states} crash states, {by_e2fsck} also by e2fsck, {by_kernel} by the kernel, {promises} \
         promises kept"
    );
    println!("{recoveries} recoveries were cut themselves");
    assert!(recoveries > 0, "no recovery was cut");
    assert!(
        promises > states,
        "too little was promised to test anything: {promises} promises in {states} states"
    );
}

#[test]
fn one_thread_on_large_blocks() {
    let kinds = [K4, K4_ORPHANS, K4_RAID];
    let all: Vec<_> = (0..6).map(|seed| workload(seed, kinds[seed as usize % 3], 1)).collect();
    search_all(&all);
}

#[test]
fn one_thread_on_small_blocks_with_a_wrapping_log() {
    let kinds = [K1, K1_ORPHANS, K1_NO_SUMS, EXT3, K1_NO_SUMS, K1];
    let all: Vec<_> = (10..16).map(|seed| workload(seed, kinds[seed as usize % 6], 1)).collect();
    search_all(&all);
}

#[test]
fn three_threads_contending() {
    let kinds = [K4_ORPHANS, K1, K1_NO_SUMS, K4, K1_ORPHANS];
    let all: Vec<_> = (30..36).map(|seed| workload(seed, kinds[seed as usize % 5], 3)).collect();
    search_all(&all);
}

/// A workload on a log of 1,024 blocks that wraps.
fn wrapping(seed: u64, workers: u16, journal: Checkpointing) -> Workload {
    let kinds = [K1, K1_NO_SUMS, K1_ORPHANS, EXT3];
    Workload { laps: 44, journal, ..workload(seed, kinds[seed as usize % 4], workers) }
}

#[test]
fn every_way_of_checkpointing_a_wrapping_log() {
    let all = (60..)
        .zip(CHECKPOINTING)
        .map(|(seed, options)| wrapping(seed, 1, Checkpointing::Fixed(options)));
    search_all(&all.collect::<Vec<_>>());
}

#[test]
fn checkpointing_that_changes_while_the_log_wraps() {
    let all =
        (70..74).map(|seed| wrapping(seed, if seed < 72 { 1 } else { 3 }, Checkpointing::Changing));
    search_all(&all.collect::<Vec<_>>());
}

#[test]
fn every_way_of_checkpointing_with_threads_contending() {
    let all = (80..)
        .zip(CHECKPOINTING)
        .map(|(seed, options)| wrapping(seed, 3, Checkpointing::Fixed(options)));
    search_all(&all.collect::<Vec<_>>());
}

/// A disk may tear a block of 4,096 bytes. A torn superblock is refused, as by Linux. A block that
/// passes its checks must be right.
#[test]
fn blocks_torn_at_512_bytes_are_noticed_or_do_no_harm() {
    let (mut sound, mut refused) = (0, 0);
    for (seed, kind) in [(90, K4), (91, K1), (92, K4_ORPHANS)] {
        let dir = run::shm();
        let run = run::run(&workload(seed, kind, 1), dir.path(), |device| device);
        for cut in run.crash.random_cuts(30 * depth(), seed) {
            let (moment, volatile) = match cut.volatile {
                Volatile::Random(seed) => (cut.moment.max(run.from), Volatile::Torn(seed)),
                other => (cut.moment, other),
            };
            let cut = Cut { moment, volatile };
            let taken = judge_torn(&run, cut, dir.path())
                .unwrap_or_else(|error| panic!("seed {seed}, {kind:?}, {cut}: {error}"));
            if taken { sound += 1 } else { refused += 1 }
        }
    }
    println!("torn at 512 bytes: {sound} volumes recovered, {refused} refused");
    assert!(sound > refused, "{sound} volumes recovered, {refused} refused");
}

#[test]
fn the_search_notices_a_device_that_does_not_flush() {
    let found = (50..54).any(|seed| {
        let dir = run::shm();
        let run = run::run(&workload(seed, K1, 1), dir.path(), |device| Arc::new(Careless(device)));
        let cuts = run.crash.random_cuts(40, seed);
        cuts.into_iter().any(|cut| judge_cairn(&run, cut, dir.path()).is_err())
    });
    assert!(found, "flushes were dropped and nothing was noticed");
}

#[test]
fn every_failing_write_is_told_and_recovered_from() {
    let small = fault::every_fault(K1_NO_SUMS, 8, Operation::Write, 3, "")
        + fault::every_fault(K1, 8, Operation::Write, 5, "stripe=5")
        + fault::every_fault(K4_RAID, 16, Operation::Write, 5, "");
    let runs = fault::every_fault(K4, 16, Operation::Write, 1, "") + small;
    println!("{runs} runs with a failing write");
    assert!(runs > 20, "too few writes to fail: {runs}");
}

#[test]
fn every_failing_read_is_told_and_recovered_from() {
    let small = fault::every_fault(K1_NO_SUMS, 8, Operation::Read, 1, "cache=1M");
    let runs = fault::every_fault(K4, 16, Operation::Read, 1, "cache=1M") + small;
    println!("{runs} runs with a failing read");
    assert!(runs > 4, "too few reads to fail: {runs}");
}

#[test]
fn every_failing_flush_is_told_and_recovered_from() {
    let small = fault::every_fault(K1_NO_SUMS, 8, Operation::Flush, 1, "");
    let runs = fault::every_fault(K4, 16, Operation::Flush, 1, "") + small;
    println!("{runs} runs with a failing flush");
    assert!(runs > 10, "too few flushes to fail: {runs}");
}

#[test]
fn every_failure_of_a_checkpoint_ahead_is_told_and_recovered_from() {
    for options in CHECKPOINTING.iter().filter(|options| options.starts_with("async_checkpoint=99"))
    {
        let writes = fault::every_fault(K1, 8, Operation::Write, 2, options);
        let flushes = fault::every_fault(K1, 8, Operation::Flush, 1, options);
        println!("{options}: {writes} runs with a failing write, {flushes} with a failing flush");
        assert!(
            writes > 20 && flushes > 20,
            "{options}: too little to fail: {writes} writes, {flushes} flushes"
        );
    }
}
