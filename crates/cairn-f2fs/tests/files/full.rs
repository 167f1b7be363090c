//! A volume that is filled to the last block and then overwritten many times.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::{deep, full, transfer};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, SetAttributes};

use crate::support::{FEATURES, FOLDED, ZONED, judge, open, volume, with_zones};

const SIZE: u64 = 64 << 20;
const BLOCK: usize = 4096;

fn block(file: usize, index: u64, version: u32) -> Vec<u8> {
    let word = (file as u64) << 56 | index << 24 | u64::from(version & 0xff_ffff);
    word.to_le_bytes().repeat(BLOCK / 8)
}

/// Appends to a few files in turn until nothing fits any more. Returns the blocks of each.
fn fill(fs: &F2fs, files: &[Ino]) -> Vec<Vec<u32>> {
    let mut blocks: Vec<Vec<u32>> = vec![Vec::new(); files.len()];
    loop {
        for (file, ino) in files.iter().enumerate() {
            let index = blocks[file].len() as u64;
            match fs.write(*ino, index * BLOCK as u64, &block(file, index, 0), IoFlags::empty()) {
                Ok(written) => assert_eq!(written, BLOCK),
                Err(Error::NoSpace) => return blocks,
                Err(error) => panic!("block {index} of file {file}: {error}"),
            }
            blocks[file].push(0);
        }
    }
}

fn check(fs: &F2fs, files: &[Ino], blocks: &[Vec<u32>]) {
    for (file, ino) in files.iter().enumerate() {
        for (index, version) in (0..).zip(&blocks[file]) {
            let mut buf = vec![0; BLOCK];
            assert_eq!(
                fs.read(*ino, index * BLOCK as u64, &mut buf, IoFlags::empty()).unwrap(),
                BLOCK
            );
            assert!(
                buf == block(file, index, *version),
                "block {index} of file {file}, version {version}"
            );
        }
    }
}

/// A volume without a free block, and the contents of its files.
struct Full {
    device: Arc<MemoryDevice>,
    options: &'static str,
    fs: Arc<F2fs>,
    files: Vec<Ino>,
    blocks: Vec<Vec<u32>>,
}

impl Full {
    fn new(args: &[&str], options: &'static str, runtime: Arc<dyn Runtime>) -> Self {
        let device = volume(SIZE, args);
        let fs =
            F2fs::open(with_zones(device.clone()), runtime, &MountOptions::parse(options).unwrap())
                .unwrap();
        let make = |number: usize| {
            let name = format!("file-{number}");
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                .unwrap()
                .ino
        };
        let files: Vec<Ino> = (0..3).map(make).collect();
        let blocks = fill(&fs, &files);
        fs.sync().unwrap();
        assert!(
            fs.statfs().unwrap().free_blocks < 8,
            "{} blocks are left",
            fs.statfs().unwrap().free_blocks
        );
        Self { device, options, fs, files, blocks }
    }

    fn overwrite_one(&mut self, rng: &mut fastrand::Rng, round: u64) {
        let file = rng.usize(0..self.files.len());
        overwrite_one(
            &self.fs,
            self.options,
            (file, self.files[file]),
            &mut self.blocks[file],
            rng,
            round,
        );
    }

    /// Checks all contents, before and after the volume is closed, and by all judges. Returns the
    /// number of cleaned sections.
    fn finish(self) -> u64 {
        check(&self.fs, &self.files, &self.blocks);
        self.fs.unmount().unwrap();
        let stats = self.fs.gc_stats();
        let sections = stats.data_sections.get() + stats.node_sections.get();
        drop(self.fs);
        judge(&self.device);
        let fs = open(self.device, self.options);
        let find =
            |number: usize| fs.lookup(fs.root(), format!("file-{number}").as_bytes()).unwrap().ino;
        check(&fs, &(0..3).map(find).collect::<Vec<_>>(), &self.blocks);
        sections
    }
}

/// Overwrites a random block, and sometimes fsyncs.
fn overwrite_one(
    fs: &F2fs,
    options: &str,
    (file, ino): (usize, Ino),
    blocks: &mut [u32],
    rng: &mut fastrand::Rng,
    round: u64,
) {
    let index = rng.usize(0..blocks.len());
    blocks[index] += 1;
    let data = block(file, index as u64, blocks[index]);
    let flags = transfer::flags(rng, 5);
    let written = transfer::write(fs, ino, (index * BLOCK) as u64, &data, flags);
    assert_eq!(
        written.unwrap_or_else(|error| panic!("{options:?}, write {round}: {error}")),
        BLOCK
    );
    if round.is_multiple_of(97) {
        fs.fsync(ino, 0, round.is_multiple_of(2))
            .unwrap_or_else(|error| panic!("fsync {round}: {error}"));
    }
}

fn overwrite(args: &[&str], options: &'static str, seed: u64) {
    let mut full = Full::new(args, options, Threads::new());
    let mut rng = fastrand::Rng::with_seed(seed);
    let times = if deep() { 20 } else { 2 };
    for round in 1..=times * SIZE / BLOCK as u64 {
        full.overwrite_one(&mut rng, round);
    }
    let sections = full.finish();
    if options.contains("lfs") || args == ZONED {
        assert!(sections > 10, "{sections} sections were cleaned");
    }
}

#[test]
fn a_full_volume_is_overwritten_for_ever() {
    overwrite(&[], "cache=8M", 1);
    overwrite(&[], "cache=8M,gc_victim=adaptive", 5);
    overwrite(ZONED, "cache=8M", 6);
}

#[test]
fn a_full_volume_of_lfs_is_overwritten_for_ever() {
    overwrite(&[], "mode=lfs,cache=8M,gc_victim=data_first,gc_merge", 2);
    overwrite(
        FEATURES,
        "mode=lfs,cache=4M,nobuffered_iomap,gc_victim=greedy,nocheckpoint_merge",
        3,
    );
    overwrite(&[], "mode=lfs,cache=8M,gc_victim=adaptive", 4);
}

/// Each policy, with all daemons at work: the volume writes back, writes checkpoints and cleans as
/// time passes.
#[test]
fn a_full_volume_is_overwritten_for_an_hour() {
    let kinds: [(&[&str], &str); 5] = [
        (&[], "mode=lfs,cache=8M,gc_victim=greedy,nocheckpoint_merge"),
        (&[], "mode=lfs,cache=8M,gc_victim=data_first,gc_merge"),
        (&[], "mode=lfs,cache=8M,gc_victim=adaptive"),
        (&[], "cache=8M,gc_victim=adaptive,background_gc=sync"),
        (ZONED, "cache=8M"),
    ];
    for (seed, (args, options)) in (1..).zip(kinds) {
        let runtime = Simulated::new(seed);
        let mut full = Full::new(args, options, runtime.clone());
        let mut rng = fastrand::Rng::with_seed(seed);
        let a_second = if deep() { 64 } else { 1 };
        for round in 1..=3600 * a_second {
            full.overwrite_one(&mut rng, round);
            if round.is_multiple_of(a_second) {
                runtime.advance(Duration::from_secs(1));
            }
        }
        full.finish();
    }
}

/// No thread gets ENOSPC for blocks that other threads overwrite.
#[test]
fn many_overwrite_a_full_volume() {
    for options in
        ["mode=lfs,cache=8M,gc_victim=adaptive", "mode=lfs,cache=8M,gc_victim=data_first"]
    {
        let mut full = Full::new(&[], options, Threads::new());
        let times = if deep() { 20 } else { 1 };
        let (fs, files) = (&full.fs, &full.files);
        std::thread::scope(|scope| {
            for (file, blocks) in full.blocks.iter_mut().enumerate() {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(file as u64);
                    for round in 1..=times * blocks.len() as u64 {
                        overwrite_one(fs, options, (file, files[file]), blocks, &mut rng, round);
                    }
                });
            }
        });
        full.finish();
    }
}

#[test]
fn each_operation_on_a_full_volume_succeeds_whole_or_changes_nothing() {
    for (args, options) in
        [(&[][..], ""), (FEATURES, ""), (&[], "mode=lfs"), (ZONED, ""), (FOLDED, "")]
    {
        let device = volume(SIZE, args);
        let fs = open(with_zones(device.clone()), options);
        full::prepare(&*fs);
        full::decorate(&*fs);
        full::fill(&*fs);
        full::operate(&*fs, &format!("{args:?}, {options}"));
        fs.unmount().unwrap();
        judge(&device);
    }
}

/// A file gets the last blocks of a volume, is fsynced, and the power fails: the volume is mounted
/// again, and has it.
#[test]
fn what_was_fsynced_with_the_last_blocks_is_recovered() {
    let mut recovered = 0;
    for (args, options) in [(&[][..], ""), (FEATURES, ""), (&[], "mode=lfs"), (FOLDED, "")] {
        let full = Full::new(args, options, Threads::new());
        full.fs.unmount().unwrap();
        for left in 2..24_u64 {
            let device = Arc::new(full.device.fork());
            let fs = open(device.clone(), options);
            let kept = (full.blocks[0].len() as u64 - left) * BLOCK as u64;
            let file = fs.lookup(fs.root(), b"file-0").unwrap().ino;
            let shorter = SetAttributes { size: Some(kept), ..Default::default() };
            fs.setattr(file, &shorter).unwrap();
            fs.sync().unwrap();
            let new = fs.create(fs.root(), b"new", NewInode::Regular, 0o644, &Caller::ROOT);
            let Ok(new) = new else { continue };
            let mut blocks = 0;
            while fs.write(new.ino, blocks * BLOCK as u64, &[7; BLOCK], IoFlags::empty()).is_ok() {
                blocks += 1;
            }
            fs.fsync(new.ino, 0, false).unwrap();
            fs.shutdown(false).unwrap();
            drop(fs);
            let device = Arc::new(device.fork());
            let fs = open(device.clone(), options);
            let new = fs.lookup(fs.root(), b"new").unwrap();
            assert_eq!(new.size, blocks * BLOCK as u64, "{args:?}, {options}, {left} blocks");
            recovered += blocks;
            fs.unmount().unwrap();
            judge(&device);
        }
    }
    assert!(recovered > 100, "{recovered} blocks");
}

/// The system refuses memory from the n-th allocation of each operation on. The operation fails and
/// has changed nothing. The volume continues and is clean at the end.
#[test]
fn each_operation_without_memory_succeeds_whole_or_changes_nothing() {
    for (args, options) in [(&[][..], "cache=1M"), (FEATURES, "cache=1M,mode=lfs")] {
        let device = volume(2 * SIZE, args);
        let label = format!("{args:?}, {options}");
        let fs = open(device.clone(), options);
        full::prepare(&*fs);
        full::decorate(&*fs);
        let (refused, failed) = full::operate_without_memory(&*fs, &label);
        assert!(refused > failed && failed > 10, "{label}: {refused} refused, {failed} failed");
        fs.unmount().unwrap();
        judge(&device);
    }
}
