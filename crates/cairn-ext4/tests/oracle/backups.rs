//! Backups of superblock and descriptors. They are used if the first ones are damaged or the option
//! `sb=` names one, and the volume is then read-only. They are not used on a device without a
//! volume. The named command repairs the volume.

use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_ext4::{Error, Ext4};
use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{KernelMount, command};
use cairn_testkit::tree::{
    Snapshot, SnapshotOptions, TreeSpec, VolumeTarget, build, digest_path, digest_volume, plan,
};
use cairn_vfs::{Caller, FileSystem, NewInode};

use crate::checked::assert_clean;
use crate::support::{open, try_open, volume};

const MIB: u64 = 1 << 20;
const SUPERBLOCK: u64 = 1024;

fn digest(fs: &dyn FileSystem) -> Snapshot {
    digest_volume(fs, SnapshotOptions::default()).unwrap()
}

/// A volume with some files, closed.
fn filled(size: u64, args: &[&str]) -> (Arc<MemoryDevice>, Snapshot) {
    let device = volume(size, &[&["-t", "ext4"], args].concat());
    let fs = open(&device, "noatime");
    build(
        &VolumeTarget::new(&*fs),
        &plan(&TreeSpec { directories: 5, files: 20, ..TreeSpec::small(1) }),
    );
    fs.unmount().unwrap();
    let fs = open(&device, "ro");
    let tree = digest(&*fs);
    fs.unmount().unwrap();
    (device, tree)
}

/// Changes some bytes.
fn poke(device: &MemoryDevice, at: u64, bytes: &[u8]) {
    let mut page = device.read_at(at / 4096 * 4096, 4096).unwrap().to_vec();
    let offset = usize::try_from(at % 4096).unwrap();
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
    device.write_at(at / 4096 * 4096, page).unwrap();
}

fn all_of(device: &MemoryDevice) -> Vec<u8> {
    device.read_at(0, usize::try_from(device.geometry().size).unwrap()).unwrap().to_vec()
}

/// The backup and the block size in the reason.
fn named(fs: &Ext4) -> [String; 2] {
    let reason = fs.read_only_reason().expect("a volume that is opened by a backup is read-only");
    let words: Vec<&str> = reason.split(' ').collect();
    let after =
        |flag| words[words.iter().position(|word| *word == flag).expect(&reason) + 1].to_owned();
    [after("-b"), after("-B")]
}

/// Runs e2fsck with the named backup, which restores the whole volume.
fn repaired(device: &MemoryDevice, [block, size]: [String; 2]) -> Arc<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(device, file.path()).unwrap();
    let output = command("e2fsck")
        .args(["-fy", "-b", &block, "-B", &size])
        .arg(file.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    assert_clean(file.path());
    Arc::new(read_image(file.path()).unwrap())
}

/// Damage to the first superblock or descriptors: its name, the change on a volume with this block
/// size, and whether only a checksum detects it.
type Damage = (&'static str, fn(&MemoryDevice, u64), bool);

const DAMAGES: [Damage; 6] = [
    ("no superblock at all", |device, _| poke(device, SUPERBLOCK, &[0; 1024]), false),
    ("another magic number", |device, _| poke(device, SUPERBLOCK + 0x38, b"no"), false),
    ("blocks of 2 GiB", |device, _| poke(device, SUPERBLOCK + 0x18, &[21]), false),
    ("a changed label", |device, _| poke(device, SUPERBLOCK + 0x78, b"?"), true),
    ("no descriptors", |device, block| poke(device, descriptors(block), &[0; 1024]), false),
    (
        "a table beyond the end",
        |device, block| poke(device, descriptors(block) + 8, &[0xff; 4]),
        false,
    ),
];

/// Byte of the first block of descriptors.
fn descriptors(block: u64) -> u64 {
    (SUPERBLOCK / block + 1) * block
}

#[test]
fn a_backup_takes_the_place_of_what_is_damaged_and_its_volume_is_only_read() {
    let layouts: [(u64, u64, &[&str]); 8] = [
        (20 * MIB, 1024, &["-b", "1024"]),
        (20 * MIB, 1024, &["-b", "1024", "-O", "^metadata_csum,^metadata_csum_seed,^64bit"]),
        (20 * MIB, 1024, &["-b", "1024", "-O", "^sparse_super,^resize_inode"]),
        (
            20 * MIB,
            1024,
            &["-b", "1024", "-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"],
        ),
        (20 * MIB, 1024, &["-b", "1024", "-O", "meta_bg,^resize_inode"]),
        (40 * MIB, 2048, &["-b", "2048"]),
        (140 * MIB, 4096, &["-b", "4096"]),
        (20 * MIB, 4096, &["-b", "4096", "-O", "^has_journal", "-g", "2048"]),
    ];
    for (size, block, args) in layouts {
        let (device, tree) = filled(size, args);
        let checksums = !args.iter().any(|word| word.contains("^metadata_csum"));
        let damages = DAMAGES.iter().filter(|(_, _, needs)| checksums || !needs);
        for (what, damage, _) in damages {
            // If groups have an unusual size, a superblock must be left that gives it.
            if args.contains(&"-g") && ["no superblock at all", "blocks of 2 GiB"].contains(what) {
                continue;
            }
            let device = Arc::new(device.fork());
            damage(&device, block);
            let before = all_of(&device);
            let fs = try_open(device.clone(), "")
                .unwrap_or_else(|error| panic!("{args:?}, {what}: {error}"));
            digest(&*fs).assert_same(&tree);
            assert!(fs.remount("rw").is_err() && fs.set_label(b"x").is_err(), "{args:?}, {what}");
            let place = named(&fs);
            fs.unmount().unwrap();
            assert!(all_of(&device) == before, "{args:?}, {what}: something was written");
            if !deep() && *what != "no superblock at all" && *what != "a table beyond the end" {
                continue;
            }
            let mended = repaired(&device, place);
            let fs = open(&mended, "");
            digest(&*fs).assert_same(&tree);
            assert_eq!(fs.read_only_reason(), None);
            fs.unmount().unwrap();
        }
    }
}

#[test]
fn an_unclean_journal_is_shown_over_a_backup() {
    let (device, _) = filled(40 * MIB, &["-b", "1024"]);
    let fs = open(&device, "noatime");
    fs.create(fs.root(), b"newest", NewInode::Regular, 0o644, &Caller::ROOT).unwrap();
    fs.sync().unwrap();
    let tree = digest(&*fs);
    // As a crash leaves it.
    let crashed = Arc::new(device.fork());
    fs.unmount().unwrap();
    poke(&crashed, SUPERBLOCK, &[0; 1024]);
    let fs = open(&crashed, "");
    digest(&*fs).assert_same(&tree);
    named(&fs);
    fs.unmount().unwrap();
}

/// The tree that the kernel shows with these options, unless it refuses.
fn kernels(image: &Path, options: &str) -> Option<Snapshot> {
    let mount = KernelMount::try_new(image, &format!("ro,{options}")).ok()?;
    let tree = digest_path(mount.path(), SnapshotOptions::default());
    mount.unmount();
    Some(tree.unwrap())
}

#[test]
fn the_option_sb_takes_the_places_that_the_kernel_takes() {
    let volumes: [(u64, [&str; 2], &[u64]); 2] =
        [(40 * MIB, ["-b", "1024"], &[8193, 24577]), (140 * MIB, ["-b", "4096"], &[131_072])];
    for (size, args, backups) in volumes {
        let (whole, tree) = filled(size, &args);
        let damaged = whole.fork();
        poke(&damaged, SUPERBLOCK, &[0; 1024]);
        for (device, first_is_there) in [(whole, true), (Arc::new(damaged), false)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            write_image(&device, file.path()).unwrap();
            for kib in [
                1, 2, 4, 8192, 8193, 8194, 16385, 24577, 32768, 131_072, 131_076, 262_144,
                99_999_999,
            ] {
                let option = format!("sb={kib}");
                let kernel = kernels(file.path(), &option);
                let ours = try_open(device.clone(), &option).map(|fs| {
                    let tree = digest(&*fs);
                    assert_eq!(fs.read_only_reason().is_none(), kib == 1, "{option}");
                    fs.unmount().unwrap();
                    tree
                });
                assert_eq!(ours.is_ok(), kernel.is_some(), "{args:?}, {option}: {:?}", ours.err());
                assert_eq!(
                    ours.is_ok(),
                    backups.contains(&kib) || kib == 1 && first_is_there,
                    "{args:?}, {option}"
                );
                if let (Ok(ours), Some(kernel)) = (ours, kernel) {
                    ours.assert_same(&kernel);
                    ours.assert_same(&tree);
                }
            }
        }
    }
}

#[test]
fn sb_stays_what_it_was_at_the_mount() {
    let (device, _) = filled(40 * MIB, &["-b", "1024"]);
    let fs = open(&device, "sb=8193");
    fs.remount("sb=8193,noatime").unwrap();
    for other in ["sb=1", "sb=24577", "rw"] {
        let error = fs.remount(other).unwrap_err().to_string();
        assert!(error.contains("unmount and mount again"), "{other}: {error}");
    }
    fs.unmount().unwrap();
}

#[test]
fn what_only_looks_like_a_backup_is_no_volume() {
    let (device, _) = filled(40 * MIB, &["-b", "1024"]);
    let found_none = |bytes: &[u8], what: &str| {
        let device = Arc::new(MemoryDevice::from_image(bytes));
        assert!(cairn_ext4::probe_backups(&*device).unwrap().is_none(), "{what}");
        let error = try_open(device, "ro").map(drop).unwrap_err();
        assert!(matches!(error, Error::NotExt4 { .. }), "{what}: {error}");
    };
    let whole = all_of(&device);
    let beheaded = [&[0; 8192][..], &whole[8192..]].concat();
    assert!(cairn_ext4::probe_backups(&MemoryDevice::from_image(&beheaded)).unwrap().is_some());
    // Backups in a file or a partition of a larger device, on a truncated image, and at a wrong
    // offset.
    found_none(&[&[0; 65536][..], &whole].concat(), "a volume inside");
    found_none(&beheaded[..beheaded.len() / 2 / 4096 * 4096], "half a volume");
    let block = |number: usize| number * 1024..(number + 1) * 1024;
    let mut one = vec![0; whole.len()];
    one[block(8193)].copy_from_slice(&whole[block(8193)]);
    found_none(&one, "a superblock without descriptors");
    let mut moved = vec![0; whole.len()];
    moved[8193 * 1024..8300 * 1024].copy_from_slice(&whole[24577 * 1024..24684 * 1024]);
    found_none(&moved, "the backup of another group");
    found_none(&vec![0xef; whole.len()], "the same byte throughout");
}

/// Of what is no volume a mount reads some places of a superblock. All places are read where a
/// superblock is there, though damaged, and by a check.
#[test]
fn what_is_no_volume_is_not_searched() {
    let reads = |device: MemoryDevice, probe: fn(&dyn BlockDevice) -> bool| {
        let stats = Stats::new(Arc::new(device));
        assert!(!probe(&stats));
        stats.snapshot().read_bytes
    };
    let noise = || {
        let mut bytes = vec![0; 64 << 20];
        fastrand::Rng::with_seed(7).fill(&mut bytes);
        bytes
    };
    let opened: fn(&dyn BlockDevice) -> bool = |device| {
        cairn_ext4::probe(device).is_ok_and(|found| found.is_some())
            || cairn_ext4::probe_backups(device).unwrap().is_some()
    };
    let checked: fn(&dyn BlockDevice) -> bool =
        |device| cairn_ext4::probe_all_backups(device).unwrap().is_some();
    let few = reads(MemoryDevice::from_image(&noise()), opened);
    assert!(few < 1 << 20, "{few} bytes");
    assert!(reads(MemoryDevice::from_image(&noise()), checked) >= 64 << 20);
    let mut damaged = noise();
    damaged[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(reads(MemoryDevice::from_image(&damaged), opened) >= 64 << 20);
}
