//! Quota files: compared with the files as e2fsck does, and counted again by a repair that keeps
//! limits.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, command, mke2fs};

use crate::checked::assert_clean;
use crate::repaired::{complaint, injected, repaired, snapshot};
use crate::support::{check, difference};

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "quota,project"],
    &["-t", "ext4", "-b", "4096", "-N", "512", "-O", "quota"],
];

/// A volume with files of several owners. The entry of user 1000 has limits.
fn image(at: &Path, args: &[&str]) -> MemoryDevice {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..40_u32 {
        let path = tree.path().join(format!("file {number}"));
        std::fs::write(&path, vec![b'x'; 700 * number as usize]).unwrap();
        let (user, group) = (1000 + number % 17, 2000 + number * 3000 % 9);
        std::os::unix::fs::chown(&path, Some(user), Some(group)).unwrap();
    }
    let directory = tree.path().to_str().unwrap();
    mke2fs(at, 8 << 20, &[args, &["-d", directory]].concat());
    // mke2fs counts before it copies files.
    command("e2fsck").arg("-fy").arg(at).output().expect("e2fsck starts");
    let device = read_image(at).unwrap();
    device.write_at(entry_of(at, &device, 1000) + LIMITS, [7, 0, 5].to_vec()).unwrap();
    write_image(&device, at).unwrap();
    assert_clean(at);
    device
}

/// Bytes before the limits of an entry.
const LIMITS: u64 = 8;

/// The byte at which the entry of a user is.
fn entry_of(image: &Path, device: &MemoryDevice, user: u32) -> u64 {
    let size =
        if judge::dumpe2fs(image).contains("Block size:               1024") { 1024 } else { 4096 };
    for block in 0.. {
        let request = format!("bmap <3> {block}");
        let place = judge::run("debugfs", ["-R", &request, image.to_str().unwrap()]);
        let place = place.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap_or(0);
        assert!(place > 0, "no entry of {user}");
        let bytes = device.read_at(place * size, size as usize).unwrap();
        // The number, and a word of zeros; both in a block of entries.
        let mut id = user.to_le_bytes().to_vec();
        id.extend([0; 4]);
        if let Some(at) = bytes.windows(8).position(|bytes| bytes == id) {
            return place * size + at as u64;
        }
    }
    unreachable!("the loop ends before")
}

/// The byte at which a block of 1024 bytes of the file of users begins.
fn block_of(image: &Path, number: u32) -> u64 {
    let is_small = judge::dumpe2fs(image).contains("Block size:               1024");
    let parts = if is_small { 1 } else { 4 };
    let request = format!("bmap <3> {}", number / parts);
    let place = judge::run("debugfs", ["-R", &request, image.to_str().unwrap()]);
    let place = place.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap();
    place * 1024 * u64::from(parts) + u64::from(number % parts) * 1024
}

/// The limits of a slot that is not in use.
fn free_slot(image: &Path, device: &MemoryDevice) -> u64 {
    let head = device.read_at(block_of(image, 0), 32).unwrap();
    let free = u32::from_le_bytes(head[28..32].try_into().unwrap());
    let first = block_of(image, free) + 16;
    let is_free = |at: &u64| device.read_at(*at, 72).unwrap().iter().all(|byte| *byte == 0);
    (0..14).map(|slot| first + slot * 72).find(is_free).unwrap() + LIMITS
}

fn limits(image: &Path, device: &MemoryDevice) -> [u8; 3] {
    let at = entry_of(image, device, 1000) + LIMITS;
    device.read_at(at, 3).unwrap()[..].try_into().unwrap()
}

#[test]
fn counts_that_are_wrong_are_found_and_set_and_limits_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in KINDS {
        let sound = image(&path, args);
        let before = snapshot(sound.fork());
        let entry = entry_of(&path, &sound, 1001);
        // curinodes and curspace of the entry, and then an entry without its owner.
        for (at, code) in [
            (entry + 24, "ext4.quota.counts"),
            (entry + 48, "ext4.quota.counts"),
            (entry, "ext4.quota.file"),
            (free_slot(&path, &sound), "ext4.quota.file"),
        ] {
            let device = sound.fork();
            let byte = device.read_at(at, 1).unwrap()[0];
            device.write_at(at, vec![byte ^ 0x40]).unwrap();
            write_image(&device, &hurt).unwrap();
            assert!(difference(&hurt).is_none(), "{args:?}, byte {at}");
            let found = check(std::sync::Arc::new(device.fork())).unwrap();
            let codes: Vec<_> = found.counts.iter().map(|(kind, _)| kind.code).collect();
            assert_eq!(codes, [code]);
            let scope = if code.ends_with("file") { Scope::All } else { Scope::Accounting };
            let (plan, after) = repaired(&device, scope).unwrap();
            assert_eq!(plan.after.count(), 0);
            let said = complaint(&after, &hurt);
            assert!(said.is_none(), "{args:?}, byte {at}: {}", said.unwrap_or_default());
            assert_eq!(limits(&hurt, &after), [7, 0, 5], "{args:?}, byte {at}");
            before.assert_same(&snapshot(after));
        }
    }
}

/// Owners that come, go and change, files that a repair removes, and quota files that are no files.
#[test]
fn what_a_repair_changes_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in KINDS {
        let sound = image(&path, args);
        for request in [
            "sif \"/file 7\" uid 4242",
            "sif \"/file 7\" gid 77",
            "clri \"/file 9\"",
            "kill_file \"/file 9\"",
            "sif \"/file 3\" links_count 9",
            "sif \"/file 3\" block[2] 0xffff",
            "clri <3>",
            "clri <4>",
            "clri <8>",
            "sif <3> size 1024",
            "ssv usr_quota_inum 0",
            "ssv grp_quota_inum 0",
            "ssv prj_quota_inum 0",
            "sif <3> block[0] 0xf30b0001",
        ] {
            let device = injected(&path, &hurt, request);
            assert!(difference(&hurt).is_none(), "{args:?}, {request}");
            let Some((plan, after)) = repaired(&device, Scope::All) else {
                panic!("{args:?}, {request}: refused");
            };
            assert_eq!(plan.after.count(), 0, "{request}");
            let said = complaint(&after, &hurt);
            assert!(said.is_none(), "{args:?}, {request}: {}", said.unwrap_or_default());
            let features = judge::dumpe2fs(&hurt);
            let features = features.lines().find(|line| line.starts_with("Filesystem features"));
            let features = features.unwrap();
            let has = |name: &str| features.contains(name);
            assert!(has(" quota") && has("has_journal"), "{args:?}, {request}: {features}");
            if !request.contains("<3>") {
                assert_eq!(limits(&hurt, &after), [7, 0, 5], "{args:?}, {request}");
            }
        }
        drop(sound);
    }
}

/// The superblock names somebody's file in place of one of the volume: it stays as it is.
#[test]
fn a_number_of_another_file_costs_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in KINDS {
        let before = snapshot(image(&path, args)).without(b"lost+found");
        for request in [
            "ssv usr_quota_inum 30",
            "ssv prj_quota_inum 30",
            "ssv orphan_file_inum 30",
            "ssv journal_inum 30",
        ] {
            let device = injected(&path, &hurt, request);
            let Some((_, after)) = repaired(&device, Scope::All) else {
                panic!("{args:?}, {request}: refused");
            };
            let said = complaint(&after, &hurt);
            assert!(said.is_none(), "{args:?}, {request}: {}", said.unwrap_or_default());
            println!("{args:?}, {request}");
            before.assert_same(&snapshot(after).without(b"lost+found"));
        }
    }
}

/// e2fsck leaves out symbolic links in their inodes, which Linux counts: neither is a defect, and a
/// repair counts as e2fsck does.
#[test]
fn links_in_their_inodes_may_be_counted_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let tree = tempfile::tempdir().unwrap();
    for (name, len) in [("one", 80), ("two", 120), ("fast", 20)] {
        std::os::unix::fs::symlink("t".repeat(len), tree.path().join(name)).unwrap();
        std::os::unix::fs::lchown(tree.path().join(name), Some(1000), Some(1000)).unwrap();
    }
    let directory = tree.path().to_str().unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-N", "512", "-O", "quota,inline_data"];
    mke2fs(&path, 8 << 20, &[&args[..], &["-d", directory]].concat());
    command("e2fsck").arg("-fy").arg(&path).output().expect("e2fsck starts");
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let inodes = entry_of(&path, &sound, 1000) + 24;
    let stored = sound.read_at(inodes, 1).unwrap()[0];
    for (more, is_wrong) in [(0, false), (1, false), (2, false), (3, true), (255, true)] {
        let device = sound.fork();
        device.write_at(inodes, vec![stored.wrapping_add(more)]).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.before.count() > 0, plan.after.count()), (is_wrong, 0), "{more}");
        if is_wrong {
            assert_eq!(complaint(&after, &hurt), None, "{more}");
        }
        before.assert_same(&snapshot(after));
    }
    assert_eq!(complaint(&sound, &hurt), None);
}
