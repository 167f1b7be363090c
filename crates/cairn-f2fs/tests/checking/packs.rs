//! The newest checkpoint with a damaged end: it is found, nothing is written over it, and a repair
//! restores it.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::format::checksum::{MAGIC, crc32};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::foreign::is_clean_f2fs;
use cairn_testkit::judge::{assert_f2fs_device_clean, fsck_f2fs_device};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::inject::Injection;
use crate::repair::{apply, damaged, plan};
use crate::stale::place_of;
use crate::types::{Judge, planted};
use crate::volume::open;
use crate::{check, lines};

const NEW: &[u8] = b"/new";

/// A volume with a file that only the newest checkpoint has.
fn changed() -> Judge {
    let device = Arc::new(planted(&[]).fork());
    let fs = open(device.clone(), "nodiscard,mode=lfs");
    fs.create(fs.root(), b"new", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    fs.unmount().unwrap();
    let judge = Judge::of(&device);
    assert!(judge.sound.contains_key(NEW));
    judge
}

/// Sets the checksum of a checkpoint block.
pub fn seal(bytes: &mut [u8]) {
    let sum = crc32(MAGIC, &bytes[..4092]);
    bytes[4092..].copy_from_slice(&sum.to_le_bytes());
}

/// A change of a block.
fn injected(judge: &Judge, at: u64, what: &str, change: &dyn Fn(&mut [u8])) -> Injection {
    let mut bytes = judge.target.read(at);
    change(&mut bytes);
    let what = format!("{what}, byte {at:#x}");
    Injection { what, blocks: vec![(at, bytes)] }
}

/// What a repair without losses does, and what a mount does before.
fn assert_restored(judge: &Judge, injection: &Injection) {
    let what = &injection.what;
    let device = Arc::new(damaged(&judge.target, injection));
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.contains("f2fs.checkpoint.end: "), "{what}:\n{found}");
    assert_eq!(found.lines().count(), 1, "{what}:\n{found}");
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let access = cairn_f2fs::inspect(&dynamic).unwrap().unwrap().access;
    assert!(access.contains("the newest checkpoint is damaged"), "{what}: {access}");
    let mounted = Arc::new(device.fork());
    let fs = F2fs::open(mounted.clone(), Threads::new(), &MountOptions::default()).unwrap();
    let reason = fs.read_only_reason().unwrap_or_default();
    assert!(reason.contains("the newest checkpoint is damaged"), "{what}: {reason}");
    let made = fs.create(fs.root(), b"more", NewInode::Regular, 0o600, &Caller::ROOT);
    assert!(made.is_err(), "{what}");
    fs.unmount().unwrap();
    drop(fs);
    let size = usize::try_from(64 << 20).unwrap();
    assert!(
        device.read_at(0, size).unwrap()[..] == mounted.read_at(0, size).unwrap()[..],
        "{what}"
    );
    for scope in [Scope::Accounting, Scope::All] {
        let (tree, lost) = judge.repair(injection, scope);
        assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{what}: {lost:?}");
    }
}

#[test]
fn an_end_of_the_newest_checkpoint_is_restored_from_the_other() {
    let judge = changed();
    let [first, last] = judge.target.pack_ends();
    for place in [0, 1, 7, 8, 16, 32, 70, 132, 136, 140, 156, 160, 192, 300, 3000, 4092, 4095] {
        for end in [first, last] {
            let what = format!("byte {place}");
            let injection = injected(&judge, end, &what, &|bytes| bytes[place] ^= 0x10);
            assert_restored(&judge, &injection);
        }
    }
    // The block is gone as a whole.
    assert_restored(&judge, &injected(&judge, first, "zeros", &|bytes| bytes.fill(0)));
}

#[test]
fn ends_whose_versions_differ_get_that_of_the_newest_checkpoint() {
    let judge = changed();
    for end in judge.target.pack_ends() {
        for change in [1, 2, 4, 0x80] {
            let what = format!("version ^ {change:#x}");
            let injection = injected(&judge, end, &what, &|bytes| {
                bytes[0] ^= change;
                seal(bytes);
            });
            assert_restored(&judge, &injection);
        }
    }
}

#[test]
fn a_wrong_place_of_the_checksum_is_set_right() {
    const OFFSET_AT: usize = 164;
    let judge = changed();
    let [first, last] = judge.target.pack_ends();
    for offset in [192_u16, 196, 2000, 4088] {
        for is_sealed in [false, true] {
            let change = |bytes: &mut [u8]| {
                bytes[OFFSET_AT..OFFSET_AT + 2].copy_from_slice(&offset.to_le_bytes());
                if is_sealed {
                    seal(bytes);
                }
            };
            let what = format!("checksum_offset {offset}, sealed {is_sealed}");
            let mut injection = injected(&judge, first, &what, &change);
            injection.blocks.extend(injected(&judge, last, &what, &change).blocks);
            assert_restored(&judge, &injection);
        }
    }
}

/// Nothing is left of the older pack but its last block: one wrong bit of the newest one would take
/// the whole volume away.
#[test]
fn an_end_is_restored_where_no_pack_can_be_used() {
    let judge = changed();
    let older = Judge::of(&planted(&[])).target.pack_ends()[0];
    let [first, last] = judge.target.pack_ends();
    assert_ne!(older, first);
    for end in [first, last] {
        for place in [0, 7, 16, 136, 192, 3000, 4092] {
            let what = format!("byte {place}, no older pack");
            let mut injection = injected(&judge, end, &what, &|bytes| bytes[place] ^= 0x10);
            injection.blocks.push((older, vec![0; 4096]));
            let what = &injection.what;
            let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
            let found = lines(&check(device.clone()).unwrap());
            assert!(found.contains("f2fs.checkpoint.end: "), "{what}:\n{found}");
            let opened = F2fs::open(device.clone(), Threads::new(), &MountOptions::default());
            let why = opened.err().expect("no pack can be used").to_string();
            assert!(why.contains("a repair without losses restores the newest"), "{why}");
            let done = plan(&device, Scope::Accounting).unwrap();
            assert_eq!(done.after.count(), 0, "{what}: {}", lines(&done.after));
            apply(&done, &device);
            assert!(device.read_at(end, 4096).unwrap()[..] == judge.target.read(end)[..], "{what}");
        }
    }
}

/// The first block of the newest pack is lost, and that of the older one, too. Nothing but the last
/// block of the newest pack tells of it, and that was written after all else.
#[test]
fn a_lost_first_block_is_restored_where_no_pack_can_be_used() {
    type Change = fn(&mut [u8]);
    let judge = changed();
    let older = Judge::of(&planted(&[])).target.pack_ends()[0];
    let [newer, _] = judge.target.pack_ends();
    let changes: [(&str, Change); 4] = [
        ("zeros", |bytes| bytes.fill(0)),
        ("bytes of something else", |bytes| bytes.fill(0xa5)),
        ("some fields", |bytes| bytes[100..400].fill(0x77)),
        ("a sector", |bytes| bytes[..512].fill(0)),
    ];
    for (what, change) in changes {
        let mut injection = injected(&judge, newer, what, &change);
        injection.blocks.push((older, vec![0; 4096]));
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(found.contains("f2fs.checkpoint.end: "), "{what}:\n{found}");
        let opened = F2fs::open(device.clone(), Threads::new(), &MountOptions::default());
        let why = opened.err().expect("no pack can be used").to_string();
        assert!(why.contains("the newest checkpoint pack"), "{what}: {why}");
        let (tree, lost) = judge.repair(&injection, Scope::Accounting);
        assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{what}: {lost:?}");
        apply(&plan(&device, Scope::All).unwrap(), &device);
        let whole = device.read_at(0, 64 << 20).unwrap();
        let repaired = Arc::new(MemoryDevice::from_image(&whole));
        // That of the older pack stays as it is until the next checkpoint.
        assert!(is_clean_f2fs(&fsck_f2fs_device(&repaired), true), "{what}");
        let fs = open(repaired.clone(), "");
        fs.create(fs.root(), b"more", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
        fs.unmount().unwrap();
        assert_f2fs_device_clean(&repaired);
    }
    // A power cut left it of a later pack in the same place, or files lose something by it.
    let later: [(&str, Change); 2] = [
        ("a later version", |bytes| {
            let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            bytes[..8].copy_from_slice(&(version + 2).to_le_bytes());
            bytes[100..400].fill(0x77);
        }),
        ("an inode is gone, too", |bytes| bytes.fill(0)),
    ];
    for (number, (what, change)) in later.into_iter().enumerate() {
        let mut injection = injected(&judge, newer, what, &change);
        injection.blocks.push((older, vec![0; 4096]));
        if number == 1 {
            injection.blocks.push((judge.target.inode_of(judge.numbers["nodes"]), vec![0; 4096]));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
        let found = lines(&check(device.clone()).unwrap());
        assert!(!found.contains("f2fs.checkpoint.end: "), "{what}:\n{found}");
        let done = plan(&device, Scope::Accounting).unwrap();
        assert!(done.changes.is_empty(), "{what}");
    }
}

/// What a power cut leaves of the last block is no defect, and the volume is written.
#[test]
fn a_torn_last_block_is_no_damage() {
    let judge = changed();
    let old = Judge::of(&planted(&[]));
    let [_, last] = judge.target.pack_ends();
    let before: Arc<dyn BlockDevice> = Arc::new(old.target.device.fork());
    let before = before.read_at(last, 4096).unwrap();
    assert_ne!(before[..], judge.target.read(last)[..]);
    for sectors in 0..0xff_u8 {
        let injection = injected(&judge, last, &format!("sectors {sectors:#x}"), &|bytes| {
            for sector in (0..8).filter(|sector| sectors >> sector & 1 == 0) {
                let range = sector * 512..(sector + 1) * 512;
                bytes[range.clone()].copy_from_slice(&before[range]);
            }
        });
        let device = Arc::new(damaged(&judge.target, &injection));
        if device.read_at(last, 4096).unwrap()[..] == judge.target.read(last)[..] {
            continue;
        }
        if sectors % 16 == 1 {
            assert_eq!(lines(&check(device.clone()).unwrap()), "", "{}", injection.what);
        }
        let fs = open(device.clone(), "");
        assert_eq!(fs.read_only_reason(), None, "{}", injection.what);
        fs.unmount().unwrap();
    }
}

/// Blocks that only the older pack uses are free: they may be discarded or written.
#[test]
fn a_mount_says_that_the_newest_checkpoint_is_damaged_if_the_older_one_is_of_no_use() {
    let judge = changed();
    let root = place_of(&planted(&[]), 3);
    assert_ne!(root, place_of(&judge.target.device, 3));
    let other = judge.target.read(judge.target.inode_of(judge.numbers["nodes"]));
    for (what, contents) in [("discarded", vec![0; 4096]), ("overwritten", other)] {
        for end in judge.target.pack_ends() {
            let mut injection = injected(&judge, end, what, &|bytes| bytes[16] ^= 0x10);
            injection.blocks.push((root, contents.clone()));
            let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
            for read_only in [false, true] {
                let options = MountOptions { read_only, ..MountOptions::default() };
                let opened = F2fs::open(device.clone(), Threads::new(), &options);
                let why = opened.err().expect("the root of the older pack is gone").to_string();
                assert!(why.starts_with("the newest checkpoint pack, in block "), "{why}");
                assert!(why.contains("a repair without losses restores the newest"), "{why}");
            }
            let access = cairn_f2fs::inspect(&device).unwrap().unwrap().access;
            assert!(access.ends_with("restores the newest one: check and repair it"), "{access}");
            for scope in [Scope::Accounting, Scope::All] {
                let (tree, lost) = judge.repair(&injection, scope);
                assert!(lost.is_empty() && tree.unwrap() == judge.sound, "{what}: {lost:?}");
            }
        }
    }
}
