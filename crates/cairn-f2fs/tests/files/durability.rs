//! Durable changes: all histories of two steps with each way to make them durable, and two fsyncs
//! at once.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_f2fs::{F2fs, MountOptions, resize};
use cairn_testkit::crash::Recording;
use cairn_testkit::durability::{
    DAMAGED, Damage, Opened, Subject, both_hear_of_a_failed_flush, search,
};
use cairn_testkit::judge::node_blocks_of;
use cairn_vfs::{Caller, Error, FileSystem, IoFlags, NewInode, XattrMode};

use crate::crash::{BEFORE, clean};
use crate::support::{FEATURES, FOLDED, judge, open, volume};

fn opened(device: Arc<dyn BlockDevice>, options: &str) -> Result<Opened, String> {
    let options = MountOptions::parse(options).expect("valid options");
    let fs = F2fs::open(device, Simulated::new(1), &options).map_err(|error| error.to_string())?;
    if let Some(reason) = fs.read_only_reason() {
        return Err(format!("it is read-only: {reason}"));
    }
    let evicted = fs.clone();
    Ok(Opened { fs, evict: Arc::new(move || evicted.inodes().table.shrink()) })
}

fn closed(device: &MemoryDevice) -> Result<(), String> {
    clean(device, "after recovery")
}

fn cut(device: &MemoryDevice) -> Result<(), String> {
    clean(device, BEFORE)
}

/// As small as it can become.
fn smaller(device: Arc<dyn BlockDevice>) -> Result<(), String> {
    let runtime: Arc<dyn Runtime> = Threads::new();
    let done = resize::least(&device, runtime.clone())
        .and_then(|least| resize::resize(&device, &runtime, least));
    done.map(drop).map_err(|error| error.to_string())
}

/// A volume with a file whose record is damaged. Only the checksum detects it.
fn with_damage(fresh: &MemoryDevice) -> Damage {
    let device = Arc::new(fresh.fork());
    let fs = open(device.clone(), "");
    let ino = fs.create(fs.root(), DAMAGED, NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.sync().unwrap();
    let at = crate::policy::record_of(&fs, ino).checked;
    fs.unmount().unwrap();
    Damage::new(device.fork(), at, 0..8192)
}

/// Examines all histories on a volume of these arguments of mkfs.f2fs and mount options.
fn search_on(args: &[&str], options: &str) {
    let cuts = if cairn_testkit::deep() { 6 } else { 2 };
    let open = |device| opened(device, options);
    let fresh = volume(64 << 20, args).fork();
    let damage = (args == FEATURES).then(|| with_damage(&fresh));
    let subject = Subject {
        fresh,
        damage,
        every_word: cairn_testkit::deep(),
        cuts,
        open: &open,
        judge: &closed,
        judge_cut: Some(&cut),
        resize: Some(&smaller),
    };
    let rare = if cairn_testkit::deep() { 3 } else { 300 };
    let seen =
        search(&subject, rare).unwrap_or_else(|error| panic!("{args:?}, {options:?}: {error}"));
    println!("{args:?}, {options:?}: {seen:?}");
    assert!(seen.histories > 1500 && seen.promises > 3 * seen.histories, "{seen:?}");
    assert_eq!(seen.damaged > 50, args == FEATURES, "{seen:?}");
    assert!(seen.resized > 20, "{seen:?}");
}

#[test]
fn every_history_of_two_steps_is_as_durable_as_was_said() {
    search_on(&[], "");
}

#[test]
fn every_history_of_two_steps_with_all_features_is_as_durable_as_was_said() {
    search_on(FEATURES, "mode=lfs,nocheckpoint_merge");
}

#[test]
#[ignore = "as long as the others: make deep runs it"]
fn every_history_of_two_steps_where_case_is_ignored_is_as_durable_as_was_said() {
    search_on(FOLDED, "");
}

#[test]
fn two_fsyncs_at_once_get_the_same_answer() {
    let open = |device| opened(device, "");
    let fresh = volume(64 << 20, &[]).fork();
    let subject = Subject {
        fresh,
        damage: None,
        every_word: cairn_testkit::deep(),
        cuts: 0,
        open: &open,
        judge: &closed,
        judge_cut: None,
        resize: None,
    };
    both_hear_of_a_failed_flush(&subject);
}

/// The first byte of `file` on a volume that is opened on a copy of the device.
fn after_a_cut(device: &MemoryDevice) -> Option<u8> {
    let fs = open(Arc::new(device.fork()), "");
    let ino = fs.lookup(fs.root(), b"file").ok()?.ino;
    let mut byte = [0];
    fs.read(ino, 0, &mut byte, IoFlags::empty()).unwrap();
    Some(byte[0])
}

/// Without an fsync, names become durable with the next checkpoint. Data that is written in place
/// becomes durable within 30 seconds, although the next checkpoint is a day away.
#[test]
fn data_is_written_when_it_has_been_in_memory_for_a_while() {
    let device = volume(64 << 20, &[]);
    let runtime = Simulated::new(1);
    let options = MountOptions::parse("checkpoint_interval=40").unwrap();
    let fs = F2fs::open(device.clone(), runtime.clone(), &options).unwrap();
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    fs.write(ino, 0, &[1; 9000], IoFlags::empty()).unwrap();
    runtime.advance(Duration::from_secs(20));
    assert_eq!(after_a_cut(&device), None, "nobody has asked for it, and it is not time yet");
    runtime.advance(Duration::from_secs(61));
    assert_eq!(after_a_cut(&device), Some(1), "the interval is over");
    fs.remount("checkpoint_interval=86400").unwrap();
    fs.write(ino, 0, &[2; 4096], IoFlags::empty()).unwrap();
    runtime.advance(Duration::from_secs(20));
    assert_eq!(after_a_cut(&device), Some(1), "not yet");
    runtime.advance(Duration::from_secs(20));
    assert_eq!(after_a_cut(&device), Some(2), "it was in memory for 30 seconds");
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
}

/// Reading updates access times, and such an inode is dirty until a checkpoint. Afterwards it can
/// be evicted.
#[test]
fn inodes_that_were_only_read_leave_memory() {
    let runtime = Simulated::new(1);
    let fs = F2fs::open(volume(64 << 20, &[]), runtime.clone(), &MountOptions::default()).unwrap();
    let name = |number: u32| format!("file {number}");
    for number in 0..100 {
        let ino = fs
            .create(fs.root(), name(number).as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
            .unwrap()
            .ino;
        fs.write(ino, 0, b"contents", IoFlags::empty()).unwrap();
        fs.forget(ino, 1);
    }
    fs.sync().unwrap();
    fs.inodes().table.shrink();
    let before = fs.inodes().table.len();
    runtime.advance(Duration::from_secs(1));
    for number in 0..100 {
        let found = fs.lookup(fs.root(), name(number).as_bytes()).unwrap();
        fs.read(found.ino, 0, &mut [0; 8], IoFlags::empty()).unwrap();
        assert!(
            fs.getattr(found.ino).unwrap().atime > found.atime,
            "{}: its access time is renewed",
            name(number)
        );
        fs.forget(found.ino, 1);
    }
    fs.sync().unwrap();
    fs.inodes().table.shrink();
    let after = fs.inodes().table.len();
    assert!(
        after <= before,
        "{before} inodes were in memory, and {after} are since others were read"
    );
    fs.unmount().unwrap();
}

/// Attributes that do not fit into the inode go on in a node. A power cut between the two leaves
/// the old attributes or the new ones, also those that were durable before.
#[test]
fn attributes_outside_the_inode_come_with_it_or_not_at_all() {
    for known in [false, true] {
        let recording = Recording::start(volume(64 << 20, &[]).fork());
        let is_node = node_blocks_of(recording.before());
        let fs = open(recording.device(), "");
        let ino =
            fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        if known {
            fs.setxattr(ino, b"user.a", &[1; 100], XattrMode::Set).unwrap();
            fs.sync().unwrap();
        }
        let from = recording.moment();
        fs.setxattr(ino, b"user.b", &[2; 300], XattrMode::Set).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        let returned = recording.moment();
        fs.shutdown(false).unwrap();
        drop(fs);
        let log = recording.finish().with_whole(is_node);
        for cut in log.cuts(from, 60, 7) {
            let fs = open(Arc::new(log.device(cut)), "");
            let found = fs.lookup(fs.root(), b"file");
            assert!(found.is_ok() || cut.moment < returned && !known, "{cut}: {found:?}");
            let Ok(found) = found else { continue };
            match fs.getxattr(found.ino, b"user.b") {
                Ok(value) => assert_eq!(value, [2; 300], "{cut}"),
                Err(Error::NoAttribute) => assert!(cut.moment < returned, "{cut}"),
                Err(error) => panic!("{cut}: {error}"),
            }
            if known {
                assert_eq!(fs.getxattr(found.ino, b"user.a").unwrap(), [1; 100], "{cut}");
            }
            fs.unmount().unwrap();
        }
    }
}
