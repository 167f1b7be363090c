//! The same writes on the same full volume, by Linux and by Cairn with `gc_victim=greedy`. The
//! numbers of written and moved blocks differ by at most a tenth.
//!
//! The volume (`mode=lfs`, no cleaning in the background) is made and filled once. Each side
//! overwrites the blocks of its file in the same random order, each block equally often. An fsync
//! after a fixed number of blocks makes the collected dirty data equal, too.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::assert_f2fs_clean;
use cairn_testkit::vm::Vm;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, open};

/// Large enough that one or two sections make no difference: Linux uses these before it cleans,
/// because it takes the free blocks of a log's section from the last checkpoint.
const SIZE: u64 = 384 << 20;
/// Part of the volume that the file fills, in percent.
const FILL: u64 = 90;
const BLOCK: usize = 4096;
/// Overwritten blocks between two fsyncs.
const BATCH: usize = 512;
const BATCHES: usize = 80;
/// Environment variable with the number of blocks of the file, for the test program in the machine.
const VARIABLE: &str = "CAIRN_OVERWRITE";
/// The file with Linux's counters.
const SYSFS: &str = "/sys/fs/f2fs/vda";
const COUNTERS: [&str; 3] =
    ["lifetime_write_kbytes", "moved_blocks_foreground", "moved_blocks_background"];

/// The writes.
fn work(blocks: u64, mut write: impl FnMut(u64, &[u8]), mut fsync: impl FnMut()) {
    let mut rng = fastrand::Rng::with_seed(0x6b);
    let mut order: Vec<u64> = (0..blocks).collect();
    let mut left: Vec<u64> = Vec::new();
    let mut data = vec![0; BLOCK];
    for batch in 0..BATCHES {
        for _ in 0..BATCH {
            if left.is_empty() {
                rng.shuffle(&mut order);
                left.clone_from(&order);
            }
            data[..8].copy_from_slice(&batch.to_le_bytes());
            write(left.pop().unwrap(), &data);
        }
        fsync();
    }
}

/// The counters of one side.
#[derive(Clone, Copy, Debug)]
struct Counted {
    written: u64,
    moved: u64,
}

/// A volume that one file fills, and the blocks of the file.
fn full() -> (Arc<MemoryDevice>, u64) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::make(device.clone(), &MkfsOptions::default(), &*Threads::new()).unwrap();
    let fs = open(device.clone(), "mode=lfs,cache=16M");
    let ino = fs.create(fs.root(), b"file", NewInode::Regular, 0o644, &Caller::ROOT).unwrap().ino;
    let blocks = fs.statfs().unwrap().free_blocks * FILL / 100;
    let piece = vec![0xca; 64 * BLOCK];
    for first in (0..blocks).step_by(64) {
        let count = (blocks - first).min(64) as usize * BLOCK;
        assert_eq!(
            fs.write(ino, first * BLOCK as u64, &piece[..count], IoFlags::empty()).unwrap(),
            count
        );
    }
    fs.unmount().unwrap();
    (device, blocks)
}

fn by_cairn(device: Arc<MemoryDevice>, blocks: u64) -> Counted {
    let counted = Arc::new(Stats::new(device.clone()));
    let options = "mode=lfs,gc_victim=greedy,background_gc=off,cache=64M";
    let fs = F2fs::open(counted.clone(), Simulated::new(1), &MountOptions::parse(options).unwrap())
        .unwrap();
    let ino = fs.lookup(fs.root(), b"file").unwrap().ino;
    let written = || counted.snapshot().write_bytes / BLOCK as u64;
    let before = written();
    let write = |block, data: &[u8]| {
        assert_eq!(fs.write(ino, block * BLOCK as u64, data, IoFlags::empty()).unwrap(), BLOCK)
    };
    work(blocks, write, || fs.fsync(ino, 0, false).unwrap());
    fs.sync().unwrap();
    let stats = fs.gc_stats();
    let moved = stats.data_blocks_moved.get() + stats.node_blocks_moved.get();
    let found = Counted { written: written() - before, moved };
    fs.unmount().unwrap();
    drop(fs);
    judge(&device);
    found
}

fn by_linux(image: &Path, blocks: u64) -> Counted {
    let show = format!("for name in {}; do cat {SYSFS}/$name; done\n", COUNTERS.join(" "));
    let script = format!(
        "mount -t f2fs -o mode=lfs,background_gc=off /dev/vda /mnt\n{show}{VARIABLE}={blocks} \
         agent --ignored --exact against_linux::in_the_machine --test-threads=1 > /dev/null\n\
         sync\n{show}umount /mnt\n"
    );
    let text = Vm::new().disk(image).agent().check(&script);
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let [before, _, _, after, foreground, background] = numbers[..] else {
        panic!("six counters: {text}")
    };
    assert_f2fs_clean(image);
    Counted { written: (after - before) / 4, moved: foreground + background }
}

/// The machine runs this test.
#[test]
#[ignore = "runs in the virtual machine"]
fn in_the_machine() {
    let Ok(blocks) = std::env::var(VARIABLE) else { return };
    let file = std::fs::File::options().write(true).open("/mnt/file").unwrap();
    let write = |block, data: &[u8]| file.write_all_at(data, block * BLOCK as u64).unwrap();
    work(blocks.parse().unwrap(), write, || file.sync_all().unwrap());
}

#[test]
fn greedy_writes_and_moves_what_linux_does() {
    let (device, blocks) = full();
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, image.path()).unwrap();
    let (cairn, linux) = (by_cairn(device, blocks), by_linux(image.path(), blocks));
    println!(
        "{BATCHES} batches of {BATCH} of {blocks} blocks overwritten: {linux:?} by Linux, \
         {cairn:?} by Cairn"
    );
    assert!(linux.moved > linux.written / 4, "{linux:?}: the volume is full enough to be cleaned");
    for (linux, cairn) in [(linux.written, cairn.written), (linux.moved, cairn.moved)] {
        assert!(linux.abs_diff(cairn) * 10 <= linux, "{linux} by Linux, {cairn} by Cairn");
    }
}
