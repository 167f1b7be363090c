//! One wrong bit of a structure with a checksum: it is found, and corrected without losses.

use std::os::unix::fs::FileExt;
use std::path::Path;

use cairn_block::BlockDeviceExt;
use cairn_block::memory::MemoryDevice;
use cairn_check::repair::Scope;
use cairn_testkit::crash::read_image;
use cairn_testkit::judge::{self, KernelMount};

use crate::forms::rescued;
use crate::injected::image;
use crate::repaired::{complaint, injected, place_of, repaired, snapshot};

const BLOCK: u64 = 1024;

/// What debugfs prints.
fn debugfs(image: &Path, request: &str) -> String {
    judge::run("debugfs", ["-R", request, image.to_str().unwrap()])
}

/// The number behind words of a text.
fn number(text: &str, before: &str) -> u64 {
    let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// A volume with a tree of extents and a block of attributes.
fn volume(path: &Path) -> MemoryDevice {
    image(path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let mount = KernelMount::new(path, "");
    let file = std::fs::File::create(mount.path().join("holes")).unwrap();
    for at in 0..20 {
        file.write_at(b"data", at * 2 * BLOCK).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    let value = path.with_extension("value");
    std::fs::write(&value, [b'v'; 300]).unwrap();
    let request = format!("ea_set -f {} /file user.name", value.display());
    judge::run("debugfs", ["-w", "-R", &request, path.to_str().unwrap()]);
    read_image(path).unwrap()
}

/// Bits of each kind of structure: what it is, the byte, the bit.
fn bits(path: &Path, sound: &MemoryDevice) -> Vec<(String, u64, u8)> {
    let root = debugfs(path, "bmap <2> 0").lines().find_map(|line| line.parse().ok());
    let root: u64 = root.unwrap();
    let block = sound.read_at(root * BLOCK, 1024).unwrap();
    let name = block.windows(4).position(|bytes| bytes == b"file").unwrap() as u64;
    let attributes = number(&debugfs(path, "stat /file"), "File ACL: ") * BLOCK;
    let extents = number(&debugfs(path, "stat /holes"), "(ETB0):") * BLOCK;
    let (file, directory) = (place_of(path, "/file"), place_of(path, "/tree"));
    let root = root * BLOCK;
    let mut found = vec![
        ("a name".to_owned(), root + name, 0),
        ("the number of an entry".into(), root + name - 8, 3),
        ("a value".into(), attributes + 1000, 5),
        ("magic of extents".into(), extents, 1),
        ("number of extents".into(), extents + 2, 0),
        ("capacity of extents".into(), extents + 4, 3),
        ("place of an extent".into(), extents + 12 + 8, 2),
        ("checksum of extents".into(), extents + 1020, 7),
    ];
    // Mode, size, flags, generation, map, checksum, extra size, checksum, creation.
    for at in [1, 4, 33, 100, 103, 60, 124, 128, 131, 144] {
        found.push((format!("byte {at} of a file's inode"), file + at, 4));
        found.push((format!("byte {at} of a directory's inode"), directory + at, 6));
    }
    found
}

#[test]
fn one_wrong_bit_is_corrected_without_losses() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let sound = volume(&path);
    let before = snapshot(sound.fork());
    for (what, at, bit) in bits(&path, &sound) {
        let device = sound.fork();
        let byte = device.read_at(at, 1).unwrap()[0];
        device.write_at(at, vec![byte ^ 1 << bit]).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).expect(&what);
        let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
        assert_eq!(codes, ["ext4.metadata.bit"], "{what}");
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
        assert_eq!(after.read_at(at, 1).unwrap()[0], byte, "{what}");
        before.assert_same(&snapshot(after.fork()));
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "{what}: {}", said.unwrap_or_default());
    }
}

/// Several wrong bits of a structure are no bit, but one each of several structures is.
#[test]
fn each_structure_has_a_bit_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let sound = volume(&path);
    let device = sound.fork();
    let bits = bits(&path, &sound);
    let chosen = ["a name", "place of an extent", "byte 4 of a file's inode", "a value"];
    let chosen = chosen.map(|what| bits.iter().find(|(name, ..)| name == what).unwrap());
    for (_, at, bit) in chosen {
        let byte = device.read_at(*at, 1).unwrap()[0];
        device.write_at(*at, vec![byte ^ 1 << bit]).unwrap();
    }
    let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
    assert_eq!((plan.before.count(), plan.steps.losing().count()), (4, 0));
    snapshot(sound.fork()).assert_same(&snapshot(after.fork()));
    assert!(complaint(&after, &hurt).is_none());
}

/// The checksum of a record that nobody can have written, on one that is sound but for a bit: the
/// bit that meets the checksum is not the wrong one.
#[test]
fn a_bit_that_makes_a_record_impossible_is_not_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    let sound = volume(&path);
    let before = snapshot(sound.fork());
    // Another type, no extent tree, a block of attributes beyond the volume.
    for request in ["mode 0110644", "block[0] 0x1f30b", "file_acl 0x40000000"] {
        let other = injected(&path, &hurt, &format!("sif /file {request}"));
        let record = place_of(&path, "/file");
        let sum = |at: u64| other.read_at(record + at, 2).unwrap();
        let device = sound.fork();
        [124, 130].iter().for_each(|at| device.write_at(record + at, sum(*at)).unwrap());
        let found = crate::support::check(std::sync::Arc::new(device.fork())).unwrap();
        let codes: Vec<_> = found.counts.iter().map(|(kind, _)| kind.code).collect();
        assert_eq!(codes, ["ext4.inode.checksum"], "{request}");
        let (_, after) = repaired(&device, Scope::All).unwrap();
        assert_eq!(complaint(&after, &hurt), None, "{request}");
        before.assert_same(&snapshot(after));
    }
}

/// Any bit of the only superblock of a small volume.
#[test]
fn a_bit_of_a_superblock_without_a_backup_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    let before = snapshot(sound.fork());
    // s_blocks_count, s_magic, s_feature_incompat, s_uuid, reserved, s_checksum.
    for (at, bit) in [(4, 3), (56, 0), (96, 6), (110, 7), (900, 1), (1021, 5)] {
        let device = sound.fork();
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ 1 << bit]).unwrap();
        let (plan, after) = repaired(&device, Scope::Accounting).unwrap();
        let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
        assert_eq!(codes, ["ext4.superblock.bit"], "byte {at}");
        assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "byte {at}");
        before.assert_same(&snapshot(after.fork()));
        let said = complaint(&after, &hurt);
        assert!(said.is_none(), "byte {at}: {}", said.unwrap_or_default());
    }
}

/// The same of volumes without checksums: the bit with which everything else agrees is the right
/// one.
#[test]
fn a_bit_of_the_only_superblock_without_a_checksum_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for (kind, features) in [("ext2", "none"), ("ext3", "has_journal"), ("ext4", "^metadata_csum")]
    {
        image(&path, &["-t", kind, "-b", "1024", "-N", "512", "-O", features]);
        let sound = read_image(&path).unwrap();
        let before = snapshot(sound.fork());
        // s_inodes_count, s_blocks_count, s_first_data_block, s_log_block_size,
        // s_blocks_per_group, s_inodes_per_group, s_magic, s_first_ino, s_inode_size.
        for (at, bit) in [
            (0, 0),
            (0, 3),
            (1, 0),
            (1, 2),
            (3, 7),
            (5, 6),
            (6, 1),
            (20, 2),
            (24, 0),
            (24, 1),
            (32, 0),
            (33, 6),
            (40, 0),
            (40, 3),
            (41, 0),
            (41, 2),
            (56, 0),
            (56, 7),
            (57, 4),
            (84, 0),
            (85, 3),
            (88, 0),
        ] {
            let device = sound.fork();
            let byte = device.read_at(1024 + at, 1).unwrap()[0];
            device.write_at(1024 + at, vec![byte ^ 1 << bit]).unwrap();
            let what = format!("{kind}, byte {at}, bit {bit}");
            assert!(cairn_ext4::check::has_superblock(&device).unwrap(), "{what}");
            let (plan, after) = repaired(&device, Scope::Accounting).expect(&what);
            let codes: Vec<_> = plan.before.counts.iter().map(|(kind, _)| kind.code).collect();
            assert_eq!(codes, ["ext4.superblock.bit"], "{what}");
            assert_eq!((plan.steps.losing().count(), plan.after.count()), (0, 0), "{what}");
            assert_eq!(after.read_at(1024 + at, 1).unwrap()[0], byte, "{what}");
            before.assert_same(&snapshot(after.fork()));
            assert_eq!(complaint(&after, &hurt), None, "{what}");
        }
    }
}

/// What is no single bit, or a feature of a newer program, stays as it is.
#[test]
fn a_superblock_that_no_single_bit_explains_is_not_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    image(&path, &["-t", "ext2", "-b", "1024", "-N", "512"]);
    let sound = read_image(&path).unwrap();
    assert!(!cairn_ext4::check::has_superblock(&sound).unwrap());
    // Two bits of s_log_block_size, an unknown feature, and a volume that was cut.
    for (at, bits) in [(24, 0x60), (98, 0x10)] {
        let device = sound.fork();
        let byte = device.read_at(1024 + at, 1).unwrap()[0];
        device.write_at(1024 + at, vec![byte ^ bits]).unwrap();
        assert!(!cairn_ext4::check::has_superblock(&device).unwrap(), "byte {at}");
    }
    // Checksums that do not hold are no reason to take the feature for wrong.
    image(&path, &["-t", "ext4", "-b", "1024", "-N", "512", "-O", "metadata_csum"]);
    let device = read_image(&path).unwrap();
    device.write_at(1024 + 104, vec![0x33; 16]).unwrap();
    assert!(!cairn_ext4::check::has_superblock(&device).unwrap());
    let short = MemoryDevice::new(4 << 20);
    short.load(0, &sound.read_at(0, 4 << 20).unwrap());
    assert!(!cairn_ext4::check::has_superblock(&short).unwrap());
}

/// `wipefs` clears the magic number of the only superblock.
#[test]
fn the_magic_number_is_set_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, hurt) = (dir.path().join("image"), dir.path().join("hurt"));
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"], &["-t", "ext2"]] {
        image(&path, &[args, &["-b", "1024", "-N", "512"]].concat());
        let sound = read_image(&path).unwrap();
        let device = sound.fork();
        device.write_at(1024 + 56, vec![0; 2]).unwrap();
        assert!(rescued(&device).files == rescued(&sound).files, "{args:?}");
        let (planned, after) = repaired(&device, Scope::Accounting).unwrap();
        assert_eq!(planned.after.count(), 0, "{args:?}: {:?}", planned.after.findings);
        assert_eq!(complaint(&after, &hurt), None, "{args:?}");
        snapshot(sound).assert_same(&snapshot(after));
    }
}
