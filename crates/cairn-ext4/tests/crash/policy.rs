//! How errors affect later calls: the checks for ext4 and F2FS ([`cairn_testkit::policy`]), and
//! those for ext4 only: defaults and errors in the superblock, and its two records of orphans.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::damage::flip;
use cairn_testkit::judge::{KernelMount, assert_clean, dumpe2fs, e2fsck_preen};
use cairn_testkit::policy::{self, Record, Subject};
use cairn_vfs::{Caller, Error, FileSystem, NewInode};

use crate::run::{format, open, shm};

const SUMS: &[&str] = &["-t", "ext4", "-b", "4096", "-J", "size=4"];
const KINDS: &[&[&str]] = &[
    SUMS,
    &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum"],
    &["-t", "ext2", "-b", "1024"],
];
const ORPHANS: [&[&str]; 2] = [
    &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "^orphan_file"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "orphan_file"],
];

/// Volumes that mke2fs makes with these arguments.
struct Kind(&'static [&'static str]);

impl Subject for Kind {
    fn name(&self) -> String {
        format!("{:?}", self.0)
    }

    fn fresh(&self) -> Arc<MemoryDevice> {
        Arc::new(format(shm().path(), self.0, 16))
    }

    fn open(&self, device: Arc<dyn BlockDevice>, options: &str) -> Arc<dyn FileSystem> {
        open(device, Simulated::new(1), options)
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.0))
    }

    fn record(&self, device: &MemoryDevice, ino: Ino) -> Record {
        record_of(&open(Arc::new(device.fork()), Simulated::new(1), "ro").unwrap(), ino)
    }

    fn judge(&self, device: &MemoryDevice) {
        let dir = shm();
        let image = dir.path().join("left");
        write_image(device, &image).unwrap();
        assert_clean(&image);
    }

    fn asks_for_check(&self, device: &MemoryDevice) -> bool {
        let dir = shm();
        let image = dir.path().join("left");
        write_image(device, &image).unwrap();
        dumpe2fs(&image).contains("with errors")
    }

    fn check_record_of_stop(&self, device: &MemoryDevice, damage: bool) {
        let (ino, code, by) = match damage {
            true => ("12", "EFSBADCRC", "cairn: inode"),
            false if self.0.contains(&"ext2") => ("0", "EIO", "cairn: metadata"),
            false => ("0", "EIO", "cairn: journal"),
        };
        check_record(self, device, 1, &[ino, code, by]);
    }

    fn is_in_superblock(&self, at: u64) -> bool {
        (1024..2048).contains(&at)
    }
}

/// Asserts that the superblock records errors, with these words. The record stays after recovery by
/// e2fsck, Linux or Cairn, and e2fsck checks the whole volume.
fn check_record(kind: &Kind, device: &MemoryDevice, errors: u32, words: &[&str]) {
    let count = format!("FS Error count:           {errors}\n");
    let by_us = Arc::new(device.fork());
    kind.open(by_us.clone(), "").unmount().unwrap();
    let by_linux = device.fork();
    let dir = shm();
    let image = dir.path().join("linux");
    write_image(&by_linux, &image).unwrap();
    KernelMount::new(&image, "").unmount();
    let by_linux = read_image(&image).unwrap();
    for (by, device) in [("nobody", device), ("Cairn", &*by_us), ("Linux", &by_linux)] {
        let head = seen(device);
        for word in words.iter().chain(&[&*count]) {
            assert!(head.contains(word), "{}, mounted by {by}: no {word} in\n{head}", kind.name());
        }
    }
}

pub fn record_of(fs: &Ext4, ino: Ino) -> Record {
    let at = fs.record_at(ino).unwrap();
    Record { at, checked: at + 8 }
}

#[test]
fn a_sector_that_cannot_be_written_concerns_its_file() {
    KINDS
        .iter()
        .for_each(|kind| policy::a_sector_that_cannot_be_written_concerns_its_file(&Kind(kind)));
}

#[test]
fn a_sector_that_cannot_be_read_is_an_answer() {
    KINDS.iter().for_each(|kind| policy::a_sector_that_cannot_be_read_is_an_answer(&Kind(kind)));
}

#[test]
fn damage_that_was_only_looked_at_is_noted() {
    policy::damage_that_was_only_looked_at_is_noted(&Kind(SUMS));
}

#[test]
fn the_first_damage_stops_a_volume_that_asks_for_it() {
    policy::the_first_damage_stops_a_volume_that_asks_for_it(&Kind(SUMS));
}

#[test]
fn a_failed_write_of_metadata_is_recorded() {
    KINDS.iter().for_each(|kind| policy::a_failed_write_of_metadata_is_recorded(&Kind(kind)));
}

/// The orphan is left for e2fsck, as in Linux.
#[test]
fn an_orphan_on_a_bad_sector_does_not_prevent_the_mount() {
    for kind in ORPHANS {
        preen(&policy::an_orphan_on_a_bad_sector_does_not_prevent_the_mount(&Kind(kind)));
    }
}

#[test]
fn an_fsync_after_a_shutdown_fails() {
    KINDS.iter().for_each(|kind| policy::an_fsync_after_a_shutdown_fails(&Kind(kind)));
}

/// The kernel mounts it.
fn mounts_in_linux(device: &MemoryDevice) {
    let dir = shm();
    let image = dir.path().join("before");
    write_image(device, &image).unwrap();
    KernelMount::new(&image, "").unmount();
}

/// Repairs with `e2fsck -p`. Returns the earlier output of `dumpe2fs -h` and that of e2fsck.
fn preen(device: &MemoryDevice) -> (String, String) {
    let dir = shm();
    let image = dir.path().join("left");
    write_image(device, &image).unwrap();
    let head = dumpe2fs(&image);
    let verdict = e2fsck_preen(&image);
    assert!((0..=1).contains(&verdict.status), "{}: {}", verdict.status, verdict.output);
    assert_clean(&image);
    (head, verdict.output)
}

/// The same for a volume that asks for a check. Returns the output of `dumpe2fs -h`.
fn seen(device: &MemoryDevice) -> String {
    let (head, output) = preen(device);
    assert!(output.contains("file system with errors, check forced"), "{output}");
    head
}

/// Linux also mounts such a volume. e2fsck then finds only the orphan.
#[test]
fn a_damaged_orphan_does_not_prevent_the_mount() {
    for kind in ORPHANS {
        let (before, record) = policy::with_orphan(&Kind(kind));
        flip(&before, record.checked);
        mounts_in_linux(&before);
        let head = seen(&policy::a_damaged_orphan_does_not_prevent_the_mount(&Kind(kind)));
        assert!(
            head.contains("clean with errors") && !head.contains("First orphan"),
            "{kind:?}: {head}"
        );
    }
}

/// The same for a list in the superblock with an impossible head.
#[test]
fn a_bad_head_of_the_orphan_list_does_not_prevent_the_mount() {
    let dir = shm();
    let image = dir.path().join("bad head");
    write_image(&Kind(SUMS).fresh(), &image).unwrap();
    cairn_testkit::judge::run(
        "debugfs",
        ["-w", "-R", "set_super_value last_orphan 99999", image.to_str().unwrap()],
    );
    let device = Arc::new(read_image(&image).unwrap());
    mounts_in_linux(&device);
    let simulated = Simulated::new(1);
    let fs = open(device.clone(), simulated.clone(), "").unwrap();
    simulated.run_until_idle();
    assert_eq!(fs.read_only_reason(), None);
    fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let head = seen(&device);
    assert!(head.contains("clean with errors") && !head.contains("First orphan"), "{head}");
}

/// The superblock records errors and their number, as in Linux.
#[test]
fn a_damaged_inode_is_noted_and_loses_nothing_of_others() {
    let device = policy::a_damaged_inode_is_noted_and_loses_nothing_of_others(&Kind(SUMS));
    let head = seen(&device);
    for line in [
        "clean with errors",
        "FS Error count:           2",
        "First error inode #:      12",
        "EFSBADCRC",
    ] {
        assert!(head.contains(line), "no {line} in\n{head}");
    }
}

/// `tune2fs -e`: the superblock's default applies unless an option overrides it, and the journal
/// records the error for e2fsck.
#[test]
fn the_first_damage_stops_a_volume_whose_superblock_asks_for_it() {
    for (wish, options, stops) in [
        (&["-t", "ext4", "-b", "4096", "-J", "size=4", "-e", "remount-ro"][..], "", true),
        (&["-t", "ext4", "-b", "4096", "-J", "size=4", "-e", "panic"], "", true),
        (&["-t", "ext4", "-b", "4096", "-J", "size=4", "-e", "panic"], "errors=remount-ro", true),
        (
            &["-t", "ext4", "-b", "4096", "-J", "size=4", "-e", "remount-ro"],
            "errors=continue",
            false,
        ),
    ] {
        let device = policy::with_damaged_inode(&Kind(wish));
        let fs = Kind(wish).open(device.clone(), options);
        policy::look_at_victim(&*fs);
        let told =
            fs.create(fs.root(), b"later", NewInode::Regular, 0o644, &Caller::ROOT).map(drop);
        assert_eq!(matches!(told, Err(Error::ReadOnly(_))), stops, "{wish:?}, {options}: {told:?}");
        assert_eq!(matches!(fs.unmount(), Err(Error::Io(_))), stops, "{wish:?}, {options}");
        drop(fs);
        let cut = wish.contains(&"panic") && options.is_empty();
        if !cut {
            seen(&device);
        }
    }
}

/// The device fails in a commit of the daemon, for which no call waits. The next change is refused,
/// and the error is recorded.
#[test]
fn an_abort_in_the_background_is_recorded() {
    let kind = Kind(SUMS);
    let device = kind.fresh();
    let fault = Arc::new(Fault::new(device.clone()));
    let simulated = Simulated::new(1);
    let fs = open(fault.clone(), simulated.clone(), "").unwrap();
    let create = |name| fs.create(fs.root(), name, NewInode::Regular, 0o644, &Caller::ROOT);
    create(b"early").unwrap();
    fault.fail(Operation::Write, fault.count(Operation::Write) + 1, Lasting::Once);
    simulated.advance(Duration::from_secs(60));
    let told = create(b"later").map(drop);
    assert!(matches!(told, Err(Error::ReadOnly(_))), "{told:?}");
    check_record(&kind, &device, 1, &["EIO", "cairn: journal"]);
}

/// The first error is recorded in a transaction; the last one stops the volume. The log contains an
/// older superblock, which must not replace the record.
#[test]
fn a_record_of_errors_outlives_the_replay() {
    for (options, words) in [
        ("errors=remount-ro", &["First error inode #:      12", "EFSBADCRC"]),
        ("errors=panic", &["First error inode #:      12", "EFSBADCRC"]),
    ] {
        let kind = Kind(ORPHANS[0]);
        let device = policy::with_damaged_inode(&kind);
        let simulated = Simulated::new(1);
        let fs = open(device.clone(), simulated.clone(), "errors=continue").unwrap();
        policy::look_at_victim(&*fs);
        simulated.run_until_idle();
        // The superblock has its number, as the head of the orphan list.
        fs.tmpfile(fs.root(), 0o644, &Caller::ROOT).unwrap();
        fs.sync().unwrap();
        fs.remount(options).unwrap();
        policy::look_at_victim(&*fs);
        assert!(fs.read_only_reason().is_some(), "{options}");
        check_record(&kind, &device, 2, words);
    }
}
