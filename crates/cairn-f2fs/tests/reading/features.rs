//! Features and redundancy: Cairn opens all volumes of mkfs.f2fs, and one copy of duplicated
//! metadata may be lost.

use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{Error, F2fs, MountOptions};
use cairn_testkit::judge::fsck_f2fs_device;
use cairn_testkit::tree::{SnapshotOptions, digest_volume};
use cairn_vfs::FileSystem;

use crate::support::{MIB, image, open};

fn small_tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("d")).unwrap();
    for index in 0..300 {
        std::fs::write(tree.path().join(format!("d/file {index}")), vec![index as u8; index * 50])
            .unwrap();
    }
    tree
}

fn digest(volume: &dyn FileSystem) -> String {
    let options = SnapshotOptions { times: false, ..SnapshotOptions::default() };
    digest_volume(volume, options).unwrap().without(b"").without(b"lost+found").sha256()
}

#[test]
fn every_feature_set_is_read() {
    let tree = small_tree();
    let right = cairn_testkit::tree::digest_path(
        tree.path(),
        SnapshotOptions { times: false, ..SnapshotOptions::default() },
    );
    let right = right.unwrap().without(b"").sha256();
    let sets: [&[&str]; 6] = [
        &["-g", "android"],
        &["-O", "extra_attr,compression,inode_checksum"],
        &["-O", "casefold", "-C", "utf8"],
        &["-O", "encrypt"],
        &["-O", "verity,extra_attr,quota"],
        &["-w", "4096", "-s", "4", "-z", "2"],
    ];
    for arguments in sets {
        let device = image(256 * MIB, arguments, Some(tree.path()));
        let volume = open(device.clone()).unwrap();
        assert_eq!(digest(&*volume), right, "{arguments:?}");
        let info = cairn_f2fs::inspect(&(device as _)).unwrap().unwrap();
        assert_eq!(info.access, "read-write");
    }
}

#[test]
fn a_volume_made_read_only_is_read() {
    let volume = open(image(64 * MIB, &["-O", "ro"], None)).unwrap();
    let mut names = Vec::new();
    volume
        .readdir(volume.root(), 0, &mut |entry| {
            names.push(entry.name.into_bytes());
            true
        })
        .unwrap();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    let reason = volume.read_only_reason().unwrap();
    assert!(reason.contains("(feature ro)"), "{reason}");
}

#[test]
fn a_lost_superblock_or_checkpoint_pack_is_replaced() {
    let tree = small_tree();
    let device = image(128 * MIB, &[], Some(tree.path()));
    let right = digest(&*open(device.clone()).unwrap());
    let zero = |blocks: &[u64]| {
        let copy = std::sync::Arc::new(device.fork());
        for block in blocks {
            copy.write_at(block * 4096, vec![0; 4096]).unwrap();
        }
        open(copy)
    };
    // Block 512 and 1024 begin the packs; sload.f2fs writes both with the same contents.
    for lost in [[0].as_slice(), &[1], &[512], &[1024], &[0, 512], &[1, 1024]] {
        assert_eq!(digest(&*zero(lost).unwrap()), right, "blocks {lost:?}");
    }
    assert!(matches!(zero(&[0, 1]), Err(Error::NotF2fs { found: 0 })));
    // A writable mount restores the other superblock; a read-only mount changes nothing.
    for (options, mended) in [("ro", false), ("", true)] {
        let copy = std::sync::Arc::new(device.fork());
        copy.write_at(0, vec![0; 4096]).unwrap();
        let volume =
            F2fs::open(copy.clone(), Threads::new(), &MountOptions::parse(options).unwrap())
                .unwrap();
        volume.unmount().unwrap();
        let block = |number: u64| copy.read_at(number * 4096 + 1024, 3072).unwrap().to_vec();
        assert_eq!(block(0) == block(1), mended, "{options}");
        let said = fsck_f2fs_device(&copy).output;
        assert_eq!(
            said.contains("Can't find a valid F2FS superblock at 0x0"),
            !mended,
            "{options}: {said}"
        );
    }
    let both = zero(&[512, 1024]).map(drop).unwrap_err().to_string();
    assert!(both.contains("pack 1") && both.contains("pack 2"), "{both}");
}

#[test]
fn what_the_superblock_says_is_shown() {
    let device =
        image(64 * MIB, &["-l", "lábel", "-U", "11111111-2222-3333-4444-555555555555"], None);
    let info = cairn_f2fs::inspect(&(device.clone() as _)).unwrap().unwrap();
    assert_eq!((info.label.as_str(), info.state), ("lábel", "clean"));
    assert_eq!(info.uuid, "11111111-2222-3333-4444-555555555555");
    let volume = open(device).unwrap();
    assert_eq!(volume.label().unwrap(), "lábel".as_bytes());
    assert!(volume.remount("cache=1M").is_ok() && volume.remount("ro").is_ok());
    assert!(volume.remount("norecovery").is_err() && volume.remount("mode=lfs").is_err());
    assert!(MountOptions::parse("norecovery").is_err());
}

#[test]
fn counts_agree_with_dump_f2fs() {
    let tree = small_tree();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    cairn_testkit::judge::mkfs_f2fs(&path, 128 * MIB, &[]);
    cairn_testkit::judge::sload_f2fs(&path, tree.path());
    let device = crate::support::in_memory(&path);
    let volume = open(device).unwrap();
    compare(&path, &volume);
}

/// Compares all numbers that dump.f2fs prints with the decoded ones.
fn compare(path: &Path, volume: &cairn_f2fs::F2fs) {
    let told = cairn_testkit::judge::dump_f2fs(path);
    let disk = volume.disk();
    let (superblock, checkpoint) = (&disk.superblock, &disk.checkpoint.checkpoint);
    let ours: [(&str, u64); 29] = [
        ("log_sectorsize", superblock.log_sectorsize.into()),
        ("log_blocksize", superblock.log_blocksize.into()),
        ("log_blocks_per_seg", superblock.log_blocks_per_seg.into()),
        ("segs_per_sec", superblock.segs_per_sec.into()),
        ("secs_per_zone", superblock.secs_per_zone.into()),
        ("block_count", superblock.block_count),
        ("section_count", superblock.section_count.into()),
        ("segment_count", superblock.segment_count.into()),
        ("segment_count_sit", superblock.segment_count_sit.into()),
        ("segment_count_nat", superblock.segment_count_nat.into()),
        ("segment_count_ssa", superblock.segment_count_ssa.into()),
        ("segment_count_main", superblock.segment_count_main.into()),
        ("cp_blkaddr", superblock.cp_blkaddr.get().into()),
        ("sit_blkaddr", superblock.sit_blkaddr.get().into()),
        ("nat_blkaddr", superblock.nat_blkaddr.get().into()),
        ("ssa_blkaddr", superblock.ssa_blkaddr.get().into()),
        ("main_blkaddr", superblock.main_blkaddr.get().into()),
        ("checkpoint_ver", checkpoint.version),
        ("user_block_count", checkpoint.user_block_count),
        ("valid_block_count", checkpoint.valid_block_count),
        ("rsvd_segment_count", checkpoint.rsvd_segment_count.into()),
        ("overprov_segment_count", checkpoint.overprov_segment_count.into()),
        ("free_segment_count", checkpoint.free_segment_count.into()),
        ("ckpt_flags", checkpoint.flags.bits().into()),
        ("cp_pack_total_block_count", checkpoint.pack_total_blocks.into()),
        ("valid_inode_count", checkpoint.valid_inode_count.into()),
        ("valid_node_count", checkpoint.valid_node_count.into()),
        ("next_free_nid", checkpoint.next_free_nid.get().into()),
        ("checksum_offset", checkpoint.checksum_offset.into()),
    ];
    for (name, value) in ours {
        assert_eq!(told.get(name), Some(&value), "{name}");
    }
}

/// The address of the root's inode: the block whose footer names node 3 of inode 3.
fn root_inode(device: &dyn BlockDevice) -> u64 {
    let is_root = |at: &u64| {
        let footer = device.read_at(at + 4072, 8).unwrap();
        footer[..] == [3, 0, 0, 0, 3, 0, 0, 0]
    };
    let mut found = (0..device.geometry().size).step_by(4096).filter(is_root);
    let at = found.next().expect("the volume has a root");
    assert_eq!(found.next(), None, "mkfs.f2fs wrote the root once");
    at
}

/// Without its root nothing of a volume can be reached: it is refused for reading and for writing,
/// before anything is written. Linux 6.1 refuses the same four.
#[test]
fn a_volume_without_a_usable_root_is_refused() {
    let cases: [(&str, u64, &[u8]); 4] = [
        ("i_mode", 0, &0o100_644_u16.to_le_bytes()),
        ("i_links", 12, &[0; 4]),
        ("i_size", 16, &[0; 8]),
        ("i_blocks", 24, &[0; 8]),
    ];
    for (field, at, bytes) in cases {
        let device = image(64 * MIB, &[], None);
        let root = root_inode(&*device);
        let mut block = device.read_at(root, 4096).unwrap().to_vec();
        let place = usize::try_from(at).unwrap();
        block[place..place + bytes.len()].copy_from_slice(bytes);
        device.write_at(root, block).unwrap();
        // fsck.f2fs does not look at the size.
        let is_seen = !fsck_f2fs_device(&device).is_clean();
        assert!(is_seen || field == "i_size", "{field}: fsck.f2fs finds it");
        let before = device.read_at(0, 64 << 20).unwrap();
        let shared: Arc<dyn BlockDevice> = device.clone();
        let access = cairn_f2fs::inspect(&shared).unwrap().unwrap().access;
        assert!(access.starts_with("none: ") && access.contains(field), "{access}");
        for options in ["ro", ""] {
            let options = MountOptions::parse(options).unwrap();
            let refused = F2fs::open(device.clone(), Threads::new(), &options)
                .map(drop)
                .expect_err("the root cannot be used");
            assert!(refused.to_string().contains(field), "{refused}");
            assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
        }
        assert!(device.read_at(0, 64 << 20).unwrap()[..] == before[..], "{field}: written");
    }
}
