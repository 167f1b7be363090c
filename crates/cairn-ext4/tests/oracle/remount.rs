//! Remounts of a volume in use: options change completely or not at all, to read-only and back,
//! also under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cairn_block::memory::MemoryDevice;
use cairn_ext4::Ext4;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::{freezing, times};
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, OpenMode};

use crate::support::{judge, open, volume};

const ROOT: Caller = Caller { umask: 0o022, ..Caller::ROOT };

fn device(arguments: &[&str]) -> Arc<MemoryDevice> {
    volume(64 << 20, arguments)
}

fn create(volume: &Ext4, name: &str) -> Result<cairn_base::Ino, Error> {
    volume
        .create(volume.root(), name.as_bytes(), NewInode::Regular, 0o644, &ROOT)
        .map(|made| made.ino)
}

#[test]
fn a_list_is_taken_whole_or_not_at_all() {
    let device = device(&["-t", "ext4"]);
    let volume = open(&device, "commit=30");
    volume
        .remount(
            "noatime,commit=7,cache=64M,async_checkpoint=30,checkpoint_clean=scan,max_folio=64K",
        )
        .unwrap();
    let before = volume.report();
    assert_eq!(before.u64("options.commit"), Some(7));
    assert_eq!(before.u64("cache.budget.limit_bytes"), Some(64 << 20));
    for (list, named) in [
        ("relatime,commit=5,frob", "frob"),
        ("commit=5,cache=1", "cache=1"),
        ("ro,commit=x", "commit=x"),
        ("noatime,noload", "noload"),
        ("ro,noload", "noload"),
        ("commit=5,async_checkpoint=0", "async_checkpoint"),
        ("ro,async_checkpoint", "async_checkpoint"),
    ] {
        assert!(volume.check_remount(list).is_err(), "{list}");
        let refused = volume.remount(list).unwrap_err();
        assert!(
            matches!(&refused, Error::Option(text) if text.contains(named)),
            "{list}: {refused}"
        );
        assert_eq!(volume.report().get("options"), before.get("options"), "{list}");
    }
    create(&volume, "still writable").unwrap();
    volume.unmount().unwrap();
    // An unmounted volume is not writable.
    for list in ["rw", "ro,rw"] {
        let refused = volume.remount(list).unwrap_err().to_string();
        assert!(refused.contains("mount again"), "{list}: {refused}");
    }
    assert!(volume.remount("noatime").is_ok(), "nothing changes, nothing is refused");
    assert!(create(&volume, "x").is_err());
    judge(&device);
}

#[test]
fn read_only_is_clean_on_disk_and_reversible() {
    for arguments in [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext4", "-O", "^orphan_file"]] {
        let device = device(arguments);
        let volume = open(&device, "");
        for round in 0..3 {
            let name = format!("file {round}");
            let ino = create(&volume, &name).unwrap();
            volume.write(ino, 0, name.as_bytes(), IoFlags::empty()).unwrap();
            volume.remount("ro").unwrap();
            // Without an unmount: the current contents of the disk must be enough.
            judge(&device);
            assert!(matches!(create(&volume, "late"), Err(Error::ReadOnly(_))));
            assert!(matches!(
                volume.write(ino, 0, b"late", IoFlags::empty()),
                Err(Error::ReadOnly(_))
            ));
            volume.fsync(ino, 0, false).unwrap();
            volume.sync().unwrap();
            let mut read = vec![0; name.len()];
            assert_eq!(volume.read(ino, 0, &mut read, IoFlags::empty()).unwrap(), name.len());
            assert_eq!(read, name.as_bytes());
            assert_eq!(volume.report().text("state.mode"), Some("ro"));
            volume.remount("rw").unwrap();
            volume.forget(ino, 1);
        }
        volume.unmount().unwrap();
        judge(&device);
        let again = open(&device, "");
        assert_eq!(again.lookup(again.root(), b"file 2").unwrap().size, 6);
        again.unmount().unwrap();
    }
}

#[test]
fn a_file_deleted_while_open_survives_read_only_and_goes_afterwards() {
    let device = device(&["-t", "ext4"]);
    let volume = open(&device, "");
    let free = volume.statfs().unwrap().free_inodes;
    let ino = create(&volume, "doomed").unwrap();
    let handle = volume.open(ino, OpenMode { write: false, direct: false }).unwrap();
    volume.write(ino, 0, b"still here", IoFlags::empty()).unwrap();
    volume.unlink(volume.root(), b"doomed").unwrap();
    volume.forget(ino, 1);
    volume.remount("ro").unwrap();
    let mut read = [0; 10];
    assert_eq!(volume.read(ino, 0, &mut read, IoFlags::empty()).unwrap(), 10);
    volume.release(ino, handle);
    volume.remount("rw").unwrap();
    assert_eq!(volume.statfs().unwrap().free_inodes, free);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn a_volume_mounted_read_only_becomes_writable_if_its_journal_was_empty() {
    let device = device(&["-t", "ext4"]);
    let volume = open(&device, "ro");
    assert!(create(&volume, "early").is_err());
    volume.remount("rw,async_checkpoint").unwrap();
    create(&volume, "made").unwrap();
    assert_eq!(volume.report().text("state.mode"), Some("rw"));
    volume.sync().unwrap();
    // A crash: the journal is not empty now.
    drop(volume);
    let volume = open(&device, "ro");
    volume.lookup(volume.root(), b"made").unwrap();
    let refused = volume.remount("rw").unwrap_err().to_string();
    assert!(
        refused.contains("journal was not empty") && refused.contains("unmount and mount again"),
        "{refused}"
    );
    drop(volume);
    open(&device, "").unmount().unwrap();
    judge(&device);
}

#[test]
fn what_an_error_stopped_stays_stopped() {
    let device = device(&["-t", "ext4"]);
    let volume = open(&device, "");
    volume.shutdown(true).unwrap();
    volume.remount("ro").unwrap();
    let refused = volume.remount("rw").unwrap_err().to_string();
    assert!(refused.contains("shut down on request"), "{refused}");
}

/// As [`judge`], for a volume that may have deleted files that are still open. The next mount
/// deletes them.
#[track_caller]
fn judge_as_found(device: &MemoryDevice) {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(device, file.path()).unwrap();
    let copy = Arc::new(read_image(file.path()).unwrap());
    open(&copy, "").unmount().unwrap();
    judge(&copy);
}

/// Ends the threads of a test, also if it fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads create, write, rename and delete files while options change, also to read-only.
#[test]
fn every_transition_under_load() {
    const LISTS: [&str; 12] = [
        "async_checkpoint",
        "commit=1,checkpoint_clean=scan",
        "ro",
        "rw,noasync_checkpoint",
        "nobuffered_iomap,max_folio=4K",
        "checkpoint_clean=bail_out,async_checkpoint=90",
        "ro",
        "buffered_iomap,max_folio=2M",
        "rw",
        "cache=2M,noatime,grpid",
        "cache=64M,relatime,nogrpid,checkpoint_clean=counted",
        "ro,commit=900",
    ];
    let device = device(&["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device, "cache=16M");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = StopAtEnd(&stop);
        for thread in 0..4_u64 {
            let (volume, stop, done) = (&volume, &stop, &done);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    match work(volume, thread, round) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        // The only permitted error.
                        Err(Error::ReadOnly(reason)) => assert_eq!(&*reason, "remounted with ro"),
                        Err(Error::Exists | Error::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for round in 0..if cairn_testkit::deep() { 40 } else { 4 } {
            for list in LISTS {
                volume.remount(list).unwrap_or_else(|error| panic!("{round}, {list}: {error}"));
                let options = volume.report();
                if list.starts_with("ro") {
                    assert_eq!(options.text("state.mode"), Some("ro"));
                } else {
                    // Waits until a thread has done some work under these options.
                    let before = done.load(Ordering::Relaxed);
                    while options.text("state.mode") == Some("rw")
                        && done.load(Ordering::Relaxed) < before + 8
                    {
                        std::thread::yield_now();
                    }
                }
            }
            judge_as_found(&device);
            volume.remount("rw").unwrap();
        }
    });
    assert!(done.load(Ordering::Relaxed) > 100);
    volume.unmount().unwrap();
    judge(&device);
}

fn work(volume: &Ext4, thread: u64, round: u64) -> Result<(), Error> {
    let name = format!("{thread}-{}", round % 7);
    let ino = match create(volume, &name) {
        Err(Error::Exists) => volume.lookup(volume.root(), name.as_bytes())?.ino,
        made => made?,
    };
    let worked = (|| {
        volume.write(ino, round % 3 * 5000, &[thread as u8; 9000], IoFlags::empty())?;
        if round.is_multiple_of(5) {
            volume.fsync(ino, 0, false)?;
        }
        let mut read = [0; 100];
        volume.read(ino, 0, &mut read, IoFlags::empty())?;
        if round.is_multiple_of(3) { volume.unlink(volume.root(), name.as_bytes()) } else { Ok(()) }
    })();
    volume.forget(ino, 1);
    worked
}

#[test]
fn frozen_it_is_clean_on_disk_and_readable() {
    for arguments in [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext4", "-O", "^orphan_file"]] {
        let device = device(arguments);
        freezing::in_order(&*open(&device, ""), &device, &judge_as_found);
        judge(&device);
    }
}

#[test]
fn shut_down_while_it_is_frozen() {
    freezing::shut_down(&*open(&device(&["-t", "ext4"]), ""));
}

/// There is no journal to replay, and nothing changes.
#[test]
fn frozen_and_thawed_under_load() {
    let device = device(&["-t", "ext4", "-J", "size=4"]);
    let volume = open(&device, "cache=16M,commit=1");
    freezing::under_load(&*volume, &device, &|device| {
        let copy = Arc::new(device.fork());
        let found = open(&copy, "ro");
        assert_eq!(found.report().text("state.read_only_reason"), Some("opened for reading"));
        drop(found);
        judge_as_found(device);
    });
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn reading_renews_old_access_times() {
    let device = device(&["-t", "ext4"]);
    let volume = open(&device, "");
    times::make(&*volume);
    assert!(times::are_new(&times::after_reading(&*volume, 1_000)));
    volume.remount("noatime").unwrap();
    assert_eq!(times::after_reading(&*volume, 1_000), [1_000; 3]);
    volume.remount("relatime").unwrap();
    let renewed = times::after_reading(&*volume, 2_000);
    volume.unmount().unwrap();
    drop(volume);
    judge(&device);
    assert!(times::are_new(&renewed));
    let again = open(&device, "ro");
    assert_eq!(times::kept(&*again), renewed);
}

/// A walk through a large tree leaves no needless inodes in memory: an inode with a new access time
/// can be evicted.
#[test]
fn inodes_that_were_only_read_leave_memory() {
    const LINKS: u64 = 20_000;
    // A quarter of the cache, and inodes whose access times wait.
    const MOST: u64 = 14_000;
    let device = device(&["-t", "ext4", "-N", "25000"]);
    let volume = open(&device, "cache=64M");
    let root = volume.root();
    let name = |n: u64| format!("link{n}").into_bytes();
    for n in 0..LINKS {
        let made =
            volume.create(root, &name(n), NewInode::Symlink(b"target"), 0o777, &ROOT).unwrap();
        volume.forget(made.ino, 1);
    }
    volume.unmount().unwrap();
    let volume = open(&device, "cache=64M");
    for n in 0..LINKS {
        let found = volume.lookup(root, &name(n)).unwrap();
        assert_eq!(volume.readlink(found.ino).unwrap(), b"target");
        volume.forget(found.ino, 1);
    }
    let kept = volume.report().u64("state.inodes_in_memory").unwrap();
    assert!(kept < MOST, "{kept} inodes are in memory");
    volume.unmount().unwrap();
    judge(&device);
}
