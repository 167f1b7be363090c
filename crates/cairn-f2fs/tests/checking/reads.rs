//! How a check and a mount read a device.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_f2fs::{F2fs, MountOptions};
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

const SIZE: u64 = 128 * MIB;

/// Its direct nodes, and its segments.
const fn nodes_and_segments() -> [u64; 2] {
    [SIZE / 4096 / 1018 + 1, SIZE / (2 * MIB) + 1]
}

/// A volume with a large file, and the file's number.
fn with_large_file() -> (Arc<MemoryDevice>, Ino) {
    let device = volume(512 * MIB, &[]);
    let fs = open(device.clone(), "");
    let new = fs.create(fs.root(), b"large", NewInode::Regular, 0o600, &Caller::ROOT).unwrap();
    write(&fs, new.ino, 7);
    fs.unmount().unwrap();
    (device, new.ino)
}

fn write(fs: &F2fs, ino: Ino, byte: u8) {
    for at in (0..SIZE).step_by(1 << 20) {
        fs.write(ino, at, &[byte; 1 << 20], IoFlags::empty()).unwrap();
    }
}

/// Whose its blocks are is asked of the summaries: one for each segment, many in one batch, once.
#[test]
fn a_large_file_is_read_written_and_deleted_with_few_reads() {
    let (device, ino) = with_large_file();
    let [nodes, segments] = nodes_and_segments();
    let mut bytes = vec![0; 1 << 20];
    for (what, options) in [
        ("only read", "ro"),
        ("read", ""),
        ("written", ""),
        ("written elsewhere", "mode=lfs"),
        ("deleted", ""),
    ] {
        let stats = Arc::new(Stats::new(Arc::new(device.fork())));
        let options = MountOptions::parse(options).unwrap();
        let fs = F2fs::open(stats.clone(), Threads::new(), &options).unwrap();
        fs.lookup(fs.root(), b"large").unwrap();
        let before = stats.snapshot();
        let mut data = 0;
        match what {
            "only read" | "read" => {
                data = SIZE / 4096;
                for at in (0..SIZE).step_by(bytes.len()) {
                    fs.read(ino, at, &mut bytes, IoFlags::empty()).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 7));
                }
            }
            "deleted" => {
                fs.unlink(fs.root(), b"large").unwrap();
                fs.forget(ino, 2);
                fs.sync().unwrap();
            }
            _ => {
                write(&fs, ino, 8);
                fs.sync().unwrap();
            }
        }
        let after = stats.snapshot();
        let [reads, batches] = [after.reads - before.reads, after.batches - before.batches];
        let blocks = (after.read_bytes - before.read_bytes) / 4096 - data;
        println!("{what}: {reads} reads in {batches} batches, {blocks} blocks but for the data");
        // A free segment's summary is asked, too, before the first block is written.
        let asked = if what == "written elsewhere" { 2 * segments } else { segments };
        assert!(blocks < nodes + asked + 70, "{what}: {blocks} blocks, {reads} reads");
        drop(fs);
    }
}
