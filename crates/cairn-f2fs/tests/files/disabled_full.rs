//! `checkpoint=disable` on a volume that is nearly full: requests fail, or the power does. The
//! volume has the files that it had before the mount, or, once checkpoints are enabled again, those
//! that it had then.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::{CrashLog, Cut, Recording, Volatile};
use cairn_testkit::deep;
use cairn_testkit::faults::{create, is_told};
use cairn_testkit::judge::{f2fs_alarms, fsck_f2fs_device, node_blocks_of};
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_volume};
use cairn_vfs::{AllocateMode, Error, FileSystem, IoFlags, RenameMode, Result, SetAttributes};

use crate::crash::{BEFORE, clean};
use crate::support::{judge, look, volume};

const PIECE: u64 = 64 << 10;

/// How the volume is mounted, and whether checkpoints are enabled at the end.
#[derive(Clone, Copy, Debug)]
struct Kind {
    options: &'static str,
    enables: bool,
}

const KINDS: [Kind; 4] = [
    Kind { options: "noatime,checkpoint=disable:100%", enables: false },
    Kind { options: "noatime,checkpoint=disable:100%,cache=1M", enables: true },
    Kind { options: "noatime,mode=lfs,checkpoint=disable:100%", enables: true },
    Kind { options: "noatime,mode=lfs,checkpoint=disable:100%,cache=1M", enables: false },
];

fn open(
    device: Arc<dyn BlockDevice>,
    options: &str,
) -> (Arc<Simulated>, cairn_f2fs::Result<Arc<F2fs>>) {
    let simulated = Simulated::new(1);
    let options = MountOptions::parse(options).unwrap();
    (simulated.clone(), F2fs::open(device, simulated, &options))
}

fn set_size(fs: &F2fs, name: &str, size: u64) -> Result<()> {
    let ino = fs.lookup(fs.root(), name.as_bytes())?.ino;
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).map(drop)
}

fn write(fs: &F2fs, name: &str, offset: u64, byte: u8) -> Result<()> {
    let ino = match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(found) => found.ino,
        Err(Error::NotFound) => create(fs, name)?,
        Err(error) => return Err(error),
    };
    fs.write(ino, offset, &[byte; PIECE as usize], IoFlags::empty()).map(drop)
}

fn fsync(fs: &F2fs, name: &str) -> Result<()> {
    fs.fsync(fs.lookup(fs.root(), name.as_bytes())?.ino, 0, false)
}

/// Appends to a file until there is no space.
fn fill(fs: &F2fs, name: &str, byte: u8) -> Result<()> {
    for at in (0..64 << 20).step_by(PIECE as usize) {
        match write(fs, name, at, byte) {
            Ok(()) => {}
            Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    panic!("everything fits");
}

/// A volume with a few MiB of free space, of which a part is in holes.
fn nearly_full() -> MemoryDevice {
    let device = volume(64 << 20, &[]);
    let fs = crate::support::open(device.clone(), "");
    for at in (0..4 << 20).step_by(PIECE as usize) {
        write(&fs, "holes", at, 1).unwrap();
    }
    for number in 0..40 {
        write(&fs, &format!("small {number}"), 0, number).unwrap();
    }
    fill(&fs, "filler", 2).unwrap();
    fs.sync().unwrap();
    let holes = fs.lookup(fs.root(), b"holes").unwrap().ino;
    for at in (0..4 << 20).step_by(8192) {
        fs.allocate(holes, AllocateMode::PunchHole, at, 4096).unwrap();
    }
    let size = fs.lookup(fs.root(), b"filler").unwrap().size;
    set_size(&fs, "filler", size - (3 << 20)).unwrap();
    fs.unmount().unwrap();
    device.fork()
}

fn tree(fs: &F2fs) -> Result<Snapshot> {
    digest_volume(fs, SnapshotOptions::default())
}

/// What a run has come to.
#[derive(Default)]
struct Run {
    errors: Vec<Error>,
    /// The tree when checkpoints were about to be enabled, and whether they were.
    enabling: Option<(Snapshot, bool)>,
    /// The moments of a recording before and after they were.
    moments: (u64, u64),
}

impl Run {
    fn did(&mut self, done: Result<()>) {
        self.errors.extend(done.err());
    }

    /// Writes until the volume is full, and goes on, whatever fails.
    fn work(&mut self, fs: &F2fs, simulated: &Simulated, kind: Kind, moment: &dyn Fn() -> u64) {
        self.did(fill(fs, "full", 3));
        self.did(fsync(fs, "full"));
        for number in 0..4 {
            self.did(write(fs, "filler", number << 20, 4));
        }
        self.did(fsync(fs, "filler"));
        simulated.advance(Duration::from_secs(70));
        for number in 0..10 {
            self.did(fs.unlink(fs.root(), format!("small {number}").as_bytes()));
        }
        self.did(fsync(fs, "small 11"));
        self.did(fs.sync());
        self.did(set_size(fs, "full", 8 * PIECE));
        self.did(write(fs, "another", 3 * PIECE, 5));
        let root = fs.root();
        self.did(fs.rename(root, b"small 12", root, b"small 13", RenameMode::Replace));
        self.did(fsync(fs, "another"));
        self.did(fill(fs, "full again", 6));
        simulated.advance(Duration::from_secs(70));
        self.did(fs.sync());
        if kind.enables
            && let Ok(tree) = tree(fs)
        {
            let before = moment();
            let enabled = fs.remount("checkpoint=enable");
            self.moments = (before, moment());
            self.enabling = Some((tree, enabled.is_ok()));
            self.did(enabled);
        }
        self.did(fs.unmount());
    }
}

/// The tree of a volume is one of these, and after a mount that writes it is clean.
fn judged(device: &MemoryDevice, allowed: &[&Snapshot], named: &str) {
    let verdict = fsck_f2fs_device(device);
    let alarms: Vec<_> = f2fs_alarms(&verdict.output).collect();
    // A pack that was not written completely is no error if the other one is valid.
    let is_torn = |line: &&str| line.contains("Invalid CP") || line.contains("Corrupted");
    assert!(alarms.iter().all(is_torn), "{named}:\n{}", alarms.join("\n"));
    let found = tree(&look(Arc::new(device.fork()))).unwrap_or_else(|error| {
        panic!("{named}: the tree cannot be read: {error}");
    });
    assert!(allowed.iter().any(|tree| **tree == found), "{named}: another tree");
    let device = Arc::new(device.fork());
    let fs = open(device.clone(), "noatime").1;
    let fs = fs.unwrap_or_else(|error| panic!("{named}: the volume does not open: {error}"));
    assert_eq!(fs.read_only_reason(), None, "{named}");
    let changed = create(&*fs, "later").and_then(|_| fsync(&fs, "later"));
    changed.unwrap_or_else(|error| panic!("{named}: a change fails: {error}"));
    fs.unlink(fs.root(), b"later").unwrap();
    fs.unmount().unwrap();
    judge(&device);
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    Once,
    Forever,
    /// The host of the image has no room.
    Full,
}

/// Has the n-th request fail. False if there are fewer.
fn one_fault(
    (before, tree): (&MemoryDevice, &Snapshot),
    kind: Kind,
    (operation, nth, failing): (Operation, u64, Failing),
) -> bool {
    let named = format!("{operation:?} number {nth} fails ({failing:?}) with {kind:?}");
    let memory = Arc::new(before.fork());
    let fault = Arc::new(Fault::new(memory.clone()));
    match failing {
        Failing::Once => fault.fail(operation, nth, Lasting::Once),
        Failing::Forever => fault.fail(operation, nth, Lasting::Forever),
        Failing::Full => fault.fill_at(nth, 0),
    }
    let (simulated, fs) = open(fault.clone(), kind.options);
    let mut run = Run::default();
    let mut is_stopped = false;
    match fs {
        Ok(fs) => {
            run.work(&fs, &simulated, kind, &|| 0);
            is_stopped = fs.read_only_reason().is_some();
        }
        Err(error) => run.did(Err(error.into())),
    }
    let reached = fault.count(operation) >= nth;
    for error in &run.errors {
        // Nothing more fits, and names that could not be made are missing.
        let is_known = matches!(error, Error::NoSpace | Error::NotFound);
        assert!(is_known || reached && is_told(error), "{named}: {error}");
    }
    if reached && operation != Operation::Read {
        assert!(is_stopped || run.errors.iter().any(is_told), "{named}: nobody was told");
    }
    fault.clear();
    match &run.enabling {
        Some((enabled, true)) => judged(&memory, &[enabled], &named),
        Some((enabled, false)) => judged(&memory, &[tree, enabled], &named),
        None => judged(&memory, &[tree], &named),
    }
    reached
}

#[test]
fn every_request_of_a_full_volume_without_checkpoints_may_fail() {
    let before = nearly_full();
    let tree = tree(&look(Arc::new(before.fork()))).unwrap();
    let mut runs = 0;
    for (first, kind) in (1..).zip(KINDS) {
        for (operation, step) in
            [(Operation::Write, 4), (Operation::Flush, 2), (Operation::Read, 79)]
        {
            let fails = |nth, failing| one_fault((&before, &tree), kind, (operation, nth, failing));
            let mut nth = if deep() { 1 } else { first };
            while fails(nth, Failing::Once) {
                fails(nth, Failing::Forever);
                if operation == Operation::Write {
                    fails(nth, Failing::Full);
                }
                nth += if deep() { 1 } else { step };
                runs += 1;
            }
        }
    }
    assert!(runs > 30, "{runs} requests failed");
}

#[test]
fn a_full_volume_without_checkpoints_survives_power_cuts() {
    let before = nearly_full();
    let is_node = Arc::new(node_blocks_of(&before));
    let tree = tree(&look(Arc::new(before.fork()))).unwrap();
    for (seed, kind) in (1..).zip(KINDS) {
        let recording = Recording::start(before.fork());
        let (simulated, fs) = open(recording.device(), kind.options);
        let mut run = Run::default();
        run.work(&fs.unwrap(), &simulated, kind, &|| recording.moment());
        let is_known = |error: &Error| matches!(error, Error::NoSpace | Error::NotFound);
        assert!(run.errors.iter().all(is_known), "{kind:?}: {:?}", run.errors);
        assert!(run.enabling.as_ref().is_none_or(|(enabled, done)| *enabled != tree && *done));
        let is_node = is_node.clone();
        let log: CrashLog = recording.finish().with_whole(move |block| is_node(block));
        let count = if deep() { 400 } else { 6 };
        let torn = log.random_cuts(count, seed + 100).into_iter().map(|cut| match cut.volatile {
            Volatile::Random(seed) => Cut { volatile: Volatile::Torn(seed), ..cut },
            _ => cut,
        });
        let barriers = log.barrier_cuts();
        let every = if deep() { 1 } else { barriers.len().div_ceil(16) };
        let cuts = barriers.into_iter().step_by(every);
        let all = cuts.chain(log.random_cuts(count, seed)).chain(torn).collect::<Vec<_>>();
        for cut in all {
            let named = format!("{kind:?}, {cut}");
            let device = log.device(cut);
            clean(&device, BEFORE).unwrap_or_else(|error| panic!("{named}: {error}"));
            let (begun, ended) = run.moments;
            match &run.enabling {
                Some((enabled, true)) if cut.moment >= ended => judged(&device, &[enabled], &named),
                Some((enabled, true)) if cut.moment > begun => {
                    judged(&device, &[&tree, enabled], &named);
                }
                _ => judged(&device, &[&tree], &named),
            }
        }
    }
}
