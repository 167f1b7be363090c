//! Devices that fail under a mount: an image in a small filesystem that is full when the image's
//! holes are written, an image that is truncated; and damage that a call meets.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cairn_testkit::judge;
use serde_json::Value;

use crate::fixture::{CAIRN, Volume};

/// Holds what the image has, and a few files more.
const ROOM: &str = "size=40m";
const EIO: i32 = 5;
const EROFS: i32 = 30;
const ENOSPC: i32 = 28;
/// Exit status: the device or image failed to read or write.
const IO_STATUS: i32 = 7;

/// A filesystem in memory, in which the image of a volume is moved.
struct Tight(PathBuf);

impl Tight {
    fn around(volume: &Volume) -> Self {
        let (point, image) = (volume.outside("tight"), volume.image());
        fs::create_dir(&point).unwrap();
        judge::run(
            "mount",
            [
                Path::new("-t"),
                Path::new("tmpfs"),
                Path::new("-o"),
                Path::new(ROOM),
                Path::new("tight"),
                &point,
            ],
        );
        let tight = Self(point);
        let moved = tight.0.join("image");
        judge::run("cp", [Path::new("--sparse=always"), &image, &moved]);
        fs::remove_file(&image).unwrap();
        symlink(&moved, &image).unwrap();
        tight
    }

    /// Fills it: only blocks that exist already can be written from now on.
    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn write_synced(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&[6; 9000])?;
    file.sync_all()
}

/// Changes only metadata, and writes it to the device.
fn make_synced(root: &Path, name: &str) -> std::io::Result<()> {
    fs::create_dir(root.join(name))?;
    File::open(root)?.sync_all()
}

fn state(volume: &Volume) -> Value {
    let output = Command::new(CAIRN).args(["stats", "--json"]).arg(volume.root()).output().unwrap();
    let stats: Value = serde_json::from_slice(&output.stdout).unwrap();
    stats["state"].clone()
}

#[test]
fn a_failed_journal_stays_read_only_and_says_why() {
    let mut volume = Volume::make(64 << 20, &[]);
    let tight = Tight::around(&volume);
    fails_and_recovers(&mut volume, &tight, "journal_aborted");
}

#[test]
fn a_failed_checkpoint_stays_read_only_and_says_why() {
    let mut volume = Volume::f2fs(64 << 20, "");
    volume.unmount();
    let tight = Tight::around(&volume);
    fails_and_recovers(&mut volume, &tight, "read_only_reason");
}

/// Writes until the device fails; from then on the volume is read-only, and says so. `cause` is
/// where its counters tell which write it was.
fn fails_and_recovers(volume: &mut Volume, tight: &Tight, cause: &str) {
    volume.mount("");
    fs::write(volume.path("kept"), vec![5; 200_000]).unwrap();
    File::open(volume.path("kept")).unwrap().sync_all().unwrap();
    File::open(volume.root()).unwrap().sync_all().unwrap();
    assert_eq!(state(volume)["mode"], "rw");
    let mut open = File::create(volume.path("open")).unwrap();
    tight.fill();
    let error =
        (0..5000).find_map(|number| make_synced(&volume.root(), &format!("synced {number}")).err());
    let error = error.expect("the device cannot be written").raw_os_error();
    assert!(matches!(error, Some(EIO | EROFS)), "{error:?}");
    // The device works again. The volume cannot know what was lost, so it stays read-only.
    tight.empty();
    for attempt in 0..3 {
        let refused = fs::create_dir(volume.path(&format!("dir {attempt}"))).unwrap_err();
        assert!(matches!(refused.raw_os_error(), Some(EIO | EROFS)), "{refused}");
    }
    let refused = open.write(&[7; 100]).expect_err("the kernel is to take no more");
    assert!(matches!(refused.raw_os_error(), Some(EIO | EROFS)), "{refused}");
    drop(open);
    assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
    let found = state(volume);
    assert_eq!(found["mode"], "ro", "{found}");
    let reason = found["read_only_reason"]
        .as_str()
        .unwrap_or_else(|| panic!("no reason: {found}"))
        .to_owned();
    assert!(
        found[cause].as_str().is_some_and(|text| text.contains("no space left on device")),
        "{found}"
    );
    let again =
        Command::new(CAIRN).args(["remount", "-o", "rw"]).arg(volume.root()).output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains(&reason), "{said} without {reason}");
    // `umount` reports it, and a daemon in the foreground ends with the same status, for both
    // formats.
    let (status, said, daemon) = volume.end_with_status();
    assert_eq!((status, daemon), (Some(IO_STATUS), Some(IO_STATUS)), "cairn umount said: {said}");
    assert!(
        said.contains("stopped") && !volume.log().is_empty(),
        "cairn umount: {said}; the daemon: {}",
        volume.log()
    );
    volume.mount("");
    assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
    fs::create_dir(volume.path("works again")).unwrap();
    // ext4 records the error in its superblock.
    volume.end();
    volume.judge();
}

/// The host's disk fills up under a sparse image, and no program calls fsync: a write fails before
/// memory is full of data that cannot be written. When there is room again, accepted data is
/// written, or the volume has stopped and says so.
#[test]
fn a_full_host_is_told_to_writers_and_memory_stays_bounded() {
    let f2fs = || {
        let mut volume = Volume::f2fs(512 << 20, "");
        volume.unmount();
        volume
    };
    for mut volume in [Volume::make(512 << 20, &[]), f2fs()] {
        let tight = Tight::around(&volume);
        volume.mount("cache=16M,nowriteback_cache");
        fs::write(volume.path("kept"), vec![5; 200_000]).unwrap();
        File::open(volume.path("kept")).unwrap().sync_all().unwrap();
        tight.fill();
        let mut file = File::create(volume.path("large")).unwrap();
        let told = (0..400).find_map(|_| file.write_all(&vec![7; 1 << 20]).err());
        let told = told.expect("the host takes nothing");
        assert!(matches!(told.raw_os_error(), Some(EIO | EROFS)), "{told}");
        let dirty = crate::fixture::stats(&volume.root())["cache"]["budget"]["dirty_bytes"]
            .as_u64()
            .unwrap();
        assert!(dirty <= 16 << 20, "{dirty} bytes are dirty");
        assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
        drop(file);
        tight.empty();
        // A commit that began while the host was full may still fail now.
        let (status, said, daemon) = volume.end_with_status();
        assert_eq!(status, daemon, "{said}");
        let stopped = status == Some(IO_STATUS) && said.contains("the volume has stopped");
        assert!(stopped || status == Some(0), "there is room again: {said}");
        volume.mount("");
        assert_eq!(fs::read(volume.path("kept")).unwrap(), vec![5; 200_000]);
        volume.end();
        volume.judge();
    }
}

/// The image is truncated while it is mounted: the daemon notices and reports it, and nothing is
/// written over it.
#[test]
fn an_image_that_is_truncated_under_a_mount_is_noticed() {
    const ADVICE: &str = "run `cairn check` on it";
    let f2fs = || {
        let mut volume = Volume::f2fs(64 << 20, "");
        volume.unmount();
        volume
    };
    for mut volume in [Volume::make(64 << 20, &[]), f2fs()] {
        volume.mount("");
        write_synced(&volume.path("before")).unwrap();
        File::options().write(true).open(volume.image()).unwrap().set_len(40 << 20).unwrap();
        let told = write_synced(&volume.path("after")).expect_err("the image is not whole");
        assert!(matches!(told.raw_os_error(), Some(EIO | EROFS)), "{told}");
        let told = make_synced(&volume.root(), "neither").expect_err("the image is not whole");
        assert!(matches!(told.raw_os_error(), Some(EIO | EROFS)), "{told}");
        assert_eq!(state(&volume)["mode"], "ro");
        let (status, said, daemon) = volume.end_with_status();
        assert_eq!((status, daemon), (Some(IO_STATUS), Some(IO_STATUS)), "{said}");
        assert!(said.contains("truncated while it is in use"), "{said}");
        assert!(said.contains(ADVICE) && said.matches("run ").count() == 1, "{said}");
        assert_eq!(
            fs::metadata(volume.image()).unwrap().len(),
            40 << 20,
            "it was made to look whole"
        );
    }
}

/// As before, without later writes: `umount` reports it.
#[test]
fn an_image_that_is_truncated_under_a_clean_mount_is_told_of_at_unmount() {
    let f2fs = || {
        let mut volume = Volume::f2fs(64 << 20, "");
        volume.unmount();
        volume
    };
    for mut volume in [Volume::make(64 << 20, &[]), f2fs()] {
        volume.mount("");
        File::options().write(true).open(volume.image()).unwrap().set_len(40 << 20).unwrap();
        let (status, said, daemon) = volume.end_with_status();
        assert_eq!((status, daemon), (Some(IO_STATUS), Some(IO_STATUS)), "{said}");
        assert!(said.contains("truncated while it is in use"), "{said}");
    }
}

/// An fsync failed because the host's disk is full. From then on writes without room fail, in that
/// file and in others. Periodic commits and checkpoints wait: they would find no room either and
/// stop the volume. When there is room again, writes succeed and nothing is missing.
#[test]
fn after_a_failed_fsync_the_next_writer_hears_of_it() {
    let f2fs = || {
        let mut volume = Volume::f2fs(512 << 20, "");
        volume.unmount();
        volume
    };
    for (mut volume, options) in [
        (Volume::make(512 << 20, &[]), "nowriteback_cache,commit=1"),
        (f2fs(), "nowriteback_cache,checkpoint_interval=1"),
        (f2fs(), "checkpoint_interval=1"),
    ] {
        let tight = Tight::around(&volume);
        volume.mount(options);
        let make = |name: &str| File::create(volume.path(name)).unwrap();
        let (first, second) = (make("first"), make("second"));
        for file in [&first, &second] {
            file.write_all_at(&[5; 5000], 0).unwrap();
            file.sync_all().unwrap();
        }
        tight.fill();
        first.write_all_at(&[6; 1_000_000], 5000).unwrap();
        let told = first.sync_all().expect_err("the host takes nothing");
        assert_eq!(told.raw_os_error(), Some(EIO), "{told}");
        // The kernel is told a moment later to ask before it takes a write.
        let patience = if options.contains("nowriteback_cache") { 1 } else { 200 };
        let refused = |file: &File, at: u64| {
            (0..patience).find_map(|round| {
                let told = file.write_all_at(&[7; 8192], at + round * 8192).err();
                std::thread::sleep(std::time::Duration::from_millis(if told.is_some() {
                    0
                } else {
                    5
                }));
                told
            })
        };
        for (file, at) in [(&first, 2_000_000), (&second, 5000)] {
            let told = refused(file, at)
                .unwrap_or_else(|| panic!("{options}: accepted, and there is no room"));
            assert!(matches!(told.raw_os_error(), Some(EIO | ENOSPC)), "{told}");
        }
        fs::create_dir(volume.path("directory")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2500));
        assert_eq!(state(&volume)["mode"], "rw", "only data is in need");
        tight.empty();
        // Waiting data is written within a second. Until then writes fail with ENOSPC.
        let mut written = second.write_all_at(&[8; 50_000], 5000);
        for _ in 0..500 {
            if written.is_err() {
                std::thread::sleep(std::time::Duration::from_millis(10));
                written = second.write_all_at(&[8; 50_000], 5000);
            }
        }
        written.unwrap_or_else(|error| {
            panic!("{options}: there is room: {error}; {}", state(&volume))
        });
        // An fsync may tell once of what the kernel could not hand over, and once of what the
        // volume could not write.
        for file in [&first, &second] {
            assert!((0..3).any(|_| file.sync_all().is_ok()), "{options}: there is room");
        }
        let expected = [vec![5; 5000], vec![6; 1_000_000]].concat();
        assert_eq!(fs::read(volume.path("first")).unwrap()[..expected.len()], expected);
        drop((first, second));
        volume.unmount_talking();
        volume.mount("");
        assert_eq!(fs::read(volume.path("second")).unwrap()[5000..55_000], [8; 50_000]);
        assert!(volume.path("directory").is_dir());
        volume.unmount_talking();
    }
}

/// What programs see of a volume with a damaged inode, and what is left of it: three files that
/// others write meanwhile.
fn look_at_damage(root: &Path) -> (bool, Vec<std::io::Result<()>>) {
    let mut files: Vec<File> =
        (0..3).map(|number| File::create(root.join(format!("new {number}"))).unwrap()).collect();
    files.iter_mut().for_each(|file| file.write_all(&[1; 9000]).unwrap());
    let damaged = fs::metadata(root.join("victim")).is_err();
    (damaged, files.iter().map(File::sync_all).collect())
}

/// The same volume under the kernel's ext4 and under Cairn, with both values of `errors=`: the same
/// calls fail, the same data is lost, and the superblocks hold the same error state.
#[test]
fn damage_means_what_it_means_to_linux() {
    for mode in ["continue", "remount-ro"] {
        let mut volume = Volume::make(32 << 20, &["-b", "4096", "-e", mode]);
        volume.mount("");
        fs::write(volume.path("victim"), "x").unwrap();
        let ino = fs::metadata(volume.path("victim")).unwrap().ino();
        volume.unmount();
        damage_inode(&volume.image(), ino);
        let copy = volume.outside("copy");
        fs::copy(volume.image(), &copy).unwrap();
        let kernel = judge::KernelMount::new(&copy, "");
        let by_kernel = look_at_damage(kernel.path());
        kernel.unmount();
        volume.mount("");
        let by_us = look_at_damage(&volume.root());
        let (status, said, _) = volume.end_with_status();
        let failed = |seen: &(bool, Vec<std::io::Result<()>>)| {
            (seen.0, seen.1.iter().map(Result::is_err).collect::<Vec<_>>())
        };
        assert_eq!(failed(&by_us), failed(&by_kernel), "errors={mode}");
        assert_eq!(status, Some(if mode == "continue" { 0 } else { IO_STATUS }), "{said}");
        let seen = |image: &Path| {
            let preened = judge::e2fsck_preen(image);
            assert!(
                preened.output.contains("file system with errors, check forced"),
                "{mode}: {}",
                preened.output
            );
            judge::assert_clean(image);
            let names = judge::debugfs(image, "ls /")
                .split_whitespace()
                .filter(|word| *word == "new")
                .count();
            (preened.status, names)
        };
        assert_eq!(seen(&volume.image()), seen(&copy), "errors={mode}");
    }
}

/// Changes the access time of an inode's record: only its checksum can tell.
fn damage_inode(image: &Path, ino: u64) {
    let place = judge::debugfs(image, &format!("imap <{ino}>"));
    // "Inode 12 is part of block group 0\n\tlocated at block 268, offset 0x0b00"
    let number = |after: &str, end: char| {
        place.split(after).nth(1).unwrap().split(end).next().unwrap().trim().to_owned()
    };
    let block: u64 = number("located at block ", ',').parse().unwrap();
    let offset = u64::from_str_radix(number("offset 0x", '\n').as_str(), 16).unwrap();
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, block * 4096 + offset + 8).unwrap();
    file.write_all_at(&[byte[0] ^ 0x55], block * 4096 + offset + 8).unwrap();
}
