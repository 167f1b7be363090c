//! How a check and a mount read a device.

use std::sync::Arc;

use cairn_block::wrap::Stats;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::check;
use crate::volume::{End, MIB, open, volume, worked};

#[test]
fn blocks_that_follow_each_other_are_read_together() {
    let device = worked(96 * MIB, &[], End::Cut);
    let stats = Arc::new(Stats::new(device.clone()));
    assert_eq!(check(stats.clone()).unwrap().count(), 0);
    let found = stats.snapshot();
    assert!(found.reads < 400, "{} reads of a check", found.reads);
    // Three segments of 512 nodes each have no summary, because the volume was not closed.
    let stats = Arc::new(Stats::new(device));
    drop(open(stats.clone(), ""));
    let found = stats.snapshot();
    assert!(found.reads < 300, "{} reads of a mount", found.reads);
}

/// Whose its blocks are is asked of the summaries, one for each segment, many in one batch.
#[test]
fn a_large_file_is_deleted_with_few_reads() {
    const SIZE: u64 = 128 * MIB;
    let device = volume(256 * MIB, &[]);
    let fs = open(device.clone(), "");
    let new = fs.create(fs.root(), b"large", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    for at in (0..SIZE).step_by(1 << 20) {
        fs.write(new.ino, at, &[7; 1 << 20], IoFlags::empty()).unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let stats = Arc::new(Stats::new(device));
    let fs = open(stats.clone(), "");
    fs.lookup(fs.root(), b"large").unwrap();
    let before = stats.snapshot().reads;
    fs.unlink(fs.root(), b"large").unwrap();
    fs.forget(new.ino, 2);
    fs.sync().unwrap();
    let reads = stats.snapshot().reads - before;
    // Its direct nodes, and its segments.
    let [nodes, segments] = [SIZE / 4096 / 1018 + 1, SIZE / (2 * MIB) + 1];
    println!("{reads} reads: {nodes} nodes, {segments} segments");
    assert!(reads < nodes + segments + 30, "{reads} reads");
    fs.unmount().unwrap();
}
