//! Volumes grow and shrink in steps: their files stay, fsck.f2fs finds nothing, and a power cut or
//! a failed write leaves a volume that the next mount completes, or leaves as it was.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_check::repair::undo::file_size;
use cairn_f2fs::resize::{self, Resized};
use cairn_testkit::crash::{Cut, Recording, read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{dump_f2fs, f2fs_alarms, fsck_f2fs_device, node_blocks_of};
use cairn_testkit::tree::{
    Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_volume, plan,
};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{FEATURES, check, judge, look, open, volume};

const MIB: u64 = 1 << 20;

fn threads() -> Arc<dyn Runtime> {
    Threads::new()
}

fn digest(device: &Arc<MemoryDevice>) -> Snapshot {
    let volume = look(device.clone());
    digest_volume(&*volume, SnapshotOptions::default()).unwrap()
}

/// A volume with a tree and with files whose blocks are spread over all of it.
fn filled(mebibytes: u64, args: &[&str], seed: u64) -> Arc<MemoryDevice> {
    let device = volume(mebibytes * MIB, args);
    let fs = open(device.clone(), "");
    build(&VolumeTarget::new(&*fs), &plan(&TreeSpec { size_max: 60_000, ..TreeSpec::small(seed) }));
    spread(&*fs, seed);
    fs.unmount().unwrap();
    device
}

/// Fills the volume with files, and removes most of them.
fn spread(fs: &dyn FileSystem, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut count = 0;
    'full: loop {
        let name = format!("spread{count}");
        let Ok(made) =
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
        else {
            break;
        };
        count += 1;
        let piece = vec![rng.u8(..); rng.usize(20_000..900_000)];
        for part in 0..4 {
            if fs.write(made.ino, part * MIB, &piece, IoFlags::empty()).is_err() {
                break 'full;
            }
        }
        fs.forget(made.ino, 1);
    }
    fs.sync().unwrap();
    for number in (0..count).filter(|number| number % 9 > 0) {
        fs.unlink(fs.root(), format!("spread{number}").as_bytes()).unwrap();
    }
}

/// The image on a device of another size.
fn on_size(image: &MemoryDevice, size: u64) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(image, file.path()).unwrap();
    file.as_file().set_len(size).unwrap();
    Arc::new(read_image(file.path()).unwrap())
}

fn resized(device: &Arc<MemoryDevice>, size: u64) -> cairn_f2fs::Result<Resized> {
    let device: Arc<dyn BlockDevice> = device.clone();
    resize::resize(&device, &threads(), size)
}

fn size_of(device: &Arc<MemoryDevice>) -> u64 {
    let device: Arc<dyn BlockDevice> = device.clone();
    resize::size(&device).unwrap()
}

fn least_of(device: &Arc<MemoryDevice>) -> u64 {
    let device: Arc<dyn BlockDevice> = device.clone();
    resize::least(&device, threads()).unwrap()
}

/// What dump.f2fs says about the space of a volume.
fn space(device: &MemoryDevice) -> Vec<(String, u64)> {
    const FIELDS: [&str; 6] = [
        "segment_count_main",
        "segment_count_ssa",
        "segment_count_nat",
        "user_block_count",
        "overprov_segment_count",
        "main_blkaddr",
    ];
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(device, file.path()).unwrap();
    let all = dump_f2fs(file.path());
    FIELDS.iter().map(|field| ((*field).to_owned(), all[*field])).collect()
}

/// Shapes, the size that they begin with, and the sizes to which they grow, in MiB.
const GROWTH: &[(&[&str], u64, &[u64])] = &[
    (&[], 64, &[65, 130, 1300, 70_000]),
    (FEATURES, 64, &[900, 5000]),
    (&["-s", "4"], 256, &[300, 3000]),
    (&["-s", "2", "-z", "2"], 256, &[2000]),
    (&["-i"], 128, &[129, 9000]),
];

#[test]
fn a_volume_grows_in_steps_and_keeps_its_files() {
    for (number, (args, start, steps)) in (0..).zip(GROWTH) {
        let mut device = filled(*start, args, number);
        let expected = digest(&device);
        for size in *steps {
            println!("{args:?} to {size} MiB");
            device = on_size(&device, size * MIB);
            let done = resized(&device, size * MIB).unwrap();
            assert!(done.after == size * MIB && done.before < done.after, "{done:?}");
            judge(&device);
            digest(&device).assert_same(&expected);
            let fresh = space(&volume(size * MIB, args));
            let found = space(&device);
            println!("{found:?}\nnew: {fresh:?}");
            let of = |facts: &[(String, u64)], name: &str| {
                facts.iter().find(|(field, _)| field == name).unwrap().1
            };
            let (ours, new) = (of(&found, "user_block_count"), of(&fresh, "user_block_count"));
            // Where sections have several segments, mkfs.f2fs also counts some that no section has.
            let tolerated = if args.contains(&"-s") { new / 4 } else { 0 };
            assert!(ours.abs_diff(new) <= tolerated, "{ours} blocks for users, {new} in a new one");
        }
        // Into what is new.
        let fs = open(device.clone(), "");
        let ino =
            fs.create(fs.root(), b"new", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        for at in 0..40 {
            fs.write(ino, at * MIB, &vec![at as u8 + 1; MIB as usize], IoFlags::empty()).unwrap();
        }
        fs.unmount().unwrap();
        judge(&device);
        let times = |snapshot: Snapshot| snapshot.without_fact("mtime", |path, _| path.is_empty());
        times(digest(&device).without(b"new")).assert_same(&times(expected));
    }
}

#[test]
fn a_volume_shrinks_and_grows_in_steps_and_keeps_its_files() {
    let shapes: [&[&str]; 3] = [&[], FEATURES, &["-s", "2"]];
    let seeds = if deep() { 0..20 } else { 0..1 };
    for (seed, args) in seeds.flat_map(|seed| shapes.iter().map(move |args| (seed, *args))) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut device = filled(300, args, seed);
        let expected = digest(&device);
        let mut steps = vec![Some(290), None];
        steps.extend((0..if deep() { 3 } else { 1 }).map(|_| Some(rng.u64(150..400))));
        steps.push(None);
        for step in steps {
            let least = least_of(&device);
            let size = step.map_or(least, |step| (step * MIB).max(least));
            println!("seed {seed}, {args:?}: from {} to {size}, least {least}", size_of(&device));
            device = on_size(&device, size.max(size_of(&device)));
            let done = resized(&device, size).unwrap();
            assert!(done.after == size && size_of(&device) == size, "{done:?}");
            device = on_size(&device, size);
            judge(&device);
            digest(&device).assert_same(&expected);
        }
        // At its least size it can be written.
        let fs = open(device.clone(), "");
        let _ = fs.create(fs.root(), b"more", NewInode::Regular, 0o644, &Caller::ROOT);
        fs.unmount().unwrap();
        judge(&device);
    }
}

/// Changes that a cut or a fault interrupts: from, to, arguments of mkfs.
const CHANGES: &[(&str, u64, u64, &[&str])] =
    &[("extended", 64, 90, &[]), ("moved", 64, 1200, &[]), ("shrunk", 128, 80, FEATURES)];

fn before(from: u64, to: u64, args: &[&str]) -> Arc<MemoryDevice> {
    on_size(&filled(from, args, 5), from.max(to) * MIB)
}

/// As [`judge`], but one of the checkpoint packs may be incomplete.
fn whole(device: &MemoryDevice) {
    let output = fsck_f2fs_device(device).output;
    let damage = ["[ASSERT]", "[FIX]", "[Fail]", "Corrupted"];
    assert!(!damage.iter().any(|mark| output.contains(mark)), "{output}");
}

/// The least size, or more.
fn target(device: &Arc<MemoryDevice>, to: u64) -> u64 {
    (to * MIB).max(least_of(device))
}

/// A repair of a volume of whose last segment the table says that it is in use. Nothing is lost,
/// and the size stays what it was.
fn repaired(state: &MemoryDevice) -> Arc<MemoryDevice> {
    let device = Arc::new(state.fork());
    let field = |at: u64| {
        let bytes = device.read_at(1024 + at, 4).unwrap();
        u64::from(u32::from_le_bytes(bytes[..].try_into().unwrap()))
    };
    let (segments, table, last) = (field(56), field(80), field(68) - 1);
    for copy in [table, table + segments / 2 * 512] {
        // The first byte of its map.
        device.load(((copy + last / 55) << 12) + last % 55 * 74 + 2, &[0x80]);
    }
    let whole: Arc<dyn BlockDevice> = device.clone();
    let plan = cairn_f2fs::repair::plan(whole.clone(), threads(), Arc::new(()), Scope::Accounting)
        .unwrap();
    let steps = plan.steps.kept();
    assert!(plan.after.count() == 0 && plan.steps.losing().count() == 0, "{steps:?}");
    assert!(!plan.changes.is_empty());
    plan.apply(&*whole, &MemoryDevice::new(file_size(&plan.changes))).unwrap();
    device
}

#[test]
fn a_power_cut_costs_no_file_and_the_next_mount_completes_it() {
    for (what, from, to, args) in CHANGES {
        let device = before(*from, *to, args);
        let (expected, size) = (digest(&device), target(&device, *to));
        let nodes = node_blocks_of(&device);
        let recording = Recording::start(device.fork());
        let done = resize::resize(&recording.device(), &threads(), size).unwrap();
        let log = recording.finish().with_whole(nodes);
        let mut cuts = log.barrier_cuts();
        let most = if deep() { usize::MAX } else { 12 };
        let every = cuts.len().div_ceil(most);
        cuts = cuts.into_iter().step_by(every).collect();
        cuts.extend(log.random_cuts(if deep() { 200 } else { 4 }, 11));
        let (mut old, mut new, mut between) = (0, 0, 0);
        for (number, cut) in cuts.into_iter().enumerate() {
            let mut state = Arc::new(log.device(cut));
            digest(&state).assert_same(&expected);
            if number % 3 == 1 {
                state = repaired(&state);
                digest(&state).assert_same(&expected);
            }
            let fs = open(state.clone(), "");
            fs.unmount().unwrap();
            drop(fs);
            whole(&state);
            digest(&state).assert_same(&expected);
            match size_of(&state) {
                found if found == done.before => old += 1,
                found if found == done.after => new += 1,
                found if found > done.before && found < done.after => between += 1,
                found => panic!("{what}, {cut}: {found} bytes"),
            }
            // The next try completes it.
            resized(&state, size).unwrap();
            assert_eq!(size_of(&state), done.after, "{what}, {cut}");
            whole(&state);
            digest(&state).assert_same(&expected);
        }
        println!("{what}: {old} cuts left the old size, {new} the new one, {between} another");
        assert!(old > 1 && new > 0, "{what}: {old} of the old size, {new} of the new one");
    }
}

/// fsck.f2fs finds nothing, or only free segments of the other size; this is returned.
fn counts_another_size(state: &MemoryDevice, cut: Cut) -> bool {
    let verdict = fsck_f2fs_device(state);
    let alarms = f2fs_alarms(&verdict.output).filter(|line| !line.contains("Invalid CP"));
    let alarms: Vec<&str> = alarms.collect();
    let known = ["free segment_count", "free_segs"];
    let other = alarms.iter().find(|line| !known.iter().any(|known| line.contains(known)));
    assert!(other.is_none(), "{cut}: {}", verdict.output);
    !alarms.is_empty()
}

#[test]
fn between_two_writes_and_only_there_fsck_counts_the_segments_of_another_size() {
    for (what, from, to, args) in CHANGES {
        let device = before(*from, *to, args);
        let size = target(&device, *to);
        let nodes = node_blocks_of(&device);
        let recording = Recording::start(device.fork());
        resize::resize(&recording.device(), &threads(), size).unwrap();
        let log = recording.finish().with_whole(nodes);
        let mut another = Vec::new();
        let cuts = log.barrier_cuts();
        for cut in &cuts {
            let state = log.device(*cut);
            if let Err(found) = check(&state) {
                panic!("{what}, {cut}: {found}");
            }
            if counts_another_size(&state, *cut) {
                another.push(cut.moment);
            }
        }
        println!("{what}: fsck.f2fs counts another size after {another:?} of {} cuts", cuts.len());
        another.dedup();
        // One write in flight, both writes done or not, the other one in flight.
        assert!(another.len() <= 3, "{what}: {another:?}");
    }
}

#[test]
fn every_write_and_flush_may_fail() {
    for (what, from, to, args) in CHANGES {
        let device = before(*from, *to, args);
        let (expected, size) = (digest(&device), target(&device, *to));
        for operation in [Operation::Write, Operation::Flush] {
            let total = {
                let fault = Arc::new(Fault::new(Arc::new(device.fork())));
                let counted: Arc<dyn BlockDevice> = fault.clone();
                resize::resize(&counted, &threads(), size).unwrap();
                fault.count(operation)
            };
            let step = if deep() { 1 } else { total.div_ceil(4) };
            for nth in (1..=total).step_by(usize::try_from(step).unwrap()) {
                let state = Arc::new(device.fork());
                let fault = Arc::new(Fault::new(state.clone()));
                fault.fail(operation, nth, Lasting::Forever);
                let failing: Arc<dyn BlockDevice> = fault.clone();
                let failed = resize::resize(&failing, &threads(), size);
                assert!(failed.is_err(), "{what}: {operation:?} {nth} of {total} fails");
                fault.clear();
                digest(&state).assert_same(&expected);
                resized(&state, size).unwrap();
                judge(&state);
                digest(&state).assert_same(&expected);
            }
        }
    }
}

/// The host of a sparse image is full: only the superblocks have their place. Then the volume has
/// no record of an error, and is what it was.
#[test]
fn a_host_that_becomes_full_leaves_no_record_of_an_error() {
    for (what, from, to, args) in CHANGES {
        let device = before(*from, *to, args);
        let (expected, size) = (digest(&device), target(&device, *to));
        let total = {
            let fault = Arc::new(Fault::new(Arc::new(device.fork())));
            let counted: Arc<dyn BlockDevice> = fault.clone();
            resize::resize(&counted, &threads(), size).unwrap();
            fault.count(Operation::Write)
        };
        let mut failures = 0;
        let step = if deep() { 1 } else { total.div_ceil(8) };
        for nth in (1..=total).step_by(usize::try_from(step).unwrap()) {
            let state = Arc::new(device.fork());
            let fault = Arc::new(Fault::new(state.clone()));
            fault.fill_at(nth, 8192);
            let full: Arc<dyn BlockDevice> = fault.clone();
            failures += u32::from(resize::resize(&full, &threads(), size).is_err());
            let found: Arc<dyn BlockDevice> = state.clone();
            let report = cairn_f2fs::check::check(found, &threads(), Arc::new(())).unwrap();
            assert!(report.findings.is_empty(), "{what}, write {nth}: {:?}", report.findings);
            digest(&state).assert_same(&expected);
            resized(&state, size).unwrap();
            judge(&state);
            digest(&state).assert_same(&expected);
        }
        println!("{what}: {failures} of {total} writes fail, every {step}th tried");
        assert!(failures > 1, "{what}: the host was never full");
    }
}

#[test]
fn what_a_volume_cannot_become_is_refused_and_nothing_is_written() {
    let device = filled(128, &[], 3);
    let least = least_of(&device);
    for (size, said) in [(least - 2 * MIB, least.to_string()), (1 << 50, "16 TiB".into())] {
        let recording = Recording::start(device.fork());
        let refused = resize::resize(&recording.device(), &threads(), size);
        let error = refused.expect_err(&said).to_string();
        assert!(error.contains(&said), "{error}");
        assert_eq!(recording.finish().flushes(), 0, "{said}: something was written");
    }
    let zoned: Arc<dyn BlockDevice> = volume(100 * MIB, crate::support::ZONED);
    let zoned = crate::support::with_zones(zoned);
    let error = resize::resize(&zoned, &threads(), 50 * MIB).expect_err("zoned").to_string();
    assert!(error.contains("zoned"), "{error}");
    assert!(fsck_f2fs_device(&device).is_clean());
}
