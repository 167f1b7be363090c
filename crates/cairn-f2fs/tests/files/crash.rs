//! Power cuts at every flush and in between, with a subset of the unflushed writes. Everything that
//! was fsynced is there after roll-forward, also if the power fails during roll-forward, and
//! fsck.f2fs finds nothing. Blocks other than nodes are also torn at 512 bytes; F2FS needs whole
//! nodes (docs/limits.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::{CrashLog, Cut, Promises, Recording, Volatile, write_image};
use cairn_testkit::deep;
use cairn_testkit::foreign::is_clean_f2fs;
use cairn_testkit::judge::{fsck_f2fs, node_blocks_of};
use cairn_testkit::transfer;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode, RenameMode, SetAttributes};

use crate::support::{FEATURES, FOLDED, ZONED, check as judged, open, volume};

const NAMES: u32 = 10;
const BLOCK: u64 = 4096;
/// Blocks in the inode, in direct nodes, and far out in the indirect ones.
const BASES: [u64; 4] = [0, 870 * BLOCK, 2900 * BLOCK, 2_100_000 * BLOCK];

/// The files of a run and the promises about them.
pub struct Workload {
    pub recording: Recording,
    pub fs: Arc<F2fs>,
    pub rng: fastrand::Rng,
    files: BTreeMap<String, Sparse>,
    pub promises: Promises<String, Option<Sparse>>,
    syncs: u32,
}

/// A file's size and the words of its blocks. Blocks that are not in the map are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse {
    size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Sparse {
    fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, byte) in (offset..).zip(data) {
            let block = self.blocks.entry(index / BLOCK).or_insert_with(|| vec![0; 4096]);
            block[(index % BLOCK) as usize] = *byte;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        for (index, block) in self.blocks.range_mut(offset / BLOCK..=(offset + len) / BLOCK) {
            let start = index * BLOCK;
            let from = offset.clamp(start, start + BLOCK) - start;
            let to = (offset + len).clamp(start, start + BLOCK) - start;
            block[from as usize..to as usize].fill(0);
        }
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// Compares with a file, in each block that one of them has.
    fn check(&self, fs: &F2fs, name: &str) -> Result<(), String> {
        let found =
            fs.lookup(fs.root(), name.as_bytes()).map_err(|error| format!("{name}: {error}"))?;
        if found.size != self.size {
            return Err(format!("{name} has {} bytes, not {}", found.size, self.size));
        }
        for base in BASES {
            let mut buf = vec![0xee; 24 * 4096];
            let read = fs
                .read(found.ino, base, &mut buf, IoFlags::empty())
                .map_err(|error| error.to_string())?;
            for (at, byte) in buf[..read].iter().enumerate() {
                let at = base + at as u64;
                let want =
                    self.blocks.get(&(at / BLOCK)).map_or(0, |block| block[(at % BLOCK) as usize]);
                if *byte != want {
                    return Err(format!(
                        "{name}: byte {at} is {byte:#x}, not {want:#x}; size {}",
                        self.size
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Workload {
    fn new(args: &[&str], options: &str, seed: u64) -> Self {
        let megabytes = if args.contains(&"-s") { 192 } else { 64 };
        Self::over(volume(megabytes << 20, args).fork(), options, seed)
    }

    /// Starts on an existing volume.
    pub fn over(device: MemoryDevice, options: &str, seed: u64) -> Self {
        let recording = Recording::start(device);
        let fs = open(recording.device(), options);
        let rng = fastrand::Rng::with_seed(seed);
        Self { recording, fs, rng, files: BTreeMap::new(), promises: Promises::new(), syncs: 0 }
    }

    fn name(&mut self) -> String {
        format!("file-{}", self.rng.u32(0..NAMES))
    }

    fn changing(&mut self, name: &str) {
        self.promises.changing(name.to_owned(), self.recording.moment());
    }

    fn kept(&mut self, name: &str) {
        let state = self.files.get(name).cloned();
        self.promises.kept(name.to_owned(), state, self.recording.moment());
        self.syncs += 1;
    }

    fn ino(&self, name: &str) -> cairn_base::Ino {
        self.fs.lookup(self.fs.root(), name.as_bytes()).unwrap().ino
    }

    fn range(&mut self) -> (u64, usize) {
        let base = BASES[self.rng.usize(0..BASES.len())];
        (base + self.rng.u64(0..8 * BLOCK), self.rng.usize(1..3 * 4096))
    }

    pub fn step(&mut self) {
        let name = self.name();
        if !self.files.contains_key(&name) {
            self.changing(&name);
            self.fs
                .create(self.fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                .unwrap();
            self.files.insert(name, Sparse::default());
            return;
        }
        match self.rng.u32(0..100) {
            0..45 => self.write(&name),
            45..55 => self.truncate(&name),
            55..60 => self.punch(&name),
            60..88 => {
                let data_only = self.rng.bool();
                self.fs.fsync(self.ino(&name), 0, data_only).unwrap();
                self.kept(&name);
            }
            88..93 => {
                self.changing(&name);
                self.fs.unlink(self.fs.root(), name.as_bytes()).unwrap();
                self.files.remove(&name);
            }
            93..97 => self.rename(&name),
            _ => {
                self.fs.sync().unwrap();
                for name in (0..NAMES).map(|number| format!("file-{number}")) {
                    self.kept(&name);
                }
            }
        }
    }

    fn write(&mut self, name: &str) {
        let (offset, len) = self.range();
        let data: Vec<u8> = (0..len).map(|_| self.rng.u8(1..)).collect();
        self.changing(name);
        let flags = match self.rng.u8(0..16) {
            0..2 => IoFlags::DSYNC,
            2..5 => IoFlags::DONTCACHE,
            _ => IoFlags::empty(),
        };
        let written = transfer::write(&*self.fs, self.ino(name), offset, &data, flags);
        assert_eq!(written.unwrap(), len);
        self.files.get_mut(name).unwrap().write(offset, &data);
        if flags.contains(IoFlags::DSYNC) {
            self.kept(name);
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = if self.rng.bool() { self.range().0 } else { self.rng.u64(0..5000) };
        self.changing(name);
        self.fs
            .setattr(
                self.ino(name),
                &SetAttributes { size: Some(size), ..SetAttributes::default() },
            )
            .unwrap();
        self.files.get_mut(name).unwrap().truncate(size);
    }

    fn punch(&mut self, name: &str) {
        let (offset, len) = self.range();
        self.changing(name);
        self.fs.allocate(self.ino(name), AllocateMode::PunchHole, offset, len as u64).unwrap();
        self.files.get_mut(name).unwrap().zero(offset, len as u64);
    }

    fn rename(&mut self, name: &str) {
        let to = self.name();
        if to == *name {
            return;
        }
        self.changing(name);
        self.changing(&to);
        let root = self.fs.root();
        self.fs.rename(root, name.as_bytes(), root, to.as_bytes(), RenameMode::Replace).unwrap();
        let file = self.files.remove(name).unwrap();
        self.files.insert(to, file);
    }
}

fn check(
    fs: &F2fs,
    promises: &Promises<String, Option<Sparse>>,
    moment: u64,
) -> Result<usize, String> {
    let promised = promises.at(moment);
    for (name, state) in &promised {
        match state {
            Some(file) => file.check(fs, name)?,
            None if fs.lookup(fs.root(), name.as_bytes()).is_ok() => {
                return Err(format!("{name} is there again"));
            }
            None => {}
        }
    }
    Ok(promised.len())
}

/// The name of a check by [`clean`] before recovery.
pub const BEFORE: &str = "before recovery";

pub fn clean(device: &MemoryDevice, when: &str) -> Result<(), String> {
    judged(device).map_err(|found| format!("{when}, the check finds:\n{found}"))?;
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(device, file.path()).unwrap();
    let verdict = fsck_f2fs(file.path());
    if is_clean_f2fs(&verdict, when != BEFORE) {
        return Ok(());
    }
    let kept = std::env::temp_dir().join("cairn-f2fs-crash-failure.img");
    std::fs::copy(file.path(), &kept).unwrap();
    Err(format!("{when} (image kept in {}):\n{}", kept.display(), verdict.output))
}

/// Recovery by Cairn. With `again` the power fails at every flush of the recovery, and a second
/// recovery must succeed.
pub fn judge(
    device: MemoryDevice,
    promises: &Promises<String, Option<Sparse>>,
    moment: u64,
    options: &str,
    again: bool,
) -> Result<usize, String> {
    let recording = Recording::start(device);
    let fs = open(recording.device(), options);
    let kept = check(&fs, promises, moment)?;
    fs.unmount().map_err(|error| format!("closing: {error}"))?;
    drop(fs);
    let log = recording.finish();
    clean(&log.device(Cut { moment: log.log().end, volatile: Volatile::Kept }), "after recovery")?;
    if again {
        for cut in barrier_cuts(&log).into_iter().chain(log.random_cuts(3, moment)) {
            let error = |error| format!("{cut} of the recovery: {error}");
            judge(log.device(cut), promises, moment, options, false).map_err(error)?;
        }
    }
    Ok(kept)
}

/// Two of the four states around a barrier: all unflushed writes lost just before it, all kept just
/// after it.
pub fn barrier_cuts(log: &CrashLog) -> Vec<Cut> {
    let barriers = log.barriers();
    let mut cuts = log.barrier_cuts();
    if !deep() {
        let before = |cut: &Cut| barriers.contains(&(cut.moment + 1));
        cuts.retain(|cut| (cut.volatile == Volatile::Lost) == before(cut));
    }
    cuts
}

fn search(args: &[&str], options: &str, seed: u64, steps: u32) {
    let mut work = Workload::new(args, options, seed);
    let is_node = node_blocks_of(work.recording.before());
    for _ in 0..steps {
        work.step();
    }
    let Workload { recording, fs, promises, syncs, .. } = work;
    let checkpoints = fs.fsync_stats().checkpoints.get();
    let nodes = fs.fsync_stats().nodes.get();
    assert!(nodes > 0 && syncs > 10, "{nodes} of {syncs} by nodes, {checkpoints} by checkpoints");
    fs.shutdown(false).unwrap();
    drop(fs);
    let log: CrashLog = recording.finish().with_whole(is_node);
    let barriers = barrier_cuts(&log);
    // Zones have other barriers.
    let (most, random) = if deep() { (barriers.len(), 400) } else { (24, 8) };
    let every = barriers.len().div_ceil(most);
    let mut seen = 0;
    let torn = log.random_cuts(random, seed + 1000).into_iter().map(|cut| match cut.volatile {
        Volatile::Random(seed) => Cut { volatile: Volatile::Torn(seed), ..cut },
        _ => cut,
    });
    let cuts = barriers.into_iter().step_by(every).chain(log.random_cuts(random, seed)).chain(torn);
    for (number, cut) in cuts.enumerate() {
        let device = log.device(cut);
        let kept = clean(&device, BEFORE)
            .and_then(|()| judge(device, &promises, cut.moment, options, number % 24 == 5))
            .unwrap_or_else(|error| panic!("seed {seed}, {args:?}, {options:?}, {cut}: {error}"));
        seen += kept;
    }
    assert!(seen > 30, "{seen} promises were looked at");
}

/// Searches once, or with many seeds and longer workloads in long runs.
fn search_all(kinds: &[(&[&str], &str, u64)]) {
    let (rounds, steps) = if deep() { (20, 300) } else { (1, 60) };
    for seed in 0..rounds {
        for (args, options, first) in kinds {
            search(args, options, 5 * seed + first, steps);
        }
    }
}

#[test]
fn what_was_fsynced_survives_power_cuts() {
    search_all(&[
        (&[], "", 1),
        (&[], "mode=lfs,gc_victim=data_first,gc_merge", 2),
        (&["-s", "2"], "cache=1M", 4),
    ]);
}

#[test]
fn what_was_fsynced_on_other_volumes_survives_power_cuts() {
    search_all(&[
        (FEATURES, "nocheckpoint_merge,gc_victim=greedy", 3),
        (ZONED, "", 5),
        (FOLDED, "", 6),
    ]);
}
