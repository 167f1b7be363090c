//! Collapse and insert: after a power cut the file is completely old or completely new.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_f2fs::F2fs;
use cairn_testkit::crash::{CrashLog, Cut, Recording, read_image, write_image};
use cairn_testkit::deep;
use cairn_testkit::judge::{assert_f2fs_clean, mkfs_f2fs};
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode};

use crate::support::open;

const BLOCK: usize = 4096;

fn read(fs: &F2fs) -> Vec<u8> {
    let found = fs.lookup(fs.root(), b"file").unwrap();
    let mut bytes = vec![0; found.size as usize];
    assert_eq!(fs.read(found.ino, 0, &mut bytes, IoFlags::empty()).unwrap(), bytes.len());
    bytes
}

/// A file of this many blocks and some bytes, with holes, unwritten slots, and blocks at random
/// addresses.
fn prepare(fs: &F2fs, blocks: usize) -> (Ino, Vec<u8>) {
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let mut wanted = vec![0; blocks * BLOCK + 777];
    let size = wanted.len();
    for block in (0..blocks).filter(|block| block % 13 != 5) {
        let word = (block as u32 + 1).to_le_bytes().repeat(BLOCK / 4);
        wanted[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&word);
    }
    wanted[size - 777..].fill(9);
    for parity in [1, 0] {
        for block in (0..=blocks).filter(|block| block % 13 != 5 && block / 40 % 2 == parity) {
            let end = size.min((block + 1) * BLOCK);
            fs.write(ino, (block * BLOCK) as u64, &wanted[block * BLOCK..end], IoFlags::empty())
                .unwrap();
        }
        fs.fsync(ino, 0, false).unwrap();
    }
    let at = (blocks / 13 * 13).saturating_sub(8) * BLOCK;
    fs.allocate(ino, AllocateMode::KeepSize, at as u64, BLOCK as u64).unwrap();
    fs.sync().unwrap();
    (ino, wanted)
}

fn shifted(mut bytes: Vec<u8>, mode: AllocateMode, at: usize, len: usize) -> Vec<u8> {
    match mode {
        AllocateMode::InsertRange => drop(bytes.splice(at..at, vec![0; len])),
        _ => drop(bytes.drain(at..at + len)),
    }
    bytes
}

/// Shifts, writes some bytes, and examines all power cuts.
fn search(options: &str, blocks: usize, mode: AllocateMode, at: usize, len: usize) {
    let image = tempfile::NamedTempFile::new().unwrap();
    mkfs_f2fs(image.path(), 96 << 20, &[]);
    let recording = Recording::start(read_image(image.path()).unwrap());
    let fs = open(recording.device(), options);
    let (ino, old) = prepare(&fs, blocks);
    let new = shifted(old.clone(), mode, at * BLOCK, len * BLOCK);
    let started = recording.moment();
    fs.allocate(ino, mode, (at * BLOCK) as u64, (len * BLOCK) as u64).unwrap();
    assert!(read(&fs) == new, "{options} {blocks} {mode:?} {at}+{len}");
    fs.fsync(ino, 0, true).unwrap();
    let done = recording.moment();
    // Later changes have their own promise.
    fs.write(ino, (at * BLOCK) as u64, &[0x77; BLOCK], IoFlags::empty()).unwrap();
    fs.fsync(ino, 0, true).unwrap();
    let last = read(&fs);
    fs.shutdown(false).unwrap();
    drop(fs);
    let log: CrashLog = recording.finish();
    let random = log.random_cuts(if deep() { 200 } else { 8 }, blocks as u64);
    let cuts = log.barrier_cuts().into_iter().chain(random).filter(|cut| cut.moment >= started);
    let mut seen = 0;
    for cut in cuts {
        let found = recovered(&log, cut, options);
        let named = format!("{options} {blocks} {mode:?} {at}+{len}, {cut}: {} bytes", found.len());
        let before = cut.moment < done && found == old;
        // The contents are compared by block, because the last write is in place and not fsynced.
        let after = found.len() == new.len() && (found == new || found == last);
        assert!(before || after, "{named}");
        seen += 1;
    }
    assert!(seen > 4);
}

fn recovered(log: &CrashLog, cut: Cut, options: &str) -> Vec<u8> {
    let device = Arc::new(log.device(cut));
    let fs = open(device.clone(), options);
    let found = read(&fs);
    fs.unmount().unwrap();
    let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    write_image(&device, image.path()).unwrap();
    assert_f2fs_clean(image.path());
    found
}

#[test]
fn a_power_cut_finds_the_old_file_or_the_new_one() {
    let (collapse, insert) = (AllocateMode::CollapseRange, AllocateMode::InsertRange);
    search("", 40, collapse, 3, 9);
    search("", 40, insert, 3, 9);
    // The shift crosses nodes, beginning with the inode's own slots.
    search("", 2100, collapse, 11, 1000);
    search("mode=lfs", 2100, insert, 900, 1100);
    search("", 950, insert, 0, 1);
}

/// A file that takes most of the volume cannot be copied: it stays as it is.
#[test]
fn without_space_for_the_copies_nothing_changes() {
    let device = crate::support::volume(64 << 20, &[]);
    let fs = open(device.clone(), "");
    let blocks = fs.statfs().unwrap().free_blocks * 2 / 3;
    let (ino, old) = prepare(&fs, blocks as usize);
    let refused = fs.allocate(ino, AllocateMode::InsertRange, 4096, 4096);
    assert!(matches!(refused, Err(cairn_vfs::Error::NoSpace)), "{refused:?}");
    assert!(read(&fs) == old);
    fs.unmount().unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, image.path()).unwrap();
    assert_f2fs_clean(image.path());
}
