//! What all checksums depend on: the UUID and the seed. And superblocks of other volumes.

use std::path::Path;
use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::mke2fs;

use crate::forms::rescued;
use crate::injected::image_of;
use crate::repaired::{complaint, plan, repaired, snapshot};
use crate::support::{check, edit_superblock};

const ARGS: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "512"];

/// Asserts that only the superblock is wrong, and that a repair gives the volume its files back.
fn judge(sound: &MemoryDevice, hurt: &MemoryDevice, at: &Path) {
    let found = check(Arc::new(hurt.fork())).unwrap();
    // A backup does not know the totals.
    let mut codes = found.counts.iter().map(|(kind, _)| kind.code);
    assert_eq!(codes.next(), Some("ext4.superblock.contradicted"), "{:?}", found.findings);
    assert!(codes.all(|code| code.starts_with("ext4.superblock.")), "{:?}", found.findings);
    let (plan, after) = repaired(hurt, Scope::Accounting).unwrap();
    assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0));
    let said = complaint(&after, at);
    assert!(said.is_none(), "{}", said.unwrap_or_default());
    snapshot(sound.fork()).assert_same(&snapshot(after));
}

/// With a backup the UUID is that of the backup; without one the volume gets a seed of its own.
#[test]
fn another_uuid_or_seed_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let with_seed = [ARGS, &["-O", "metadata_csum_seed"]].concat();
    for (size, args) in [(12, ARGS), (8, ARGS), (12, &with_seed), (8, &with_seed)] {
        image_of(&path, size << 20, args);
        let sound = read_image(&path).unwrap();
        let has_seed = args.len() > ARGS.len();
        let device = sound.fork();
        edit_superblock(&device, |bytes| match has_seed {
            true => bytes[624..628].copy_from_slice(&[1, 2, 3, 4]),
            false => bytes[104..120].fill(7),
        });
        judge(&sound, &device, &hurt);
        assert_eq!(rescued(&device).files.len(), rescued(&sound).files.len());
    }
}

/// The first superblock is one of another volume, with other sizes. The backups are right.
#[test]
fn the_superblock_of_another_volume_is_replaced_by_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("image"), dir.path().join("other"));
    image_of(&path, 12 << 20, ARGS);
    let sound = read_image(&path).unwrap();
    let files = rescued(&sound).files;
    for args in [["-t", "ext4", "-b", "2048"], ["-t", "ext4", "-b", "4096"]] {
        mke2fs(&other, 12 << 20, &args);
        let device = sound.fork();
        let first = read_image(&other).unwrap().read_at(1024, 1024).unwrap();
        device.write_at(1024, first).unwrap();
        judge(&sound, &device, &other);
        assert!(rescued(&device).files == files, "{args:?}");
        // Without a backup nothing is mended without losses.
        device.write_at(8193 * 1024, vec![0; 1024]).unwrap();
        let plan = plan(device.fork(), Scope::Accounting).unwrap();
        assert!(plan.changes.is_empty(), "{args:?}: {:?}", plan.steps.kept());
    }
}

/// Of backups of two volumes, those of the one that was made last count, also where the older one's
/// are in usual places and the other's are not.
#[test]
fn a_backup_of_an_older_volume_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (path, older) = (dir.path().join("image"), dir.path().join("older"));
    let small_groups = [ARGS, &["-g", "4096"]].concat();
    // The backups lie behind 32 MiB, and behind 24 MiB.
    for (args, block, size) in [(ARGS, 16_384, 2048), (&small_groups, 24_577, 1024)] {
        let blocks = size.to_string();
        mke2fs(&older, 40 << 20, &["-t", "ext4", "-b", &blocks, "-O", "^resize_inode"]);
        image_of(&path, 40 << 20, args);
        let sound = read_image(&path).unwrap();
        let files = rescued(&sound).files;
        let copy = read_image(&older).unwrap();
        let at = block * size;
        let mut backup = copy.read_at(at, 1024).unwrap().to_vec();
        assert_eq!(backup[56..58], [0x53, 0xef]);
        // The place is one of the other volume's file data or of nothing.
        backup[264..268].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
        let sum = cairn_base::checksum::crc32c(!0, &backup[..1020]).to_le_bytes();
        backup[1020..].copy_from_slice(&sum);
        let device = sound.fork();
        device.write_at(at, backup).unwrap();
        let descriptors = copy.read_at(at + size, 2048).unwrap();
        device.write_at(at + size, descriptors).unwrap();
        device.write_at(0, vec![0; 2048]).unwrap();
        assert!(rescued(&device).files == files, "{args:?}");
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!(plan.steps.losing().count(), 0, "{args:?}");
        let said = complaint(&after, &older);
        assert!(said.is_none(), "{args:?}: {}", said.unwrap_or_default());
        snapshot(sound.fork()).assert_same(&snapshot(after));
    }
}

/// The first superblock is sound and says a wrong size of inodes, which a backup does not.
#[test]
fn a_rescue_reads_by_the_backup_that_leads_to_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image_of(&path, 12 << 20, ARGS);
    let sound = read_image(&path).unwrap();
    let files = rescued(&sound).files;
    for size in [128_u16, 512, 1024] {
        let device = sound.fork();
        edit_superblock(&device, |bytes| bytes[88..90].copy_from_slice(&size.to_le_bytes()));
        assert!(rescued(&device).files == files, "{size}");
    }
}
