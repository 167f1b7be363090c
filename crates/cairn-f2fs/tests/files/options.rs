//! Every mount option has an effect: the cases for [`cairn_testkit::options`].

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::format::Nid;
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::judge::f2fs_in_memory;
use cairn_testkit::options::{
    Effect, Given, access_times, after_seconds, discards, folios, judge, mappings, memory, writing,
};
use cairn_vfs::{AllocateMode, Caller, Error, FileSystem, IoFlags, NewInode, root_reserved};

const BLOCK: u64 = 4096;
/// Blocks of a file whose every second block is overwritten.
const WORN: u64 = 4096;
/// Small files.
const SMALL: u32 = 1500;

fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, options: &str) -> Arc<F2fs> {
    let options = MountOptions::parse(options).unwrap_or_else(|error| panic!("{options}: {error}"));
    F2fs::open(device, runtime, &options).unwrap()
}

const EFFECTS: &[Effect] = &[
    Effect::live("", "ro", writing),
    Effect::at_mount("ro", "rw", writing),
    Effect::at_mount("ro", "norecovery", rolled_forward),
    Effect::at_mount("ro", "disable_roll_forward", rolled_forward),
    Effect::live("", "noatime", access_times),
    Effect::live("noatime", "relatime", access_times),
    Effect::live("", "errors=remount-ro", after_damage),
    Effect::live("errors=panic", "errors=continue", after_damage),
    Effect::live("", "cache=4M", memory),
    Effect::live("", "nobuffered_iomap", mappings),
    Effect::live("nobuffered_iomap", "buffered_iomap", mappings),
    Effect::live("", "max_folio=4K", folios),
    Effect::at_mount("", "mode=lfs", overwritten),
    Effect::at_mount("mode=lfs", "mode=adaptive", overwritten),
    Effect::live("mode=lfs,background_gc=off", "gc_victim=greedy", cleaned_for_room),
    Effect::live("mode=lfs,background_gc=off", "gc_victim=data_first", cleaned_for_room),
    Effect::live("mode=lfs", "background_gc=off", cleaned_when_idle),
    Effect::live("mode=lfs,background_gc=off", "background_gc=sync", cleaned_when_idle),
    Effect::live("mode=lfs,background_gc=off", "gc_merge", cleaner),
    Effect::live("mode=lfs,background_gc=off,gc_merge", "nogc_merge", cleaner),
    Effect::live("checkpoint_interval=86400", "atgc", cleaned_although_young),
    Effect::live("checkpoint_interval=86400,atgc", "noatgc", cleaned_although_young),
    Effect::at_mount("", "nodiscard", discards),
    Effect::at_mount("nodiscard", "discard", discards),
    Effect::live("", "checkpoint_interval=5", |given| after_seconds(given, 20)),
    Effect::live("", "nocheckpoint_merge", merged),
    Effect::live("nocheckpoint_merge", "checkpoint_merge", merged),
    Effect::live("nocheckpoint_merge", "checkpoint=merge", merged),
    Effect::live("nocheckpoint_merge", "checkpoint=disable", final_after_sync),
    Effect::live("nocheckpoint_merge,checkpoint=disable", "checkpoint=enable", final_after_sync),
    Effect::live("", "reserve_root=700", left_by_users),
    Effect::live("reserve_root=700", "resuid=77", reserved_for),
    Effect::live("reserve_root=700", "resgid=88", reserved_for),
];

fn create(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino
}

/// Makes a file of so many blocks.
fn written(fs: &dyn FileSystem, name: &str, blocks: u64) -> Ino {
    let ino = create(fs, name);
    for at in (0..blocks).step_by(256) {
        let len = (blocks - at).min(256) * BLOCK;
        fs.write(ino, at * BLOCK, &vec![1; len as usize], IoFlags::empty()).unwrap();
    }
    ino
}

/// A file whose segments are half valid, unless they are written in place.
fn worn(fs: &dyn FileSystem) {
    let ino = written(fs, "worn", WORN);
    fs.sync().unwrap();
    for at in (0..WORN).step_by(2) {
        fs.write(ino, at * BLOCK, &[2; BLOCK as usize], IoFlags::empty()).unwrap();
    }
    fs.sync().unwrap();
}

/// The files that were fsynced after the last checkpoint.
fn rolled_forward(given: &Given<'_>) -> String {
    let device = given.fresh();
    let fs = given.plain(device.clone());
    let ino = written(&*fs, "file", 1);
    fs.sync().unwrap();
    fs.write(ino, BLOCK, &[2; 8192], IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, false).unwrap();
    let fs = given.open(Arc::new(device.fork()));
    let size = fs.lookup(fs.root(), b"file").unwrap().size;
    format!("{size} bytes")
}

/// Which calls succeed after a call has met an inode with a damaged record.
fn after_damage(given: &Given<'_>) -> String {
    let device = given.fresh();
    let fs = open(device.clone(), Simulated::new(2), "");
    let nid = Nid::of(written(&*fs, "victim", 1)).unwrap();
    fs.unmount().unwrap();
    let at = fs.disk().nat.lookup(nid).unwrap().block_addr.bytes();
    // A byte of the access time. Only the checksum detects the damage.
    let mut block = device.read_at(at, 4096).unwrap();
    block[32] ^= 0x55;
    device.write_at(at, block).unwrap();
    let fs = given.open(device);
    fs.lookup(fs.root(), b"victim").expect_err("it is damaged");
    let made = fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT);
    made.map_or_else(|error| error.to_string(), |_| "made".into())
}

/// The addresses of a small volume's blocks after they are overwritten.
fn overwritten(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    worn(&*fs);
    format!("in place: {}", fs.report().u64("store.segments.in_place").unwrap() > 0)
}

fn gc(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.report().u64(&format!("gc.{name}")).unwrap()
}

/// The blocks that foreground cleaning moves. Many small files have nodes that it could clean, too.
fn cleaned_for_room(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    for number in 0..SMALL {
        written(&*fs, &format!("small {number}"), 1);
    }
    fs.sync().unwrap();
    for number in (0..SMALL).step_by(2) {
        fs.unlink(fs.root(), format!("small {number}").as_bytes()).unwrap();
    }
    worn(&*fs);
    until_full(&*fs);
    format!(
        "{} data blocks and {} nodes moved",
        gc(&*fs, "data_blocks_moved"),
        gc(&*fs, "node_blocks_moved")
    )
}

fn until_full(fs: &dyn FileSystem) {
    let ino = create(fs, "fill");
    let mut at = 0;
    while fs.write(ino, at * BLOCK, &[3; 64 * BLOCK as usize], IoFlags::empty()).is_ok() {
        at += 64;
    }
    assert!(at > 100, "{at} blocks fitted");
    fs.sync().unwrap();
}

/// The sections that are cleaned while the volume is idle.
fn cleaned_when_idle(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    worn(&*fs);
    given.runtime.advance(Duration::from_secs(600));
    format!("cleaned: {}", gc(&*fs, "calls_bg") > 0 && gc(&*fs, "data_sections") > 0)
}

/// The sections that are cleaned on an old volume whose blocks are all young.
fn cleaned_although_young(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    given.runtime.advance(Duration::from_secs(10 * 24 * 3600));
    let ino = written(&*fs, "young", WORN);
    fs.sync().unwrap();
    (0..WORN)
        .step_by(2)
        .for_each(|at| fs.allocate(ino, AllocateMode::PunchHole, at * BLOCK, BLOCK).unwrap());
    fs.sync().unwrap();
    given.runtime.advance(Duration::from_secs(1000));
    format!("cleaned: {}", gc(&*fs, "data_sections") > 0)
}

/// The thread that cleans for writers.
fn cleaner(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    worn(&*fs);
    until_full(&*fs);
    format!("the daemon: {}", gc(&*fs, "rounds_merged") > 0)
}

/// The room that root has on a volume that another user has filled.
fn left_by_users(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    let ino = create(&*fs, "file");
    let (mut size, mut piece) = (0, 4096 * BLOCK);
    while piece >= BLOCK {
        let made =
            root_reserved::denied_if(true, || fs.allocate(ino, AllocateMode::Extend, size, piece));
        match made {
            Ok(()) => size += piece,
            Err(Error::NoSpace) => piece /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    let stats = fs.statfs().unwrap();
    let left = (fs.room(true) / BLOCK).next_multiple_of(100);
    format!("{left} blocks, {} of them for others", stats.available_blocks.min(1))
}

/// The users beside root who may use root-reserved blocks.
fn reserved_for(given: &Given<'_>) -> String {
    format!("{:?}", given.open(given.fresh()).reserved_for().unwrap())
}

/// The thread that writes checkpoints.
fn merged(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    create(&*fs, "file");
    fs.sync().unwrap();
    let report = fs.report();
    format!("merged: {}", report.u64("store.ckpt.issued").unwrap() > 0)
}

/// The contents after a sync and a power cut.
fn final_after_sync(given: &Given<'_>) -> String {
    let device = given.fresh();
    let fs = given.open(device.clone());
    written(&*fs, "file", 1);
    fs.sync().unwrap();
    given.is_on(&device, "file")
}

#[test]
fn every_option_changes_something() {
    let fresh = f2fs_in_memory(128 << 20, &["-O", "extra_attr,inode_checksum"]);
    judge(MountOptions::TABLE.settings(), EFFECTS, &fresh, &|device, runtime, options| {
        open(device, runtime, options)
    });
}
