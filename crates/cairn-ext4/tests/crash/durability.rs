//! Durable changes: all histories of two steps with each way to make them durable, and two fsyncs
//! at once.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_ext4::resize;
use cairn_testkit::crash::{CrashLog, Cut, Recording, Volatile, write_image};
use cairn_testkit::durability::{
    DAMAGED, Damage, Opened, Subject, both_hear_of_a_failed_flush, search,
};
use cairn_testkit::judge::{KernelMount, e2fsck_preen};
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode, SetAttributes, SetTime, Timestamp};

use crate::run::{format, open, shm};
use crate::search::clean;
use crate::{EXT3, K1, K4, K4_ORPHANS};

fn opened(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<Opened, String> {
    let fs = open(device, runtime, "")?;
    let evicted = fs.clone();
    Ok(Opened { fs, evict: Arc::new(move || evicted.shrink_inodes()) })
}

fn closed(device: &MemoryDevice) -> Result<(), String> {
    let dir = shm();
    let image = dir.path().join("closed");
    write_image(device, &image).map_err(|error| error.to_string())?;
    clean(&image, "after recovery by cairn")
}

/// e2fsck recovers, or the kernel does; then nothing may be wrong.
fn cut(device: &MemoryDevice) -> Result<(), String> {
    let dir = shm();
    let image = dir.path().join("cut");
    write_image(device, &image).map_err(|error| error.to_string())?;
    KernelMount::new(&image, "").unmount();
    clean(&image, "after recovery by the kernel")?;
    write_image(device, &image).map_err(|error| error.to_string())?;
    let verdict = e2fsck_preen(&image);
    if (0..=1).contains(&verdict.status) { Ok(()) } else { Err(verdict.output) }
}

/// A little smaller, so that the journal stays where it is: while it moves there is none.
fn smaller(device: Arc<dyn BlockDevice>) -> Result<(), String> {
    let runtime = Arc::new(Threads::new());
    let least =
        resize::least(device.clone(), runtime.clone()).map_err(|error| error.to_string())?;
    let size = least.max(device.geometry().size / 8 * 7);
    resize::resize(device, runtime, size).map(drop).map_err(|error| error.to_string())
}

/// A volume with a file whose record is damaged. Only the checksum detects it.
fn with_damage(fresh: &MemoryDevice) -> Damage {
    let device = Arc::new(fresh.fork());
    let fs = open(device.clone(), Simulated::new(1), "").expect("it opens");
    let ino = fs.create(fs.root(), DAMAGED, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let at = crate::policy::record_of(&fs, ino).checked;
    fs.unmount().unwrap();
    Damage::new(device.fork(), at, 0..8192)
}

fn search_on(args: &'static [&'static str], megabytes: u64) {
    let fresh = format(shm().path(), args, megabytes);
    let open = |device| opened(device, Simulated::new(1));
    let damage = (args == K4).then(|| with_damage(&fresh));
    let subject = Subject {
        fresh,
        damage,
        every_word: cairn_testkit::deep(),
        cuts: 6,
        open: &open,
        judge: &closed,
        judge_cut: Some(&cut),
        resize: Some(&smaller),
    };
    let rare = if cairn_testkit::deep() { 3 } else { 300 };
    let seen = search(&subject, rare).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    println!("{args:?}: {seen:?}");
    assert!(seen.histories > 1500 && seen.promises > 3 * seen.histories, "{seen:?}");
    assert_eq!(seen.damaged > 50, args == K4, "{seen:?}");
    assert!(seen.resized > 20, "{seen:?}");
}

#[test]
fn every_history_of_two_steps_is_as_durable_as_was_said() {
    search_on(K4, 16);
}

#[test]
fn every_history_of_two_steps_with_other_formats() {
    for args in [K1, EXT3, K4_ORPHANS] {
        search_on(args, if args.contains(&"4096") { 16 } else { 8 });
    }
}

#[test]
fn two_fsyncs_at_once_get_the_same_answer() {
    let fresh = format(shm().path(), K4, 16);
    let open = |device| opened(device, Arc::new(Threads::new()));
    let subject = Subject {
        fresh,
        damage: None,
        every_word: cairn_testkit::deep(),
        cuts: 6,
        open: &open,
        judge: &closed,
        judge_cut: None,
        resize: None,
    };
    both_hear_of_a_failed_flush(&subject);
}

/// The contents of `file` after a power cut now that loses all unflushed writes.
fn after_a_cut(recording: &Recording, fresh: &MemoryDevice) -> Option<u8> {
    let log = CrashLog::new(fresh.fork(), recording.log());
    let device = log.device(Cut { moment: recording.moment(), volatile: Volatile::Lost });
    let fs = open(Arc::new(device), Simulated::new(2), "").expect("it opens");
    let ino = fs.lookup(fs.root(), b"file").ok()?.ino;
    let mut byte = [0];
    fs.read(ino, 0, &mut byte, IoFlags::empty()).expect("it is read");
    Some(byte[0])
}

/// A block is overwritten in place. The inode's times are committed before the block is written,
/// and then the inode is evicted. So no later transaction shows that data of the inode needs a
/// flush.
#[test]
fn data_that_was_written_before_its_inode_left_memory_is_flushed() {
    let fresh = format(shm().path(), K4, 16);
    let recording = Recording::start(fresh.fork());
    let fs = open(recording.device(), Simulated::new(1), "").expect("it opens");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, &[1; 8192], IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    fs.write(ino, 0, &[2; 4096], IoFlags::empty()).unwrap();
    // Other times than those of the write, which would need no transaction.
    let mtime = Some(SetTime::To(Timestamp { seconds: 7, nanoseconds: 0 }));
    for changed in [ino, fs.root()] {
        fs.setattr(changed, &SetAttributes { mtime, ..Default::default() }).unwrap();
    }
    fs.fsync(fs.root(), 0, false).unwrap();
    fs.extents(ino, 0, 8192, true, &mut |_| true).unwrap();
    fs.forget(ino, 1);
    fs.shrink_inodes();
    assert!(!fs.has_in_memory(ino), "it has left memory");
    assert_eq!(after_a_cut(&recording, &fresh), Some(1), "nobody has flushed");
    fs.fsync(ino, 0, true).unwrap();
    assert_eq!(after_a_cut(&recording, &fresh), Some(2), "fdatasync has");
    fs.unmount().unwrap();
}

/// Data, names and times become durable after some time, without an fsync.
#[test]
fn a_change_is_on_disk_after_the_commit_interval() {
    for args in [K4, &["-t", "ext2", "-b", "1024"]] {
        let fresh = format(shm().path(), args, 16);
        let recording = Recording::start(fresh.fork());
        let simulated = Simulated::new(1);
        let fs = open(recording.device(), simulated.clone(), "commit=20").expect("it opens");
        let ino =
            fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        fs.write(ino, 0, &[1; 9000], IoFlags::empty()).unwrap();
        simulated.advance(Duration::from_secs(10));
        assert_ne!(
            after_a_cut(&recording, &fresh),
            Some(1),
            "nobody has asked for it, and it is not time yet"
        );
        simulated.advance(Duration::from_secs(11));
        assert_eq!(after_a_cut(&recording, &fresh), Some(1), "{args:?}: the interval is over");
        // In place: no block is mapped, and no size moves.
        fs.remount("commit=3").unwrap();
        fs.write(ino, 0, &[2; 4096], IoFlags::empty()).unwrap();
        simulated.advance(Duration::from_secs(4));
        assert_eq!(
            after_a_cut(&recording, &fresh),
            Some(2),
            "{args:?}: overwritten, with another interval"
        );
        fs.unmount().unwrap();
    }
}

/// A file ends within a block whose rest is being zeroed, which the size on disk waits for. Direct
/// I/O far behind it is committed with a size that covers it.
#[test]
fn direct_io_behind_a_tail_that_is_being_zeroed_is_committed_with_its_size() {
    let fresh = format(shm().path(), K4, 16);
    let recording = Recording::start(fresh.fork());
    let fs = open(recording.device(), Simulated::new(1), "").expect("it opens");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, &[1; 40_000], IoFlags::empty()).unwrap();
    fs.sync().unwrap();
    fs.setattr(ino, &SetAttributes { size: Some(28_664), ..Default::default() }).unwrap();
    fs.write(ino, 31_912, &[2; 6112], IoFlags::empty()).unwrap();
    fs.write(ino, 40_960, &[3; 4096], IoFlags::DIRECT).unwrap();
    fs.fsync(fs.root(), 0, false).unwrap();
    let moment = recording.moment();
    fs.shutdown(false).unwrap();
    drop(fs);
    let log = CrashLog::new(fresh.fork(), recording.log());
    let device = Arc::new(log.device(Cut { moment, volatile: Volatile::Lost }));
    open(device.clone(), Simulated::new(2), "").expect("it opens").unmount().unwrap();
    closed(&device).unwrap();
}
