//! A copy of the superblock that lies, with a magic number and sizes that are possible: the other
//! one is used, whichever is first, and written over it.

use std::sync::Arc;

use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_vfs::FileSystem;

use crate::fields::SUPERBLOCK;
use crate::flags::sampled;
use crate::inject::{Injection, Target};
use crate::readers::View;
use crate::repair::{apply, damaged, plan};
use crate::types::Judge;
use crate::volume::open;
use crate::{check, lines};

const FEATURE_AT: usize = 2180;
const INODE_CHECKSUM: u32 = 0x20;

fn superblock(device: &Arc<dyn BlockDevice>, copy: u64) -> Vec<u8> {
    device.read_at(copy * 4096 + 1024, 3072).unwrap().to_vec()
}

/// What became of a lie. None if the check does not see it.
fn repaired(target: &Target, injection: &Injection) -> Option<Arc<dyn BlockDevice>> {
    let what = &injection.what;
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(target, injection));
    let found = check(device.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    if found.count() == 0 {
        return None;
    }
    let plan = plan(&device, Scope::Accounting).unwrap();
    let told = || format!("{what}:\n{}{}", lines(&found), lines(&plan.after));
    assert!(!plan.is_refused && plan.after.count() == 0, "{}", told());
    assert_eq!(plan.steps.losing().count(), 0, "{}", told());
    apply(&plan, &device);
    assert_eq!(check(device.clone()).unwrap().count(), 0, "{}", told());
    Some(device)
}

#[test]
fn a_lying_copy_of_the_superblock_costs_nothing() {
    let target = Target::new(&[]);
    let mut cases = Vec::new();
    for copy in 0..2_u64 {
        for (name, at, width) in SUPERBLOCK {
            for change in [1_u64, 2, 16, 0x100, 0x10_0000] {
                let mut bytes = target.read(copy * 4096);
                let place = &mut bytes[1024 + at..1024 + at + width];
                let mut old = [0; 8];
                old[..*width].copy_from_slice(place);
                let new = u64::from_le_bytes(old) ^ change;
                place.copy_from_slice(&new.to_le_bytes()[..*width]);
                let what = format!("copy {copy}, {name} ^ {change:#x}");
                cases.push((*name, Injection { what, blocks: vec![(copy * 4096, bytes)] }));
            }
        }
    }
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let right = superblock(&sound, 0);
    for (name, injection) in sampled(cases, 3) {
        let Some(device) = repaired(&target, &injection) else { continue };
        for copy in 0..2 {
            // Nothing says which features a volume has that it does not use.
            let is_right = superblock(&device, copy) == right || name == "feature";
            assert!(is_right, "{}: copy {copy} is another", injection.what);
        }
    }
}

/// Whether inodes have checksums is seen from them.
#[test]
fn the_copy_that_lies_about_checksums_is_found() {
    for arguments in [&["-O", "extra_attr"][..], &["-O", "extra_attr,inode_checksum"]] {
        let target = Target::new(arguments);
        let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
        let right = superblock(&sound, 0);
        for copy in 0..2_u64 {
            let mut bytes = target.read(copy * 4096);
            let place = &mut bytes[1024 + FEATURE_AT..1024 + FEATURE_AT + 4];
            let features = u32::from_le_bytes((&*place).try_into().unwrap());
            place.copy_from_slice(&(features ^ INODE_CHECKSUM).to_le_bytes());
            let what = format!("{arguments:?}, copy {copy}");
            let injection = Injection { what: what.clone(), blocks: vec![(copy * 4096, bytes)] };
            let device = repaired(&target, &injection).unwrap();
            for copy in 0..2 {
                assert!(superblock(&device, copy) == right, "{what}");
            }
        }
    }
}

/// Both copies have a wrong checksum, and nothing else: a repair that may lose computes it, and a
/// rescue needs none.
#[test]
fn superblocks_with_wrong_checksums_are_used() {
    const CHECKSUM_AT: usize = 1024 + 3068;
    let target = Target::new(&["-O", "extra_attr,sb_checksum"]);
    let sound: Arc<dyn BlockDevice> = Arc::new(target.device.fork());
    let blocks = [0, 4096].map(|at| {
        let mut bytes = target.read(at);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&[1, 2, 3, 4]);
        (at, bytes)
    });
    let injection = Injection { what: "checksums".into(), blocks: blocks.into() };
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(&target, &injection));
    let found = lines(&check(device.clone()).unwrap());
    assert!(found.starts_with("f2fs.superblock.both: "), "{found}");
    let choice = cairn_f2fs::Choice::default();
    let rescue = cairn_f2fs::rescue::open(device.clone(), choice).unwrap();
    assert!(
        rescue.notes()[0].contains("checksum of superblock 0 is wrong"),
        "{:?}",
        rescue.notes()
    );
    assert!(plan(&device, Scope::Accounting).unwrap().changes.is_empty());
    let all = plan(&device, Scope::All).unwrap();
    assert_eq!((all.after.count(), all.steps.losing().count()), (0, 1));
    apply(&all, &device);
    assert_eq!(check(device.clone()).unwrap().count(), 0);
    assert!((0..2).all(|copy| superblock(&device, copy) == superblock(&sound, copy)));
}

/// What is lost besides was there before: a repair without losses leaves it, and is not refused.
#[test]
fn a_lying_copy_beside_what_loses_something_is_repaired() {
    const POINTER: std::ops::Range<usize> = 360..364;
    const EXTRA_ATTR: u8 = 8;
    let judge = Judge::new(&[]);
    let mut injection = judge.change("pointers", &|bytes| bytes[POINTER].fill(7));
    let mut bytes = judge.target.read(0);
    bytes[1024 + FEATURE_AT] ^= EXTRA_ATTR;
    injection.blocks.push((0, bytes));
    let device: Arc<dyn BlockDevice> = Arc::new(damaged(&judge.target, &injection));
    let found = lines(&check(device.clone()).unwrap());
    for code in ["f2fs.superblock.copies", "f2fs.block.address"] {
        assert!(found.contains(code), "{code}:\n{found}");
    }
    let safe = plan(&device, Scope::Accounting).unwrap();
    assert!(!safe.is_refused && safe.after.count() > 0, "{}", lines(&safe.after));
    let (tree, _) = judge.repair(&injection, Scope::All);
    assert!(tree.is_some());
}

/// A feature that needs `extra_attr` in a copy that does not have that: the other copy is used, by
/// mounts and by the check, and written over it.
#[test]
fn a_copy_whose_features_contradict_each_other_is_not_used() {
    const EXTRA_ATTR: u32 = 0x8;
    const CREATION_TIME: u32 = 0x100;
    for (arguments, bit) in [
        (&["-O", "extra_attr,inode_checksum"][..], EXTRA_ATTR),
        (&[], INODE_CHECKSUM),
        (&[], CREATION_TIME),
    ] {
        let judge = Judge::new(arguments);
        let sound: Arc<dyn BlockDevice> = Arc::new(judge.target.device.fork());
        let (right, sound) = (superblock(&sound, 0), View::of(&sound));
        for copy in 0..2_u64 {
            let mut bytes = judge.target.read(copy * 4096);
            let place = &mut bytes[1024 + FEATURE_AT..1024 + FEATURE_AT + 4];
            let features = u32::from_le_bytes((&*place).try_into().unwrap()) ^ bit;
            place.copy_from_slice(&features.to_le_bytes());
            let what = format!("{arguments:?}, copy {copy}, features {features:#x}");
            let injection = Injection { what, blocks: vec![(copy * 4096, bytes)] };
            let what = &injection.what;
            let device = Arc::new(damaged(&judge.target, &injection));
            let view = View::of(&(device.clone() as Arc<dyn BlockDevice>));
            assert!(view.failed.is_empty() && view.wrong(&sound).is_empty(), "{what}");
            open(device.clone(), "").unmount().unwrap();
            let mounted: Arc<dyn BlockDevice> = device;
            assert!(superblock(&mounted, 0) == right, "{what}");
            let device = repaired(&judge.target, &injection);
            let device = device.unwrap_or_else(|| panic!("{what}: nothing is found"));
            for copy in 0..2 {
                assert!(superblock(&device, copy) == right, "{what}: copy {copy} is another");
            }
        }
    }
}
