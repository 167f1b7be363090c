//! Single bits of a superblock without a checksum, whose damage shows in numbers alone. Not the
//! numbers are repaired, but the bit: only the superblock changes.

use std::path::Path;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::repair::Scope;
use cairn_testkit::crash::{read_image, write_image};

use crate::injected::image_of;
use crate::repaired::{complaint, injected, repaired};

pub const POINTERS: &[&str] = &["-t", "ext2", "-b", "1024", "-N", "512"];
pub const EXTENTS: &[&str] =
    &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "^metadata_csum,^metadata_csum_seed"];
pub const SUMS: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-N",
    "512",
    "-O",
    "^metadata_csum,^metadata_csum_seed,uninit_bg,^resize_inode",
];
pub const SMALL: u64 = 8 << 20;
pub const LARGE: u64 = 20 << 20;

/// Fields that a repair sets anew: times and the state.
fn is_of_repair(at: usize) -> bool {
    (1024 + 44..1024 + 60).contains(&at)
}

/// Is only the bit mended, without losses?
pub fn assert_mended(sound: &MemoryDevice, bits: &[(u64, u8)], hurt: &Path, what: &str) {
    let device = sound.fork();
    for (at, bits) in bits {
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ bits]).unwrap();
    }
    let (plan, after) = repaired(&device, Scope::Accounting).expect(what);
    assert!(plan.before.count() > 0, "{what}");
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
    assert_eq!(complaint(&after, hurt), None, "{what}");
    let size = usize::try_from(sound.geometry().size).unwrap();
    let (before, now) = (sound.read_at(0, size).unwrap(), after.read_at(0, size).unwrap());
    let other: Vec<usize> =
        (0..size).filter(|at| before[*at] != now[*at] && !is_of_repair(*at)).collect();
    assert!(other.is_empty(), "{what}: {:?}", &other[..other.len().min(20)]);
}

pub fn each(layouts: &[(&[&str], u64)], bits: &[(u64, u8)], what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (args, size) in layouts {
        image_of(&path, *size, args);
        let sound = read_image(&path).unwrap();
        assert_mended(&sound, bits, &hurt, &format!("{args:?}, {size}: {what}"));
    }
}

#[test]
fn the_number_of_reserved_blocks_is_that_of_a_backup_or_of_mke2fs() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (args, size, percent) in [
        (POINTERS, SMALL, "5"),
        (EXTENTS, SMALL, "5"),
        (EXTENTS, SMALL, "0"),
        (POINTERS, SMALL, "12"),
        (EXTENTS, LARGE, "7"),
    ] {
        image_of(&path, size, &[args, &["-m", percent]].concat());
        let sound = read_image(&path).unwrap();
        for (at, bit) in [(9, 7), (10, 0), (11, 2)] {
            let what = format!("{args:?}, {size}, {percent} %: byte {at}");
            assert_mended(&sound, &[(at, 1 << bit)], &hurt, &what);
        }
    }
}

#[test]
fn types_in_entries_prove_their_feature() {
    let layouts = [(POINTERS, SMALL), (EXTENTS, SMALL), (EXTENTS, LARGE)];
    each(&layouts, &[(96, 2)], "filetype");
}

#[test]
fn a_journal_that_is_not_there_is_not_made() {
    let layouts = [(POINTERS, SMALL), (POINTERS, LARGE)];
    each(&layouts, &[(96, 4)], "needs_recovery");
}

#[test]
fn a_block_that_is_not_there_protects_nothing() {
    let layouts = [(POINTERS, SMALL), (EXTENTS, SMALL), (EXTENTS, LARGE)];
    each(&layouts, &[(97, 1)], "mmp");
}

/// A log that is to be replayed, without the feature that says that there is one.
#[test]
fn a_log_proves_the_feature_of_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image_of(&path, SMALL, EXTENTS);
    let device = read_image(&path).unwrap();
    for (at, bits) in [(92, 4), (96, 4)] {
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ bits]).unwrap();
    }
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    assert_eq!(complaint(&after, &hurt), None);
    let features = after.read_at(1024 + 92, 8).unwrap();
    assert_eq!((features[0] & 4, features[4] & 4), (4, 0), "has_journal, needs_recovery");
}

#[test]
fn checksums_of_descriptors_prove_the_uuid() {
    for bit in [0, 3, 7] {
        for at in [104, 109, 119] {
            each(&[(SUMS, SMALL), (SUMS, LARGE)], &[(at, 1 << bit)], "uuid");
        }
    }
    // With several groups, any byte.
    each(&[(SUMS, LARGE)], &[(111, 0x5a)], "uuid");
}

/// One checksum is the damaged one, not the UUID.
#[test]
fn a_single_wrong_checksum_says_nothing_of_the_uuid() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    // Of the UUIDs one bit away, one in 500 volumes has one with such a checksum.
    let uuid = ["-U", "00112233-4455-6677-8899-aabbccddeeff"];
    image_of(&path, SMALL, &[SUMS, &uuid].concat());
    let uuid = read_image(&path).unwrap().read_at(1024 + 104, 16).unwrap().to_vec();
    let sum = injected(&path, &hurt, "set_bg 0 checksum 4");
    let count = injected(&path, &hurt, "set_bg 0 free_inodes_count 9");
    for device in [sum, count] {
        write_image(&device, &hurt).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert!(plan.before.count() > 0 && plan.after.count() == 0);
        assert_eq!(after.read_at(1024 + 104, 16).unwrap().to_vec(), uuid);
        assert_eq!(complaint(&after, &hurt), None);
    }
}

/// What nobody can check says what is wrong, and which bytes would be right.
#[test]
fn a_superblock_that_is_refused_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image_of(&path, SMALL, POINTERS);
    let sound = read_image(&path).unwrap();
    for (at, bits, word, says) in [
        (77, 4, 76, "revision 1025"),
        (97, 8, 96, "FEATURE_I11"),
        (96, 8, 96, "external journal"),
        (98, 2, 0, "casefold"),
    ] {
        let device = sound.fork();
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ bits]).unwrap();
        assert!(complaint(&device, &hurt).is_some(), "{says}");
        let error = crate::support::check(std::sync::Arc::new(device)).expect_err(says);
        let error = error.to_string();
        assert!(error.contains(says), "{error}");
        if word == 0 {
            continue;
        }
        let right = sound.read_at(1024 + word, 4).unwrap();
        let right = right[..4].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
        let set = format!("the 4 bytes at offset {} of", 1024 + word);
        assert!(error.contains(&set) && error.contains(&right.join(" ")), "{error}");
    }
}
