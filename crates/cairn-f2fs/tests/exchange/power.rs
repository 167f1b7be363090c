//! Power cuts after fsyncs of Linux and of Cairn. Both sides replay each image, and both must find
//! the same tree.

use std::path::PathBuf;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_testkit::crash::{CrashLog, Cut, Recording, Volatile, read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{assert_f2fs_clean, assert_f2fs_device_clean};
use cairn_testkit::tree::{Snapshot, Synced, VolumeTarget, build};
use cairn_testkit::vm::{Job, Vm};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::support::{Kind, check, disk, line, open, promise, promised, snapshot};

const EXTRA: &str =
    "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found";

/// Kinds of the ordinary run. Together they have each mode of a volume without zones. With
/// `fastboot`, each fsync makes a checkpoint: then nothing is replayed before the check.
const COMMON: [Kind; 4] = [
    Kind::new("default", 128, &[]),
    Kind {
        linux: "noinline_xattr",
        ours: "nocheckpoint_merge,gc_victim=greedy",
        ..Kind::new("extra attributes", 128, &["-O", EXTRA])
    },
    Kind {
        linux: "mode=lfs",
        ours: "mode=lfs,gc_victim=data_first,gc_merge",
        ..Kind::new("in order", 128, &[])
    },
    Kind { linux: "fastboot", ours: "nobuffered_iomap", ..Kind::new("fastboot", 128, &[]) },
];

/// Further kinds of long runs.
const RARE: [Kind; 8] = [
    Kind { linux: "mode=lfs", ours: "mode=lfs", ..Kind::new("large sections", 512, &["-s", "4"]) },
    Kind {
        linux: "fsync_mode=strict",
        ours: "cache=1M",
        ..Kind::new("zones", 512, &["-s", "2", "-z", "2"])
    },
    Kind {
        linux: "alloc_mode=reuse,noinline_data,noinline_dentry",
        ..Kind::new("large NAT bitmap", 256, &["-i"])
    },
    Kind { linux: "active_logs=4,noinline_xattr", ..Kind::new("four logs", 128, &["-O", EXTRA]) },
    Kind {
        linux: "noextent_cache,nolazytime",
        ..Kind::new("project quota", 128, &["-O", "extra_attr,project_quota"])
    },
    Kind {
        linux: "compress_algorithm=lz4",
        ..Kind::new("compression", 128, &["-O", "extra_attr,compression"])
    },
    Kind::new("android", 128, &["-O", "encrypt,verity,extra_attr,casefold", "-C", "utf8:strict"]),
    Kind { ours: "max_folio=4K,nodiscard", ..Kind::new("full", 64, &[]) },
];

/// Images after a power cut, the trees that Cairn finds in them, and the trees that must be in
/// them. One boot replays them all.
struct Cuts {
    directory: tempfile::TempDir,
    cuts: Vec<CutImage>,
}

struct CutImage {
    name: String,
    kind: Kind,
    image: PathBuf,
    ours: Snapshot,
}

impl Cuts {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), cuts: Vec::new() }
    }

    /// Replays an image with Cairn, in memory and on the image. `promised` is the tree that was
    /// fsynced before the cut.
    fn add(
        &mut self,
        name: String,
        kind: Kind,
        device: &MemoryDevice,
        promised: Option<&Snapshot>,
    ) {
        let overlaid = open(Arc::new(device.fork()), "ro");
        let ours = snapshot(&*overlaid);
        if let Some(promised) = promised {
            assert_eq!(
                promised.diff(&promise(&*overlaid)),
                "",
                "{name}: what was fsynced, read-only"
            );
        }
        let replayed = Arc::new(device.fork());
        let fs = kind.open(replayed.clone());
        assert_eq!(
            timeless(&ours).diff(&timeless(&snapshot(&*fs))),
            "",
            "{name}: read-only and replayed"
        );
        fs.create(fs.root(), b"later", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
        fs.unmount().unwrap();
        judge_uncounted(&replayed);
        let image = self.directory.path().join(self.cuts.len().to_string());
        write_image(device, &image).unwrap();
        self.cuts.push(CutImage { name, kind, image, ours });
    }

    /// Linux replays the same images.
    fn replayed_by_linux(self) {
        let (mut vm, mut script) = (Vm::new().agent(), String::new());
        for (index, cut) in self.cuts.iter().enumerate() {
            vm = vm.disk(&cut.image);
            let (digest, options) = (line(&Job::DigestAll("/mnt".into())), cut.kind.linux);
            script +=
                &format!("mount -t f2fs -o {options} {} /mnt\n{digest}umount /mnt\n", disk(index));
        }
        let text = vm.check(&script);
        let found = Job::snapshots(&text);
        assert_eq!(found.len(), self.cuts.len(), "{text}");
        for (cut, found) in self.cuts.iter().zip(found) {
            let difference = comparable(&cut.ours).diff(&comparable(&found));
            assert_eq!(difference, "", "{}: replayed by us and by Linux", cut.name);
            assert_f2fs_clean(&cut.image);
            let device = Arc::new(read_image(&cut.image).unwrap());
            let fs = cut.kind.open(device.clone());
            let (found, read) = (without_reserved(&found), without_reserved(&snapshot(&*fs)));
            assert_eq!(found.diff(&read), "", "{}: what Linux replayed", cut.name);
            fs.create(fs.root(), b"later", NewInode::Directory, 0o755, &Caller::ROOT).unwrap();
            fs.unmount().unwrap();
            judge_uncounted(&device);
        }
    }
}

/// The replay of a name changes the times of its directory.
fn timeless(snapshot: &Snapshot) -> Snapshot {
    snapshot.clone().without_times_of_directories_and(b"\0")
}

/// Linux's replay keeps the direct nodes behind the end of a truncated file; Cairn frees them.
fn comparable(snapshot: &Snapshot) -> Snapshot {
    without_reserved(&timeless(snapshot))
        .without_fact("sectors", |path, _| matches!(path, b"cut" | b"emptied"))
}

/// A reserved block without an address, as a checkpoint leaves it of a file with dirty pages, is a
/// hole for Cairn; `SEEK_HOLE` of Linux passes it.
fn without_reserved(snapshot: &Snapshot) -> Snapshot {
    snapshot.clone().without_fact("data", |path, _| path == b"loose/file")
}

/// The check after Cairn's work, which counts no quota.
fn check_uncounted(image: &MemoryDevice) -> Result<(), String> {
    let found = check(image).err().unwrap_or_default();
    let is_other = |line: &&str| !line.starts_with("f2fs.quota.counts");
    let others: Vec<&str> = found.lines().filter(is_other).collect();
    if others.is_empty() { Ok(()) } else { Err(others.join("\n")) }
}

/// Asserts that fsck.f2fs and the check find nothing after Cairn's work.
#[track_caller]
fn judge_uncounted(image: &MemoryDevice) {
    assert_f2fs_device_clean(image);
    assert_eq!(check_uncounted(image), Ok(()));
}

/// A checkpoint with directories that were removed while they are open: one with inline names, and
/// one with blocks.
fn removed_while_open(point: &str, index: usize) -> String {
    format!(
        "cd {point}\nmkdir removed-names removed-blocks\n\
         (cd removed-blocks; for n in $(seq 300); do : > a-name-$n; done; rm a-name-*)\n\
         (exec 3<removed-names 4<removed-blocks; rmdir removed-*; : > /removed.{index}
         sleep 1000) &\n\
         cd /\nwhile [ ! -e /removed.{index} ]; do sleep 0.1; done\nsync\n"
    )
}

/// Linux makes changes on a volume of each kind, syncs them one by one, and is reset.
fn cut_linux(kinds: &[Kind], seed: u64, cuts: &mut Cuts) {
    let directory = tempfile::tempdir().unwrap();
    let (mut vm, mut script, mut loose) = (Vm::new().agent(), String::new(), String::new());
    for (index, kind) in kinds.iter().enumerate() {
        let image = directory.path().join(index.to_string());
        kind.make(&image);
        vm = vm.disk(&image);
        let (point, seed) = (format!("/mnt/{index}"), seed + index as u64);
        script +=
            &format!("mkdir {point}\nmount -t f2fs -o {} {} {point}\n", kind.linux, disk(index));
        for job in [
            Job::Before(seed, point.clone()),
            Job::Synced(seed, point.clone()),
            Job::Digest(point.clone()),
        ] {
            script += &line(&job);
            if matches!(job, Job::Before(..)) {
                script += &removed_while_open(&point, index);
            }
        }
        loose += &line(&Job::Loose(seed, point));
    }
    let output = vm.crash_after(&format!("{script}{loose}echo now\nsleep 100\n"), "now");
    let digests = Job::snapshots(&output.text);
    assert_eq!(digests.len(), kinds.len(), "{}", output.describe());
    for (index, (kind, digest)) in kinds.iter().zip(digests).enumerate() {
        let device = read_image(&directory.path().join(index.to_string())).unwrap();
        let name = format!("{}, cut after Linux synced (seed {})", kind.name, seed + index as u64);
        let info = cairn_f2fs::inspect(&(Arc::new(device.fork()) as _)).unwrap().unwrap();
        assert!(
            info.state == "needs roll-forward" || kind.linux == "fastboot",
            "{name}: {}",
            info.state
        );
        assert_eq!(check(&device), Ok(()), "{name}: before a replay");
        cuts.add(name, *kind, &device, Some(&promised(digest)));
    }
}

/// Cairn makes the same changes on a volume of each kind, and all unflushed writes are lost. Long
/// runs also cut the power in the middle.
fn cut_ours(kinds: &[Kind], seed: u64, cuts: &mut Cuts) {
    for (kind, seed) in kinds.iter().zip(seed..) {
        let recording = Recording::start(kind.in_memory());
        let fs = kind.open(recording.device());
        let Synced { before, changes, loose } = Synced::new(seed);
        build(&VolumeTarget::new(&*fs), &before);
        build(&VolumeTarget::new(&*fs), &changes);
        let promised = promise(&*fs);
        assert!(fs.fsync_stats().nodes.get() > 0, "{}: no fsync without a checkpoint", kind.name);
        build(&VolumeTarget::new(&*fs), &loose);
        fs.shutdown(false).unwrap();
        drop(fs);
        let log: CrashLog = recording.finish();
        let end = Cut { moment: log.log().end, volatile: Volatile::Lost };
        let mut add = |cut: Cut, promised: Option<&Snapshot>| {
            let name = format!("{}, {cut} of our work (seed {seed})", kind.name);
            let device = log.device(cut);
            assert_eq!(check_uncounted(&device), Ok(()), "{name}: before a replay");
            cuts.add(name, *kind, &device, promised);
        };
        add(end, Some(&promised));
        for cut in log.random_cuts(if deep() { 2 } else { 0 }, seed) {
            add(cut, None);
        }
    }
}

#[test]
fn what_one_side_fsynced_before_its_power_failed_the_other_replays() {
    let mut cuts = Cuts::new();
    cut_linux(&COMMON, 1, &mut cuts);
    cut_ours(&COMMON, 6, &mut cuts);
    cuts.replayed_by_linux();
}

#[test]
fn every_kind_of_volume_is_replayed_in_many_orders() {
    if !deep() {
        return;
    }
    for round in 0..3 {
        let kinds: Vec<Kind> = COMMON.into_iter().chain(RARE).collect();
        for kinds in kinds.chunks(4) {
            let mut cuts = Cuts::new();
            cut_linux(kinds, 1000 * round + 11, &mut cuts);
            cut_ours(kinds, 1000 * round + 501, &mut cuts);
            cuts.replayed_by_linux();
        }
    }
}
