//! Single bits of `s_feature_compat` and of the checksums of group descriptors, which parts of the
//! volume and the backups contradict: only the superblock changes. What `tune2fs` changes stays.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{KernelMount, command, debugfs};

use crate::injected::image_of;
use crate::lost_bits::{EXTENTS, LARGE, POINTERS, SMALL, SUMS, assert_mended, each};
use crate::repaired::{complaint, plan, repaired, snapshot};
use crate::support::{check, flags};

const JOURNAL: &[&str] = &["-t", "ext3", "-b", "1024", "-N", "512"];
/// Bits of `s_feature_compat` and `s_feature_ro_compat`.
const HAS_JOURNAL: (u64, u8) = (92, 4);
const EXT_ATTR: (u64, u8) = (92, 8);
const RESIZE_INODE: (u64, u8) = (92, 0x10);
const DIR_INDEX: (u64, u8) = (92, 0x20);
const GDT_CSUM: (u64, u8) = (100, 0x10);

#[test]
fn a_journal_is_neither_made_nor_dropped_for_a_bit() {
    let layouts = [POINTERS, JOURNAL, EXTENTS].map(|args| [(args, SMALL), (args, LARGE)]);
    each(&layouts.concat(), &[HAS_JOURNAL], "has_journal");
}

#[test]
fn a_resize_inode_is_neither_made_nor_dropped_for_a_bit() {
    let layouts = [POINTERS, JOURNAL, EXTENTS, SUMS].map(|args| [(args, SMALL), (args, LARGE)]);
    each(&layouts.concat(), &[RESIZE_INODE], "resize_inode");
}

#[test]
fn indices_of_directories_stay_if_a_backup_has_their_feature() {
    each(&[(JOURNAL, LARGE), (EXTENTS, LARGE)], &[DIR_INDEX], "dir_index");
}

#[test]
fn checksums_of_descriptors_are_neither_made_nor_dropped_for_a_bit() {
    let layouts = [POINTERS, JOURNAL, EXTENTS, SUMS].map(|args| [(args, SMALL), (args, LARGE)]);
    each(&layouts.concat(), &[GDT_CSUM], "uninit_bg");
}

#[test]
fn attributes_in_blocks_prove_their_feature() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (args, size) in [(POINTERS, SMALL), (JOURNAL, LARGE), (EXTENTS, SMALL)] {
        image_of(&path, size, &[args, &["-I", "128"]].concat());
        let mount = KernelMount::new(&path, "");
        for name in ["file", "tree/below"] {
            let at = mount.path().join(name);
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&at, "user.name", name.as_bytes(), none).unwrap();
        }
        mount.unmount();
        let sound = read_image(&path).unwrap();
        assert_mended(&sound, &[EXT_ATTR], &hurt, &format!("{args:?}, {size}: ext_attr"));
    }
}

/// A log with changes, on a volume without the feature of a journal and without the mark that it
/// is to be replayed: the volume may have been written since.
#[test]
fn a_log_that_nobody_asks_for_is_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image_of(&path, SMALL, EXTENTS);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let first = debugfs(&path, "bmap <8> 0").lines().find_map(|line| line.parse::<u64>().ok());
    // s_start of the journal, where the log would begin.
    sound.write_at(first.unwrap() * 1024 + 28, vec![0, 0, 0, 2]).unwrap();
    let byte = sound.read_at(1024 + HAS_JOURNAL.0, 1).unwrap()[0];
    sound.write_at(1024 + HAS_JOURNAL.0, vec![byte ^ HAS_JOURNAL.1]).unwrap();
    let (plan, after) = repaired(&sound, Scope::All).unwrap();
    let codes: Vec<_> = plan.steps.kept().iter().map(|step| step.kind.code).collect();
    assert!(!codes.contains(&"ext4.superblock.contradicted"), "{codes:?}");
    before.assert_same(&snapshot(after.fork()));
    assert_eq!(complaint(&after, &hurt), None);
}

/// The image with other features; `None` if tune2fs refuses.
fn tuned(image: &Path, at: &Path, features: &str) -> Option<MemoryDevice> {
    std::fs::copy(image, at).unwrap();
    let done = command("tune2fs").args(["-O", features]).arg(at).output().unwrap();
    done.status.success().then(|| read_image(at).unwrap())
}

/// The check finds something where e2fsck does, and no feature goes back.
#[test]
fn features_that_tune2fs_changes_stay() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other, hurt] = ["image", "other", "hurt"].map(|name| dir.path().join(name));
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (args, size) in [(POINTERS, LARGE), (JOURNAL, LARGE), (EXTENTS, SMALL), (SUMS, LARGE)] {
        image_of(&path, size, args);
        for features in [
            "has_journal",
            "^has_journal",
            "^resize_inode",
            "dir_index",
            "^dir_index",
            "uninit_bg",
            "^uninit_bg",
            "^huge_file",
            "^large_file",
            "^flex_bg",
            "extents",
            "sparse_super",
        ] {
            let Some(device) = tuned(&path, &other, features) else { continue };
            tried += 1;
            let what = format!("{args:?}, {size}: {features}");
            let is_found = flags(&check(std::sync::Arc::new(device.fork())));
            let said = complaint(&device, &hurt);
            if is_found != said.is_some() {
                wrong.push(format!("{what}: found {is_found}: {said:?}"));
            }
            let Ok(planned) = plan(device.fork(), Scope::All) else {
                wrong.push(format!("{what}: no repair"));
                continue;
            };
            let steps = planned.steps.kept().iter().map(|step| step.kind.code);
            if steps.into_iter().any(|code| code == "ext4.superblock.contradicted") {
                wrong.push(format!("{what}: goes back"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 30, "{tried}");
}
