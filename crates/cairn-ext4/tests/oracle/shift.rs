//! Collapsing and inserting ranges of a file with more extents than one transaction can move.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_block::BlockDevice;
use cairn_ext4::Ext4;
use cairn_testkit::crash::Recording;
use cairn_vfs::{AllocateMode, Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, open, try_open, volume};

const BLOCK: usize = 1024;
/// The journal is the smallest possible: a transaction has about two hundred blocks, and the file's
/// tree has more leaves.
const EXTENTS: usize = 24_000;

/// A file of which every other block is a hole.
fn fragmented(fs: &Ext4) -> (Ino, Vec<u8>) {
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let mut model = vec![0; (EXTENTS * 2 - 1) * BLOCK];
    for n in 0..EXTENTS {
        let at = n * 2 * BLOCK;
        let block: Vec<u8> = (n as u64 + 1).to_le_bytes().repeat(BLOCK / 8);
        assert_eq!(fs.write(ino, at as u64, &block, IoFlags::empty()).unwrap(), BLOCK);
        model[at..at + BLOCK].copy_from_slice(&block);
    }
    fs.fsync(ino, 0, false).unwrap();
    (ino, model)
}

fn contents(fs: &Ext4, ino: Ino) -> Vec<u8> {
    let mut buf = vec![0; usize::try_from(fs.getattr(ino).unwrap().size).unwrap()];
    let mut at = 0;
    while at < buf.len() {
        let end = buf.len().min(at + (1 << 20));
        at += fs.read(ino, at as u64, &mut buf[at..end], IoFlags::empty()).unwrap();
    }
    buf
}

fn change(fs: &Ext4, ino: Ino, model: &mut Vec<u8>, insert: bool, block: usize, count: usize) {
    let (at, len) = (block * BLOCK, count * BLOCK);
    if insert {
        fs.allocate(ino, AllocateMode::InsertRange, at as u64, len as u64).unwrap();
        model.splice(at..at, std::iter::repeat_n(0, len));
    } else {
        fs.allocate(ino, AllocateMode::CollapseRange, at as u64, len as u64).unwrap();
        model.drain(at..at + len);
    }
    assert!(contents(fs, ino) == *model, "insert: {insert}, {count} blocks at {block}");
}

#[test]
fn a_file_of_many_extents_is_moved_in_many_transactions() {
    let device = volume(96 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let fs = open(&device, "");
    let (ino, mut model) = fragmented(&fs);
    for (insert, block, count) in
        [(false, 0, 2), (true, 1, 1), (true, 0, 5000), (false, 777, 5003), (false, 40_000, 1)]
    {
        change(&fs, ino, &mut model, insert, block, count);
    }
    fs.unmount().unwrap();
    judge(&device);
    let fs = open(&device, "ro");
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    assert!(contents(&fs, ino) == model);
}

/// After each power cut the file is consistent, and each of its blocks is in its old place, moved,
/// or removed.
#[test]
fn a_power_cut_in_the_middle_of_a_move_leaves_a_sound_file() {
    let device = volume(96 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let fs = open(&device, "");
    let (_, before) = fragmented(&fs);
    fs.unmount().unwrap();
    let recording = Recording::start(device.fork());
    let fs = try_open(recording.device(), "").unwrap();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    fs.sync().unwrap();
    let moment = recording.moment();
    fs.allocate(ino, AllocateMode::CollapseRange, 2 * BLOCK as u64, 2 * BLOCK as u64).unwrap();
    fs.allocate(ino, AllocateMode::InsertRange, 0, 100 * BLOCK as u64).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let log = recording.finish();
    let mut cuts = log.barrier_cuts();
    cuts.retain(|cut| cut.moment >= moment);
    let step = cuts.len() / 12 + 1;
    let mut lengths = std::collections::BTreeSet::new();
    for cut in cuts.into_iter().step_by(step) {
        let crashed = Arc::new(log.device(cut));
        let fs = open(&crashed, "");
        let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
        let found = contents(&fs, ino);
        lengths.insert(found.len());
        check(&before, &found, &cut.to_string());
        fs.unmount().unwrap();
        judge(&crashed);
    }
    assert!(
        lengths.len() > 1 && device.geometry().size > 0,
        "no cut met the operations in the middle: {lengths:?}"
    );
}

/// All blocks of the file but the removed one, in order, each once.
fn check(before: &[u8], found: &[u8], cut: &str) {
    let stamps = |bytes: &[u8]| -> Vec<u64> {
        let blocks =
            bytes.chunks(BLOCK).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
        blocks.filter(|stamp| *stamp != 0).collect()
    };
    let (mut was, is) = (stamps(before), stamps(found));
    if is.len() < was.len() {
        // Blocks 2 and 3 of the file were collapsed: the second stamp.
        assert_eq!(was.remove(1), 2);
    }
    assert!(was == is, "{cut}: blocks are lost, doubled or out of order");
}
