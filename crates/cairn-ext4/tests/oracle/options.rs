//! Every mount option has an effect: the cases for [`cairn_testkit::options`].

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::{Ext4, MountOptions};
use cairn_testkit::crash::read_image;
use cairn_testkit::damage::flip;
use cairn_testkit::judge::mke2fs;
use cairn_testkit::options::{
    Effect, Given, access_times, after_seconds, discards, folios, judge, mappings, memory, writing,
};
use cairn_vfs::{AllocateMode, Caller, FileSystem, NewInode, SetAttributes};

fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>, options: &str) -> Arc<Ext4> {
    let options = MountOptions::parse(options).unwrap_or_else(|error| panic!("{options}: {error}"));
    Ext4::open(device, runtime, &options).unwrap()
}

const EFFECTS: &[Effect] = &[
    Effect::live("", "ro", writing),
    Effect::live("ro", "rw", writing),
    Effect::at_mount("ro", "noload", replayed),
    Effect::at_mount("ro", "norecovery", replayed),
    Effect::at_mount("", "sb=8193", writing),
    Effect::live("", "commit=30", |given| after_seconds(given, 10)),
    Effect::live("", "noatime", access_times),
    Effect::live("noatime", "relatime", access_times),
    Effect::live("", "discard", discards),
    Effect::live("discard", "nodiscard", discards),
    Effect::live("", "grpid", group),
    Effect::live("", "bsdgroups", group),
    Effect::live("grpid", "nogrpid", group),
    Effect::live("bsdgroups", "sysvgroups", group),
    Effect::live("", "stripe=48", beginnings),
    Effect::live("", "reserved_clusters=2", available),
    Effect::live("reserved_clusters=2", "reserved_clusters=auto", available),
    Effect::live("", "minixdf", size),
    Effect::live("minixdf", "bsddf", size),
    Effect::live("", "cache=4M", memory),
    Effect::live("", "nobuffered_iomap", mappings),
    Effect::live("nobuffered_iomap", "buffered_iomap", mappings),
    Effect::live("", "max_folio=4K", folios),
    Effect::live("noasync_checkpoint", "async_checkpoint", ahead),
    Effect::live("noasync_checkpoint", "async_checkpoint=70", ahead),
    Effect::live("async_checkpoint", "noasync_checkpoint", ahead),
    Effect::live("", "checkpoint_clean=scan", looks),
    Effect::live("checkpoint_clean=scan", "checkpoint_clean=bail_out", looks),
    Effect::live("checkpoint_clean=scan", "checkpoint_clean=counted", looks),
    Effect::live("", "errors=remount-ro", after_damage),
    Effect::live("", "errors=panic", after_damage),
    Effect::live("errors=panic", "errors=continue", after_damage),
    Effect::live("", "resuid=77", reserved_for),
    Effect::live("", "resgid=88", reserved_for),
];

fn directories(fs: &dyn FileSystem, count: usize) {
    for number in 0..count {
        let name = format!("d{number}");
        fs.create(fs.root(), name.as_bytes(), NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
        fs.sync().unwrap();
    }
}

/// The contents after the replay of the journal only.
fn replayed(given: &Given<'_>) -> String {
    let device = given.fresh();
    let fs = given.plain(device.clone());
    directories(&*fs, 3);
    let fs = given.open(Arc::new(device.fork()));
    fs.lookup(fs.root(), b"d2").map_or_else(|error| error.to_string(), |_| "found".into())
}

/// The size in `df`.
fn size(given: &Given<'_>) -> String {
    given.open(given.fresh()).statfs().unwrap().blocks.to_string()
}

/// What `df` says is available.
fn available(given: &Given<'_>) -> String {
    given.open(given.fresh()).statfs().unwrap().available_blocks.to_string()
}

/// The first blocks of files of more than 48 blocks.
fn beginnings(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    let mut aligned = 0;
    for number in 0..8 {
        let name = format!("f{number}");
        let made =
            fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
        let block = u64::from(fs.statfs().unwrap().block_size);
        fs.allocate(made.ino, AllocateMode::Extend, 0, 49 * block).unwrap();
        fs.extents(made.ino, 0, 1, false, &mut |extent| {
            aligned += u32::from(extent.physical.is_multiple_of(48 * block));
            false
        })
        .unwrap();
    }
    if aligned == 8 { "all at multiples of 48".into() } else { "anywhere".into() }
}

/// The users beside root who may use root-reserved blocks.
fn reserved_for(given: &Given<'_>) -> String {
    format!("{:?}", given.open(given.fresh()).reserved_for().unwrap())
}

/// The group of a file that group 5 makes in a directory of group 77.
fn group(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    fs.setattr(fs.root(), &SetAttributes { gid: Some(77), ..Default::default() }).unwrap();
    let caller = Caller { gid: 5, ..Caller::ROOT };
    let made = fs.create(fs.root(), b"made", NewInode::Regular, 0o644, &caller).unwrap();
    format!("group {}", made.gid)
}

/// Whether the journal is checkpointed before it is full.
fn ahead(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    directories(&*fs, 100);
    // The last commit, and a rest.
    given.runtime.advance(Duration::from_secs(10));
    format!("runs ahead: {}", fs.report().u64("journal.checkpoint.async_runs").unwrap() > 0)
}

/// The number of visited transactions in the checkpoint list.
fn looks(given: &Given<'_>) -> String {
    let fs = given.open(given.fresh());
    directories(&*fs, 100);
    let report = fs.report();
    format!(
        "{} looks in {} calls",
        report.u64("journal.clean_steps").unwrap(),
        report.u64("journal.clean_calls").unwrap()
    )
}

/// Which calls succeed after a call has met an inode with a damaged record.
fn after_damage(given: &Given<'_>) -> String {
    let device = given.fresh();
    let record = {
        let fs = open(device.clone(), Simulated::new(2), "");
        directories(&*fs, 1);
        let found: Ino = fs.lookup(fs.root(), b"d0").unwrap().ino;
        fs.unmount().unwrap();
        fs.record_at(found).unwrap()
    };
    // A byte of the access time. Only the checksum detects the damage.
    flip(&device, record + 8);
    let fs = given.open(device);
    fs.lookup(fs.root(), b"d0").expect_err("it is damaged");
    let made = fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT);
    made.map_or_else(|error| error.to_string(), |_| "made".into())
}

#[test]
fn every_option_changes_something() {
    let file = tempfile::NamedTempFile::new().unwrap();
    mke2fs(file.path(), 24 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let fresh: MemoryDevice = read_image(file.path()).unwrap();
    judge(MountOptions::TABLE.settings(), EFFECTS, &fresh, &|device, runtime, options| {
        open(device, runtime, options)
    });
}
