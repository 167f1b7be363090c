//! Sound volumes: nothing is found.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_testkit::judge::assert_f2fs_device_clean;
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::repair::{apply, plan};
use crate::volume::{End, KINDS, MIB, loaded, open, volume, with_zones, work, worked};
use crate::{check, lines};

/// Offset of `i_links` in an inode.
const I_LINKS: u64 = 12;

#[track_caller]
fn assert_sound(device: &Arc<MemoryDevice>, what: &str) -> cairn_check::Report {
    let device: Arc<dyn BlockDevice> = device.clone();
    let report = check(with_zones(device)).unwrap();
    assert_eq!(report.count(), 0, "{what}:\n{}", lines(&report));
    assert!(report.usage.files > 0 && report.usage.directories > 0, "{what}: {:?}", report.usage);
    report
}

fn counts_quota(arguments: &[&str]) -> bool {
    arguments.iter().any(|argument| argument.split(',').any(|feature| feature == "quota"))
}

#[test]
fn nothing_is_found_on_volumes_of_mkfs() {
    for arguments in KINDS {
        for size in [64 * MIB, 200 * MIB] {
            let size = if arguments.contains(&"-s") { 4 * size } else { size };
            let device = volume(size, arguments);
            assert_sound(&device, &format!("{arguments:?}, {size} bytes"));
        }
    }
}

#[test]
fn nothing_is_found_on_what_sload_has_copied() {
    for arguments in &KINDS[..2] {
        let report =
            assert_sound(&Arc::new(loaded(96 * MIB, arguments)), &format!("{arguments:?}"));
        assert_eq!((report.usage.files, report.usage.directories), (409, 5));
    }
}

#[test]
fn nothing_is_found_after_changes() {
    for arguments in KINDS {
        let size = if arguments.contains(&"-s") { 512 * MIB } else { 96 * MIB };
        for end in [End::Closed, End::Cut] {
            let device = worked(size, arguments, end);
            if counts_quota(arguments) {
                // A mount does not count: what the files of a new volume say is old.
                let old = check(device.clone()).unwrap();
                assert!(old.counts.iter().all(|(kind, _)| kind.code == "f2fs.quota.counts"));
                continue;
            }
            let report = assert_sound(&device, &format!("{arguments:?}, {end:?}"));
            let zoned = arguments == crate::volume::ZONED;
            assert_eq!(report.recovered.is_empty(), end == End::Closed || zoned, "{arguments:?}");
        }
    }
}

#[test]
fn nothing_is_found_on_volumes_that_cairn_makes() {
    const ALL: &str =
        "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found,sb_checksum";
    const COUNTED: &str = "extra_attr,quota,project_quota,encrypt,verity,casefold,lost_found";
    for features in [vec![], vec![ALL.to_owned()], vec![COUNTED.to_owned()]] {
        let device = Arc::new(MemoryDevice::new(96 * MIB));
        let options = MkfsOptions { features: features.clone(), ..MkfsOptions::default() };
        let runtime = cairn_base::runtime::threads::Threads::new();
        mkfs::make(device.clone(), &options, &*runtime).unwrap();
        assert_sound(&device, &format!("{features:?}"));
        work(&open(device.clone(), ""), End::Closed);
        if features.iter().all(|words| words != COUNTED) {
            assert_sound(&device, &format!("{features:?}, after changes"));
        }
    }
}

/// A directory that waits for its deletion has no link: fsck.f2fs finds one that has.
#[test]
fn a_removed_directory_with_links_is_found() {
    let device = volume(64 * MIB, KINDS[0]);
    let fs = open(device.clone(), "");
    let new = NewInode::Directory;
    let gone = fs.create(fs.root(), b"gone", new, 0o755, &Caller::ROOT).unwrap().ino;
    fs.rmdir(fs.root(), b"gone").unwrap();
    fs.sync().unwrap();
    fs.shutdown(false).unwrap();
    drop(fs);
    let footer = [u32::try_from(gone.get()).unwrap().to_le_bytes(); 2].concat();
    let (mut at, mut found) = (0, 0);
    while at < 64 * MIB {
        if device.read_at(at + 4072, 8).unwrap()[..] == footer[..] {
            device.write_at(at + I_LINKS, vec![2, 0, 0, 0]).unwrap();
            found += 1;
        }
        at += 4096;
    }
    assert!(found > 0);
    let report = check(device.clone()).unwrap();
    assert!(lines(&report).contains("f2fs.inode.links"), "{}", lines(&report));
    let device: Arc<dyn BlockDevice> = Arc::new(device.fork());
    let plan = plan(&device, Scope::Accounting).unwrap();
    let steps: Vec<String> = plan.steps.kept().iter().map(ToString::to_string).collect();
    assert!(plan.steps.losing().all(|step| step.loss.is_none()), "{steps:?}");
    apply(&plan, &device);
    let left = check(device.clone()).unwrap();
    assert_eq!(left.count(), 0, "{steps:?}, left:\n{}", lines(&left));
    let image = MemoryDevice::new(64 * MIB);
    image.write_at(0, device.read_at(0, 64 << 20).unwrap()).unwrap();
    assert_f2fs_device_clean(&image);
}
