//! `fallocate` in every mode, on ranges that files have and that no file can have, beside the
//! kernel's ext4.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cairn_testkit::judge;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::fixture::Volume;

const BLOCK: u64 = 4096;
/// Not a multiple of blocks.
const SIZE: u64 = 5 * BLOCK + 100;
/// Largest file of an ext4 volume with blocks of 4K: as many blocks as a 32-bit number names, but
/// one.
const LARGEST: u64 = (u32::MAX as u64) * BLOCK;
/// At most that of an F2FS volume.
const LARGEST_OF_F2FS: u64 = 3 << 40;
const LARGEST_OFFSET: u64 = i64::MAX as u64;

const MODES: &[(&str, FallocateFlags)] = &[
    ("extend", FallocateFlags::empty()),
    ("keep", FallocateFlags::KEEP_SIZE),
    ("punch", FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE)),
    ("punch without keep", FallocateFlags::PUNCH_HOLE),
    ("zero", FallocateFlags::ZERO_RANGE),
    ("zero and keep", FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE)),
    ("zero and punch", FallocateFlags::ZERO_RANGE.union(FallocateFlags::PUNCH_HOLE)),
    ("collapse", FallocateFlags::COLLAPSE_RANGE),
    ("collapse and keep", FallocateFlags::COLLAPSE_RANGE.union(FallocateFlags::KEEP_SIZE)),
    ("insert", FallocateFlags::INSERT_RANGE),
    ("insert and keep", FallocateFlags::INSERT_RANGE.union(FallocateFlags::KEEP_SIZE)),
    ("unshare", FallocateFlags::UNSHARE_RANGE),
];

/// Offset and length.
const RANGES: &[(u64, u64)] = &[
    (0, 0),
    (0, 1),
    (0, BLOCK),
    (1, BLOCK),
    (BLOCK, BLOCK),
    (BLOCK, BLOCK + 1),
    (BLOCK, 4 * BLOCK),
    (BLOCK, 5 * BLOCK),
    (0, 6 * BLOCK),
    (5 * BLOCK, 50),
    (5 * BLOCK, BLOCK),
    (6 * BLOCK, BLOCK),
    (20 * BLOCK, BLOCK),
    (LARGEST - BLOCK, BLOCK),
    (LARGEST - BLOCK, BLOCK + 1),
    (LARGEST - BLOCK, 2 * BLOCK),
    (LARGEST, BLOCK),
    (LARGEST, 0),
    (BLOCK, LARGEST - BLOCK),
    (BLOCK, LARGEST),
    (0, LARGEST + BLOCK),
    (1 << 50, BLOCK),
    (LARGEST_OFFSET - BLOCK + 1, BLOCK),
    (LARGEST_OFFSET, 1),
    (LARGEST_OFFSET - BLOCK + 1, BLOCK - 1),
    (BLOCK, LARGEST_OFFSET),
    (u64::MAX, 1),
    (0, u64::MAX),
    (u64::MAX - BLOCK + 1, BLOCK),
];

/// The answer of one call, the size of the file after it, and its first blocks.
type Answer = (Result<(), Errno>, u64, Vec<u8>);

/// Calls `fallocate` on a new file.
fn ask(root: &Path, mode: FallocateFlags, (offset, len): (u64, u64)) -> Answer {
    let path = root.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let data: Vec<u8> = (0..SIZE).map(|at| (at / 100 + 1) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    let answer = fallocate(file.as_fd(), mode, offset, len);
    let size = file.metadata().unwrap().len();
    let mut start = vec![0; 16 * BLOCK as usize];
    let filled = file.read_at(&mut start, 0).unwrap();
    start.truncate(filled);
    std::fs::remove_file(&path).unwrap();
    (answer, size, start)
}

/// Waits until the blocks of a removed file are free: the kernel tells of its last use later.
fn wait_for_room(root: &Path, blocks: u64) {
    let begun = Instant::now();
    while rustix::fs::statvfs(root).unwrap().f_bfree < blocks {
        assert!(begun.elapsed() < Duration::from_secs(60), "the blocks do not become free");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The modes that the kernel's FUSE refuses itself.
fn is_refused_by_fuse(mode: &str) -> bool {
    ["collapse", "insert", "unshare"].iter().any(|refused| mode.starts_with(refused))
}

/// The kernel's answer and ours agree. Linux keeps what it had allocated when no space was left;
/// Cairn allocates nothing then.
fn agree(mode: &str, kernel: &Answer, ours: &Answer) -> bool {
    let is_refused = is_refused_by_fuse(mode) && ours.0 == Err(Errno::OPNOTSUPP);
    let is_full = kernel.0 == Err(Errno::NOSPC) && ours.0 == kernel.0;
    kernel == ours || (is_refused || is_full) && ours.1 == SIZE
}

/// What `fallocate` answers in every mode and on every range.
fn answers(root: &Path) -> Vec<Answer> {
    let cases = MODES.iter().flat_map(|(_, mode)| RANGES.iter().map(move |range| (*mode, *range)));
    // The directory and the journal may take a few blocks for good.
    let free = rustix::fs::statvfs(root).unwrap().f_bfree - 64;
    let answer = |(mode, range)| {
        wait_for_room(root, free);
        ask(root, mode, range)
    };
    cases.map(answer).collect()
}

/// Compares a mounted volume with the kernel's ext4 of these features, on ranges that end below the
/// largest file of the volume, or beyond that of ext4.
fn compare(mut volume: Volume, features: &str, largest: u64) {
    let expected = judge::on_the_kernel_s_ext4(64 << 20, &["-b", "4096", "-O", features], answers);
    let found = answers(&volume.root());
    volume.unmount();
    let cases = MODES.iter().flat_map(|(name, _)| RANGES.iter().map(move |range| (name, range)));
    let is_comparable = |(offset, len): (u64, u64)| {
        let end = offset.saturating_add(len);
        end <= largest || end > LARGEST
    };
    let wrong: Vec<_> = cases
        .zip(expected.iter().zip(&found))
        .filter(|((name, range), (expected, found))| {
            is_comparable(**range) && !agree(name, expected, found)
        })
        .map(|((name, range), (expected, found))| {
            let (kernel, ours) = ((expected.0, expected.1), (found.0, found.1));
            format!("{name} {range:?}: Linux {kernel:?}, here {ours:?}")
        })
        .collect();
    assert!(wrong.is_empty(), "{features}: {}", wrong.join("\n"));
}

#[test]
fn ext4_answers_every_mode_and_range_as_the_kernel_s() {
    for features in ["extent", "^extent,^64bit"] {
        let mut volume = Volume::make(64 << 20, &["-b", "4096", "-O", features]);
        volume.mount("");
        compare(volume, features, LARGEST);
    }
}

#[test]
fn f2fs_answers_every_mode_and_range_as_the_kernel_s_ext4() {
    compare(Volume::f2fs(64 << 20, ""), "extent", LARGEST_OF_F2FS);
}
