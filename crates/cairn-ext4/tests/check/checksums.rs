//! Wrong checksums: what they say of the contents decides whether a repair loses something.

use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge;

use crate::injected::image;
use crate::repaired::{complaint, injected, plan, repaired, snapshot};

const ARGS: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "512"];

/// What debugfs prints.
fn debugfs(image: &Path, request: &str) -> String {
    judge::run("debugfs", ["-R", request, image.to_str().unwrap()])
}

/// A copy with one wrong bit.
fn with_flip(device: &MemoryDevice, at: u64) -> MemoryDevice {
    with_bits(device, at, 1)
}

/// A copy with wrong bits of a byte.
fn with_bits(device: &MemoryDevice, at: u64, mask: u8) -> MemoryDevice {
    let hurt = device.fork();
    let byte = hurt.read_at(at, 1).unwrap()[0];
    hurt.write_at(at, vec![byte ^ mask]).unwrap();
    hurt
}

/// The codes of what is found.
fn codes(device: &MemoryDevice) -> Vec<&'static str> {
    let plan = plan(device.fork(), Scope::Accounting).unwrap();
    plan.before.counts.iter().map(|(kind, _)| kind.code).collect()
}

/// Judges a checksum that is wrong in an image: contents that are right are kept without losses,
/// others are not touched.
fn judge_checksum(at: &Path, sound: &MemoryDevice, sum: u64, contents: u64, codes_of: [&str; 2]) {
    let [seal, losing] = codes_of;
    let device = with_flip(sound, sum);
    assert_eq!(codes(&device), [seal]);
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    assert!(complaint(&after, at).is_none());
    snapshot(sound.fork()).assert_same(&snapshot(after));

    let device = with_bits(sound, contents, 3);
    let found = codes(&device);
    assert!(found.contains(&losing) && !found.contains(&seal), "{found:?}");
    let (plan, _) = repaired(&device, Scope::Accounting).unwrap();
    let made: Vec<_> = plan.steps.kept().iter().map(|step| step.kind.code).collect();
    assert!(!made.contains(&losing), "{made:?}");
    let (plan, after) = repaired(&device, Scope::All).unwrap();
    assert!(plan.steps.losing().any(|step| step.kind.code == losing), "{losing}");
    let said = complaint(&after, at);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
}

/// A volume, its image, where the names of its root are, and where in them "file" is.
fn root_with_file() -> (tempfile::TempDir, MemoryDevice, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, ARGS);
    let sound = read_image(&path).unwrap();
    let root: u64 =
        debugfs(&path, "bmap <2> 0").lines().find_map(|line| line.parse().ok()).unwrap();
    let block = sound.read_at(root * 1024, 1024).unwrap();
    let name = block.windows(4).position(|bytes| bytes == b"file").unwrap() as u64;
    (dir, sound, root * 1024, name)
}

#[test]
fn a_block_of_names_is_sealed_if_all_else_agrees() {
    let (dir, sound, start, name) = root_with_file();
    let path = dir.path().join("image");
    // The first byte of the inode number of "file": it becomes another one's.
    let codes = ["ext4.directory.checksum_only", "ext4.directory.checksum"];
    judge_checksum(&path, &sound, start + 1023, start + name - 8, codes);
}

/// A letter of a name that has changed, which the checksum alone tells: the block is not taken as
/// it is without losses.
#[test]
fn a_block_with_a_changed_letter_is_not_sealed_without_losses() {
    let (dir, sound, start, name) = root_with_file();
    let path = dir.path().join("image");
    let device = with_bits(&sound, start + name, 3);
    let code = "ext4.directory.checksum";
    assert_eq!(codes(&device), [code]);
    let safe = plan(device.fork(), Scope::Accounting).unwrap();
    assert!(safe.changes.is_empty() && safe.after.count() == 1, "{:?}", safe.steps.kept());
    let (all, after) = repaired(&device, Scope::All).unwrap();
    let lost = all.steps.losing().any(|step| step.kind.code == code);
    assert!(lost && all.after.count() == 0, "{:?}", all.steps.kept());
    let said = complaint(&after, &path);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
    // A tail of which another byte is wrong still has the checksum of the names.
    let device = with_flip(&sound, start + 1024 - 12);
    assert_eq!(codes(&device), ["ext4.directory.checksum_only"]);
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    snapshot(sound).assert_same(&snapshot(after));
}

#[test]
fn a_block_of_attributes_is_sealed_if_their_hashes_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, ARGS);
    let value = dir.path().join("value");
    std::fs::write(&value, [b'v'; 300]).unwrap();
    let request = format!("ea_set -f {} /file user.name", value.display());
    judge::run("debugfs", ["-w", "-R", &request, path.to_str().unwrap()]);
    let said = debugfs(&path, "stat /file");
    let block = said.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let start = block.parse::<u64>().unwrap() * 1024;
    assert!(start > 0, "{said}");
    let sound = read_image(&path).unwrap();
    // The checksum is behind magic, references, blocks and hash; the value is at the end.
    let codes = ["ext4.xattr.checksum_only", "ext4.xattr.checksum"];
    judge_checksum(&path, &sound, start + 16, start + 1000, codes);
}

/// Errors that a mount has recorded are a finding, and a repair clears them.
#[test]
fn recorded_errors_are_found_and_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, ARGS);
    let sound = read_image(&path).unwrap();
    for request in ["ssv error_count 3", "ssv state 3"] {
        let device = injected(&path, &hurt, request);
        assert_eq!(codes(&device), ["ext4.superblock.errors"], "{request}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!((plan.steps.count(), plan.after.count()), (1, 0), "{request}");
        assert!(complaint(&after, &hurt).is_none(), "{request}");
        assert!(!debugfs(&hurt, "stats -h").contains("rror count"), "{request}");
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// The only superblock of a small volume, with two changed bits in each of its bytes: it is read as
/// it is, or the volume is not touched. No file is lost.
#[test]
fn a_superblock_without_a_backup_is_sealed_if_nothing_is_lost_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, ARGS);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    let (mut sealed, mut refused) = (0, 0);
    // A volume of revision 0 has neither features nor a checksum.
    const REVISION: u64 = 76;
    let bytes = (0..1024).step_by(if cairn_testkit::deep() { 7 } else { 13 });
    for at in bytes.filter(|at| *at != REVISION) {
        let device = with_bits(&sound, 1024 + at, 3);
        let safe = plan(device.fork(), Scope::Accounting);
        assert!(safe.map_or(true, |plan| plan.changes.is_empty()), "byte {at}");
        let Some((plan, after)) = repaired(&device, Scope::All) else {
            refused += 1;
            continue;
        };
        assert!(plan.steps.losing().any(|step| step.kind.code == "ext4.superblock.checksum"));
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "byte {at}: {}", said.unwrap_or_default());
        before.assert_same(&snapshot(after));
        sealed += 1;
    }
    println!("{sealed} sealed, {refused} refused");
    assert!(sealed > 2 * refused, "{sealed} sealed, {refused} refused");
}
