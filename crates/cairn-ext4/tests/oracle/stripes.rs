//! On a RAID, files begin on stripes and chunks, as debugfs sees them.

use std::path::Path;
use std::sync::Arc;

use cairn_testkit::crash::{read_image, write_image};
use cairn_testkit::judge::{debugfs, mke2fs};
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode};

use crate::checked::assert_clean;
use crate::support::open;

const SIZE: u64 = 64 << 20;

/// Makes files of these many blocks, each once preallocated and once written; returns their names
/// with their blocks.
fn files(fs: &dyn FileSystem, blocks: &[u64]) -> Vec<(String, u64)> {
    let size = u64::from(fs.statfs().unwrap().block_size);
    let mut made = Vec::new();
    for count in blocks {
        for number in 0..4 {
            for way in ["allocated", "written"] {
                let name = format!("{way}-{count}-{number}");
                let file = fs
                    .create(fs.root(), name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)
                    .unwrap()
                    .ino;
                if way == "allocated" {
                    fs.allocate(file, AllocateMode::Extend, 0, count * size).unwrap();
                } else {
                    let bytes = vec![7; usize::try_from(count * size).unwrap()];
                    assert_eq!(fs.write(file, 0, &bytes, IoFlags::empty()).unwrap(), bytes.len());
                    fs.fsync(file, 0, false).unwrap();
                }
                fs.forget(file, 1);
                made.push((name, *count));
            }
        }
    }
    made
}

/// The first block of a file on the volume.
fn beginning(image: &Path, name: &str) -> u64 {
    let told = debugfs(image, &format!("bmap /{name} 0"));
    told.split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {told}"))
}

/// Files that do not begin at a multiple of what `unit` says for their blocks.
fn astray(geometry: &str, options: &str, blocks: &[u64], unit: fn(u64) -> u64) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let block_size = if geometry.is_empty() { "1024" } else { "4096" };
    let given = ["-t", "ext4", "-b", block_size].into_iter();
    let arguments: Vec<_> =
        if geometry.is_empty() { given.collect() } else { given.chain(["-E", geometry]).collect() };
    mke2fs(file.path(), SIZE, &arguments);
    let device = Arc::new(read_image(file.path()).unwrap());
    let fs = open(&device, options);
    let made = files(&*fs, blocks);
    fs.unmount().unwrap();
    write_image(&device, file.path()).unwrap();
    assert_clean(file.path());
    let found =
        made.into_iter().map(|(name, blocks)| (beginning(file.path(), &name), name, unit(blocks)));
    found
        .filter(|(first, _, unit)| first % unit != 0)
        .map(|(first, name, unit)| format!("{name}: {first} of {unit}"))
        .collect()
}

#[test]
fn files_begin_on_stripes_and_chunks_that_the_superblock_names() {
    let blocks = [2, 3, 8, 24, 32, 50, 64, 500];
    let chunks_of_eight_four_disks: fn(u64) -> u64 = |blocks| match blocks {
        32.. => 32,
        8.. => 8,
        _ => 1,
    };
    let geometry = "stride=8,stripe_width=32";
    let astray_by_superblock = astray(geometry, "", &blocks, chunks_of_eight_four_disks);
    assert!(astray_by_superblock.is_empty(), "{astray_by_superblock:?}");
    // The option overrides it, and 1 disables it.
    let by_option =
        astray(geometry, "stripe=48", &blocks, |blocks| if blocks >= 48 { 48 } else { 1 });
    assert!(by_option.is_empty(), "{by_option:?}");
    assert!(
        !astray(geometry, "stripe=1", &blocks, chunks_of_eight_four_disks).is_empty(),
        "nothing was to be aligned"
    );
    // Groups begin at block 1 here, and no group is a multiple.
    let small = astray("", "stripe=48", &blocks, |blocks| if blocks >= 48 { 48 } else { 1 });
    assert!(small.is_empty(), "{small:?}");
}

/// If no free piece is as large as a stripe, smaller ones are used.
#[test]
fn a_volume_with_stripes_can_be_filled_to_the_last_block() {
    let free_after = |options: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        mke2fs(
            file.path(),
            32 << 20,
            &["-t", "ext4", "-b", "4096", "-m", "0", "-E", "stride=100,stripe_width=700"],
        );
        let device = Arc::new(read_image(file.path()).unwrap());
        let fs = open(&device, options);
        let file =
            fs.create(fs.root(), b"all", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
        let mut at = 0;
        while fs.allocate(file, AllocateMode::Extend, at, 1 << 20).is_ok() {
            at += 1 << 20;
        }
        let free = fs.statfs().unwrap().free_blocks;
        fs.forget(file, 1);
        fs.unmount().unwrap();
        free
    };
    assert_eq!(free_after(""), free_after("stripe=1"));
}
