//! Quota files: found to be old after a mount of Cairn, which does not count, and counted again by
//! a repair that keeps limits. fsck.f2fs counts in the same way.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::command;
use cairn_vfs::{FileSystem, IoFlags, NewInode, SetAttributes};

use crate::inject::{Injection, Target};
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::volume::{End, MIB, loaded, open, work};
use crate::{check, lines};

const KIND: &[&str] = &["-O", "extra_attr,inode_checksum,project_quota,quota"];
const USER_QUOTA: u32 = 4;

/// What fsck.f2fs says of quota: it does so only when it is asked to say more.
fn fsck(device: &Arc<dyn BlockDevice>) -> String {
    let image = tempfile::NamedTempFile::new().unwrap();
    let bytes = device.read_at(0, usize::try_from(device.geometry().size).unwrap()).unwrap();
    write_image(&MemoryDevice::from_image(&bytes), image.path()).unwrap();
    let output = command("fsck.f2fs").args(["-d1", "--dry-run"]).arg(image.path()).output();
    let output = output.expect("fsck.f2fs starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn codes(device: &Arc<dyn BlockDevice>) -> Vec<&'static str> {
    let report = check(device.clone()).unwrap();
    report.counts.iter().map(|(kind, _)| kind.code).collect()
}

/// Repairs a volume, and judges it.
fn repaired(device: &Arc<dyn BlockDevice>, scope: Scope) {
    let plan = plan(device, scope).unwrap();
    assert!(!plan.is_refused && plan.after.count() == 0, "{}", lines(&plan.after));
    apply(&plan, device);
    assert_eq!(lines(&check(device.clone()).unwrap()), "");
    let said = fsck(device);
    assert!(said.contains("Checking Quota file") && !said.contains("Fixing Quota"), "{said}");
    assert!(!said.contains("quota_need_fsck") && !said.contains("[ASSERT]"), "{said}");
}

/// A volume with files of several owners, on which Cairn has worked.
fn owned() -> Arc<dyn BlockDevice> {
    let device = Arc::new(loaded(96 * MIB, KIND));
    let fs = open(device.clone(), "");
    for number in 0..30_u32 {
        let name = format!("owned {number}");
        let caller = &cairn_vfs::Caller::ROOT;
        let ino = fs.create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, caller).unwrap();
        let ino = ino.ino;
        fs.write(ino, 0, &vec![7; 3000 * number as usize], IoFlags::empty()).unwrap();
        let owners = SetAttributes {
            uid: Some(1000 + number % 5),
            gid: Some(70_000 + number % 3),
            ..SetAttributes::default()
        };
        fs.setattr(ino, &owners).unwrap();
        fs.forget(ino, 1);
    }
    work(&fs, End::Closed);
    Arc::new(device.fork())
}

#[test]
fn what_a_mount_does_not_count_is_found_and_counted() {
    let device = owned();
    assert_eq!(codes(&device), ["f2fs.quota.counts"]);
    assert!(fsck(&device).contains("Fixing Quota"));
    repaired(&device, Scope::Accounting);
}

#[test]
fn limits_stay_and_damage_is_repaired() {
    let target = Target::new(KIND);
    let inode = target.read(target.inode_of(USER_QUOTA));
    let word = |at: usize| u32::from_le_bytes(inode[at..at + 4].try_into().unwrap());
    // The first pointer is behind the extra attributes.
    let pointers = 360 + usize::from(u16::from_le_bytes([inode[360], inode[361]]));
    let places = [0, 4].map(|slot| u64::from(word(pointers + slot)) << 12);
    let [first, second] = places.map(|place| target.read(place));
    // The entry of root: in the block of entries, behind its head.
    let entries = [&first[..], &second[..]].concat();
    let entry = entries.chunks(1024).position(|block| block[8] == 1 && block[0] == 0).unwrap();
    let at = entry * 1024 + 16;
    let with = |changes: &[(usize, u8)]| {
        let mut bytes = entries.clone();
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        let blocks = places.into_iter().zip(bytes.chunks(4096).map(<[u8]>::to_vec)).collect();
        let injection = Injection { what: format!("{changes:?}"), blocks };
        Arc::new(damaged(&target, &injection)) as Arc<dyn BlockDevice>
    };
    let limits = |device: &Arc<dyn BlockDevice>| {
        let blocks = places.map(|place| device.read_at(place, 4096).unwrap().to_vec()).concat();
        let found = blocks.windows(3).any(|bytes| bytes == [99, 98, 97]);
        assert!(found, "the limits are kept");
    };
    let limit = [(at + 8, 99), (at + 9, 98), (at + 10, 97)];
    let device = with(&limit);
    repaired(&device, Scope::Accounting);
    limits(&device);
    // The magic number, and a reference of the root to a block that is not there.
    for (damage, keeps) in [((1, 7), true), ((1024, 77), false)] {
        let device = with(&[&limit[..], &[damage]].concat());
        assert!(codes(&device).contains(&"f2fs.quota.file"), "{damage:?}");
        let safe = plan(&device, Scope::Accounting).unwrap();
        assert!(safe.changes.is_empty() && !safe.is_refused, "{damage:?}");
        repaired(&device, Scope::All);
        if keeps {
            limits(&device);
        }
    }
}

/// The superblock's words for the files of users, groups and projects, in both copies.
const NUMBERS_AT: usize = 1024 + 2745;
const COPIES: [u64; 2] = [0, 4096];
const LARGE: &[u8] = b"/e/large";

fn number(device: &Arc<dyn BlockDevice>, copy: u64, at: usize) -> u32 {
    let block = device.read_at(copy, 4096).unwrap();
    u32::from_le_bytes(block[at..at + 4].try_into().unwrap())
}

#[test]
fn a_users_file_does_not_become_one_of_quota() {
    let target = Target::new(KIND);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let large = &View::of(&sound).found[LARGE];
    let of_project = NUMBERS_AT + 8;
    let right = number(&sound, 0, of_project);
    let damage = |with_file: bool| {
        let mut blocks: Vec<_> = COPIES
            .map(|copy| {
                let mut block = target.read(copy);
                let to = u32::try_from(large.ino).unwrap().to_le_bytes();
                block[of_project..of_project + 4].copy_from_slice(&to);
                (copy, block)
            })
            .into();
        if with_file {
            let inode = target.read(target.inode_of(right));
            let at = 360 + usize::from(u16::from_le_bytes([inode[360], inode[361]]));
            let first = u32::from_le_bytes(inode[at..at + 4].try_into().unwrap());
            blocks.push((u64::from(first) << 12, vec![0xa5; 4096]));
        }
        let injection = Injection { what: "the number of a file".into(), blocks };
        Arc::new(damaged(&target, &injection)) as Arc<dyn BlockDevice>
    };
    // The file of quota proves itself.
    let device = damage(false);
    assert!(codes(&device).contains(&"f2fs.superblock.field"));
    repaired(&device, Scope::Accounting);
    assert_eq!(COPIES.map(|copy| number(&device, copy, of_project)), [right; 2]);
    assert!(View::of(&device).found[LARGE] == *large);
    // It is damaged, too.
    let device = damage(true);
    let plan = plan(&device, Scope::All).unwrap();
    assert!(!plan.is_refused && plan.after.count() == 0, "{}", lines(&plan.after));
    apply(&plan, &device);
    assert_eq!(COPIES.map(|copy| number(&device, copy, of_project)), [0; 2]);
    assert!(View::of(&device).found[LARGE] == *large);
}

/// The NAT lost the entry of a hidden inode, which no name and no other node names: the superblock
/// does, and the SIT calls its block used.
#[test]
fn a_lost_inode_of_quota_is_found_without_losses() {
    const ENTRY: usize = 9;
    let target = Target::new(KIND);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let tree = View::of(&sound);
    for lost in [&[4_usize][..], &[5], &[6], &[4, 5, 6]] {
        let entries = |block: u64| {
            let mut bytes = target.read(block);
            for nid in lost {
                bytes[nid * ENTRY..][..ENTRY].fill(0);
            }
            (block, bytes)
        };
        let blocks = target.nat_blocks().into_iter().map(entries).collect();
        let injection = Injection { what: format!("{lost:?}"), blocks };
        let device = Arc::new(damaged(&target, &injection)) as Arc<dyn BlockDevice>;
        assert!(codes(&device).contains(&"f2fs.quota.inode"), "{lost:?}");
        repaired(&device, Scope::Accounting);
        for nid in lost {
            let (now, before) = (Target::of(&fork(&device)), u32::try_from(*nid).unwrap());
            assert_eq!(now.inode_of(before), target.inode_of(before), "{lost:?}");
        }
        let wrong = View::of(&device).wrong(&tree);
        assert!(wrong.is_empty(), "{lost:?}: {wrong:?}");
    }
}

fn fork(device: &Arc<dyn BlockDevice>) -> Arc<MemoryDevice> {
    let bytes = device.read_at(0, usize::try_from(device.geometry().size).unwrap()).unwrap();
    Arc::new(MemoryDevice::from_image(&bytes))
}
