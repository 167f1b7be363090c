//! Every bit of every word of features, in the superblock and in that of the journal: e2fsck and
//! the check agree whether the volume can be checked and is sound.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{self, mke2fs};

use crate::injected::image_of;
use crate::repaired::{complaint, injected, repaired, snapshot};
use crate::support::difference;

/// The words, and where they are behind the start of their structure.
const WORDS: [(&str, u64); 3] = [("compat", 92), ("incompat", 96), ("ro_compat", 100)];
const JOURNAL_WORDS: [(&str, u64); 4] =
    [("compat", 36), ("incompat", 40), ("ro_compat", 44), ("nr_users", 64)];
/// Bits that e2fsck accepts, and Linux does not: fast commits in so short a journal, and clusters
/// beside a first block of 1.
const REFUSED_BY_LINUX: [(&str, usize); 2] = [("compat", 10), ("ro_compat", 9)];
/// `h_blocktype` of a journal's superblock.
const VERSION_AT: u64 = 7;

/// The byte at which the journal begins.
fn journal_at(image: &Path) -> u64 {
    let place = judge::run("debugfs", ["-R", "bmap <8> 0", image.to_str().unwrap()]);
    place.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap() * 1024
}

/// The volume with one bit of a word changed: `bytes` are the word's, the lowest one first.
fn with_bit(sound: &MemoryDevice, bytes: [u64; 4], bit: usize) -> MemoryDevice {
    let changed = sound.fork();
    let at = bytes[bit / 8];
    let byte = changed.read_at(at, 1).unwrap()[0];
    changed.write_at(at, vec![byte ^ 1 << (bit % 8)]).unwrap();
    changed
}

/// Compares all bits of a word but some. Returns what differs.
fn compare(
    sound: &MemoryDevice,
    bytes: [u64; 4],
    named: &str,
    at: &Path,
    left_out: &[usize],
) -> Vec<String> {
    let differs = |bit: usize| {
        write_image(&with_bit(sound, bytes, bit), at).unwrap();
        let (verdict, lines) = difference(at)?;
        Some(format!("{named}, bit {bit}: e2fsck exits {}, check: {lines}", verdict.status))
    };
    (0..32).filter(|bit| !left_out.contains(bit)).filter_map(differs).collect()
}

/// Fields that say something of groups, and cannot be so with these features or in the last group.
#[test]
fn what_e2fsck_refuses_of_groups_is_found_and_set() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for sums in ["^metadata_csum,uninit_bg", "metadata_csum"] {
        let features = format!("^flex_bg,^resize_inode,{sums}");
        mke2fs(&path, 12 << 20, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", &features]);
        let sound = read_image(&path).unwrap();
        let marked = injected(&path, &hurt, "set_bg 1 flags 7");
        write_image(&marked, &hurt).unwrap();
        let again = dir.path().join("again");
        let marked = injected(&hurt, &again, "set_bg 1 checksum calc");
        let large = injected(&path, &hurt, "ssv log_groups_per_flex 128");
        for (device, code) in [(marked, "ext4.group.flags"), (large, "ext4.superblock.field")] {
            assert!(complaint(&device, &hurt).is_some(), "{sums}: {code}");
            let (plan, after) = repaired(&device, Scope::Accounting).expect(code);
            let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
            assert!(codes.contains(&code) && plan.after.count() == 0, "{sums}: {codes:?}");
            assert_eq!(complaint(&after, &hurt), None, "{sums}: {code}");
            snapshot(sound.fork()).assert_same(&snapshot(after));
        }
    }
}

#[test]
fn e2fsck_agrees_on_every_bit_of_every_feature_word() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let mut wrong = Vec::new();
    for args in [
        &["-t", "ext3", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed"],
    ] {
        mke2fs(&path, 4 << 20, args);
        let sound = read_image(&path).unwrap();
        for (name, at) in WORDS {
            let bytes = [0, 1, 2, 3].map(|byte| 1024 + at + byte);
            let refused = REFUSED_BY_LINUX.iter().filter(|(word, _)| *word == name);
            let refused: Vec<usize> = refused.map(|(_, bit)| *bit).collect();
            wrong.extend(compare(&sound, bytes, &format!("{args:?}, {name}"), &hurt, &refused));
        }
        if args[1] != "ext3" {
            continue;
        }
        let journal = journal_at(&path);
        // The journal is big-endian. That of version 1 has no features, whatever is in their place.
        for (version, name, at) in JOURNAL_WORDS
            .map(|(name, at)| (4, name, at))
            .into_iter()
            .chain([(3, "ro_compat", 44), (3, "nr_users", 64)])
        {
            let journaled = sound.fork();
            journaled.write_at(journal + VERSION_AT, vec![version]).unwrap();
            let bytes = [3, 2, 1, 0].map(|byte| journal + at + byte);
            let named = format!("journal of kind {version}, {name}");
            wrong.extend(compare(&journaled, bytes, &named, &hurt, &[]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// A journal with features that nobody knows is made anew, and costs no file.
#[test]
fn a_journal_with_unknown_features_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 4 << 20, &["-t", "ext3", "-b", "1024", "-J", "size=1"]);
    let sound = read_image(&path).unwrap();
    let journal = journal_at(&path);
    for (at, bit) in [(40, 7), (44, 0), (44, 31), (64, 2)] {
        let bytes = [3, 2, 1, 0].map(|byte| journal + at + byte);
        let device = with_bit(&sound, bytes, bit);
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        let codes: Vec<_> = plan.steps.counts().map(|(kind, _)| kind.code).collect();
        assert_eq!((codes, plan.after.count()), (vec!["ext4.journal.invalid"], 0));
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{at}, bit {bit}: {}", said.unwrap_or_default());
    }
}

/// tune2fs and debugfs leave checksums in the file of orphans when they take the feature away.
/// Their repair costs nothing.
#[test]
fn a_file_of_orphans_has_no_checksums_without_the_feature() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 16 << 20, &["-t", "ext4", "-b", "1024", "-O", "orphan_file,metadata_csum"]);
    let debugfs = ["debugfs", "-w", "-R", "feature -metadata_csum"];
    for command in [&debugfs[..], &["tune2fs", "-O", "^metadata_csum"]] {
        std::fs::copy(&path, &hurt).unwrap();
        judge::run(command[0], command[1..].iter().copied().chain([hurt.to_str().unwrap()]));
        let device = read_image(&hurt).unwrap();
        let said = complaint(&device, &hurt).unwrap();
        assert!(said.contains("block 0 is not clean"), "{said}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!(plan.steps.losing().count(), 0);
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{command:?}: {}", said.unwrap_or_default());
    }
}

/// Other words of the superblock that e2fsck refuses or asks for: the revision, the UUID of a
/// journal on another device where there is none, and a quota file in a reserved inode.
#[test]
fn e2fsck_agrees_on_other_words_of_the_superblock() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let args =
        ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum,^metadata_csum_seed"];
    mke2fs(&path, 4 << 20, &args);
    let sound = read_image(&path).unwrap();
    for (at, repairs) in [(77, false), (79, false), (208, true), (223, true), (620, true)] {
        let device = with_bit(&sound, [1024 + at; 4], 0);
        write_image(&device, &hurt).unwrap();
        let lines = difference(&hurt).map(|(_, lines)| lines);
        assert!(lines.is_none(), "byte {at}: {}", lines.unwrap_or_default());
        let repaired = repaired(&device, Scope::Accounting);
        assert_eq!(repaired.is_some(), repairs, "byte {at}");
        let said = repaired.and_then(|(_, after)| complaint(&after, &hurt));
        assert!(said.is_none(), "byte {at}: {}", said.unwrap_or_default());
    }
}

/// A revision of 0 hides all features, and with them the checksums and the size of inodes. Nothing
/// is repaired by what such a superblock says: the revision comes from a backup, or is proved by
/// the checksum; without both it is taken only with losses allowed.
#[test]
fn a_revision_that_hides_the_features_is_not_believed() {
    const SMALL: u64 = 4 << 20;
    const PLAIN: &str = "^has_journal,^metadata_csum,^metadata_csum_seed";
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (size, features, code, scope) in [
        (SMALL, PLAIN, "ext4.superblock.revision", Scope::All),
        (SMALL, "metadata_csum", "ext4.superblock.bit", Scope::Accounting),
        (20 << 20, PLAIN, "ext4.superblock.damaged", Scope::Accounting),
        (20 << 20, "metadata_csum", "ext4.superblock.bit", Scope::Accounting),
    ] {
        image_of(&path, size, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", features]);
        let before = snapshot(read_image(&path).unwrap());
        let device = with_bit(&read_image(&path).unwrap(), [1024 + 76; 4], 0);
        write_image(&device, &hurt).unwrap();
        let said = difference(&hurt).map(|(verdict, lines)| verdict.output + &lines);
        assert!(said.is_none(), "{features}: {}", said.unwrap_or_default());
        let found = crate::support::check(std::sync::Arc::new(device.fork())).unwrap();
        assert_eq!(found.findings[0].kind.code, code, "{features}");
        if scope == Scope::All {
            let plan = crate::repaired::plan(device.fork(), Scope::Accounting).unwrap();
            assert!(plan.changes.is_empty() && plan.after.count() > 0, "{features}");
        }
        let (_, after) = repaired(&device, scope).unwrap();
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{features}: {}", said.unwrap_or_default());
        before.assert_same(&snapshot(after));
    }
}

/// A file of orphans without a journal is removed; with one that has to be made anew it stays, if
/// there is room for the journal.
#[test]
fn a_file_of_orphans_needs_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    mke2fs(&path, 8 << 20, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]);
    let fill = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(fill.path(), vec![7; 6_690_000]).unwrap();
    for (requests, journal, orphans, losses) in [
        (&["feature -has_journal"][..], false, false, 0),
        (&["clri <8>"], true, true, 0),
        (&["write FILL full", "ssv jnl_backup_type 0", "clri <8>"], false, false, 1),
    ] {
        std::fs::copy(&path, &hurt).unwrap();
        for request in requests {
            let request = request.replace("FILL", fill.path().to_str().unwrap());
            judge::run("debugfs", ["-w", "-R", &request, hurt.to_str().unwrap()]);
        }
        assert!(difference(&hurt).is_none(), "{requests:?}");
        let (plan, after) = repaired(&read_image(&hurt).unwrap(), Scope::Accounting).unwrap();
        assert_eq!((plan.after.count(), plan.steps.losing().count()), (0, losses), "{requests:?}");
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{requests:?}: {}", said.unwrap_or_default());
        let said = judge::dumpe2fs(&hurt);
        let features = said.lines().find(|line| line.starts_with("Filesystem features")).unwrap();
        let has = |name: &str| features.contains(name);
        assert_eq!((has("has_journal"), has("orphan_file")), (journal, orphans), "{features}");
    }
}

/// Without 64bit nobody uses the size of descriptors, but e2fsck accepts no odd one.
#[test]
fn an_odd_size_of_descriptors_is_found_where_it_has_no_use() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image_of(&path, 8 << 20, &["-t", "ext2", "-b", "1024", "-N", "512"]);
    let before = snapshot(read_image(&path).unwrap());
    for (size, is_wrong) in [(30, true), (96, true), (2048, true), (32, false), (64, false)] {
        let device = crate::repaired::injected(&path, &hurt, &format!("ssv desc_size {size}"));
        assert_eq!(complaint(&device, &hurt).is_some(), is_wrong, "{size}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.before.count() > 0, plan.after.count()), (is_wrong, 0), "{size}");
        assert_eq!(complaint(&after, &hurt), None, "{size}");
        before.assert_same(&snapshot(after));
    }
}

/// A volume may be made for any system. Linux refuses those of the Hurd with features that it has
/// no room for.
#[test]
fn the_creator_of_a_volume_is_no_defect() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let plain = "^64bit,^metadata_csum,^metadata_csum_seed";
    for (system, features) in [
        ("hurd", plain),
        ("freebsd", plain),
        ("2", "metadata_csum"),
        ("freebsd", "metadata_csum"),
        ("77", "^metadata_csum,uninit_bg"),
    ] {
        image_of(&path, 8 << 20, &["-t", "ext4", "-o", system, "-b", "1024", "-O", features]);
        let found = crate::support::check(std::sync::Arc::new(read_image(&path).unwrap())).unwrap();
        assert_eq!(found.count(), 0, "{system}, {features}: {:?}", found.findings);
    }
    mke2fs(&path, 8 << 20, &["-t", "ext4", "-o", "hurd", "-b", "1024"]);
    let (plan, _) = repaired(&read_image(&path).unwrap(), Scope::Accounting).unwrap();
    let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
    assert_eq!(codes, ["ext4.superblock.field"]);
}

/// Where Linux counts changes, the Hurd has the block of a translator.
#[test]
fn translators_show_whether_a_volume_is_of_the_hurd() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image_of(&path, 8 << 20, &["-t", "ext2", "-b", "1024", "-N", "512"]);
    let device = read_image(&path).unwrap();
    let at = crate::repaired::place_of(&path, "/file");
    device.write_at(at + 36, vec![1]).unwrap();
    let before = snapshot(device.fork());
    device.write_at(1024 + 72, vec![1]).unwrap();
    assert!(complaint(&device, &hurt).is_some());
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert!(plan.before.count() > 0 && plan.after.count() == 0);
    assert_eq!(after.read_at(1024 + 72, 4).unwrap()[..], [0; 4]);
    assert_eq!(complaint(&after, &hurt), None);
    before.assert_same(&snapshot(after));
    // A block that is free, which the inode counts, may be one.
    mke2fs(&path, 8 << 20, &["-t", "ext2", "-o", "hurd", "-b", "1024", "-I", "128"]);
    let empty = tempfile::NamedTempFile::new().unwrap();
    let request = format!("write {} file", empty.path().display());
    let device = injected(&path, &hurt, &request);
    let at = crate::repaired::place_of(&hurt, "/file");
    let blocks = device.read_at(at + 28, 4).unwrap();
    let blocks = u32::from_le_bytes(blocks[..4].try_into().unwrap()) + 2;
    device.write_at(at + 28, blocks.to_le_bytes().to_vec()).unwrap();
    device.write_at(at + 36, 5000_u32.to_le_bytes().to_vec()).unwrap();
    write_image(&device, &path).unwrap();
    let device = injected(&path, &hurt, "setb 5000");
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    let codes = plan.before.counts.iter().map(|(kind, _)| kind.code);
    let is_count = |code: &str| code.ends_with(".free_blocks");
    assert!(codes.into_iter().all(is_count), "{:?}", plan.before.findings);
    assert_eq!(complaint(&after, &hurt), None);
}
