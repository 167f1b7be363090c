//! New volumes, read back and judged by e2fsck if it is installed.

use std::path::Path;
use std::process::Command;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDeviceExt;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::memory::MemoryDevice;
use uuid::Uuid;

use super::*;
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, SIZE, Superblock};

const MIB: u64 = 1 << 20;

/// Exit status of `e2fsck -fn`; `None` without e2fsck.
fn e2fsck(image: &Path) -> Option<(i32, String)> {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output().ok()?;
    Some((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn judge(size: u64, options: &MkfsOptions) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("image");
    let open = OpenOptions::create(size);
    let device = Arc::new(FileDevice::open(&path, open).expect("image"));
    make(device.clone(), options, &*Simulated::new(1)).expect("mkfs");
    let bytes = device.read_at(OFFSET, SIZE).expect("superblock");
    let superblock = Superblock::decode(&bytes).expect("a superblock Cairn accepts");
    Layout::new(&superblock, size).expect("a layout Cairn accepts");
    drop(device);
    if let Some((status, text)) = e2fsck(&path) {
        assert_eq!(status, 0, "{size} bytes, {options:?}:\n{text}");
    }
}

#[test]
fn all_block_sizes_and_many_sizes() {
    for block_size in [1024, 2048, 4096] {
        for size in [8 * MIB, 65 * MIB, 300 * MIB, 20 << 30] {
            judge(size, &MkfsOptions { block_size: Some(block_size), ..Default::default() });
        }
    }
    // Without a journal, with the shortest last group, and with unaligned sizes.
    for size in [MIB, 32769 * 1024, 129 * MIB + 300_000] {
        judge(size, &MkfsOptions::default());
    }
}

#[test]
fn feature_sets() {
    for features in [
        "^has_journal",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^extent",
        "^64bit",
        "meta_bg",
        "sparse_super2",
        "^flex_bg",
        "^resize_inode",
        "^sparse_super",
        "inline_data,large_dir",
        "none,has_journal,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file",
        "none,filetype,ext_attr",
    ] {
        judge(600 * MIB, &MkfsOptions { features: vec![features.into()], ..Default::default() });
    }
}

#[test]
fn inode_and_journal_sizes() {
    judge(600 * MIB, &MkfsOptions { inode_size: Some(128), ..Default::default() });
    judge(
        600 * MIB,
        &MkfsOptions { inode_size: Some(1024), inodes: Some(100), ..Default::default() },
    );
    judge(600 * MIB, &MkfsOptions { inode_ratio: Some(1024), ..Default::default() });
    // With more than four extents the journal's map needs a block.
    judge(
        2000 * MIB,
        &MkfsOptions {
            block_size: Some(1024),
            journal_size: Some(512 * MIB),
            ..Default::default()
        },
    );
}

#[test]
fn the_same_uuid_and_time_give_the_same_bytes() {
    let image = |seed| {
        let device = Arc::new(MemoryDevice::new(16 * MIB));
        let options = MkfsOptions {
            uuid: Some(Uuid::from_u128(7)),
            time: Some(1_700_000_000),
            label: Some("sixteen letters!".into()),
            ..Default::default()
        };
        make(device.clone(), &options, &*Simulated::new(seed)).expect("mkfs");
        device.read_at(0, 16 << 20).expect("image").to_vec()
    };
    assert!(image(1) == image(2), "nothing random is left");
}

#[test]
fn impossible_options_are_refused_before_anything_is_written() {
    let options = MkfsOptions::default();
    for bad in [
        MkfsOptions { label: Some("seventeen letters".into()), ..options.clone() },
        MkfsOptions { block_size: Some(3000), ..options.clone() },
        MkfsOptions { inode_size: Some(100), ..options.clone() },
        MkfsOptions { inodes: Some(u32::MAX), ..options.clone() },
        MkfsOptions { journal_size: Some(100), ..options.clone() },
        MkfsOptions { reserved_percent: Some(99.0), ..options.clone() },
        MkfsOptions { features: vec!["casefold".into()], ..options.clone() },
        MkfsOptions { size: Some(17 * MIB), ..options.clone() },
    ] {
        let device = Arc::new(MemoryDevice::new(16 * MIB));
        let refused = make(device.clone(), &bad, &*Simulated::new(1));
        assert!(matches!(refused, Err(crate::Error::Option(_))), "{bad:?}: {refused:?}");
        assert_eq!(device.allocated(), 0);
    }
}
