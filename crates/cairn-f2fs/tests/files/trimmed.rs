//! `CP_TRIMMED_FLAG`: an unmount sets it if all free space has been discarded, and the next mount
//! uses it.

use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Stats;
use cairn_f2fs::F2fs;
use cairn_f2fs::mkfs::{self, MkfsOptions};
use cairn_testkit::crash::write_image;
use cairn_testkit::judge::f2fs_checkpoint_state;
use cairn_vfs::{Caller, FileSystem, IoFlags, NewInode};

use crate::support::{judge, look, open};

const SIZE: u64 = 128 << 20;
/// Bytes of each file.
const PIECE: usize = 64 << 10;
const FILES: u8 = 64;

fn fresh() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::make(device.clone(), &MkfsOptions::default(), &*Threads::new()).unwrap();
    device
}

/// True if the flag is set, by dump.f2fs. Asserts that fsck.f2fs finds nothing.
fn is_trimmed(device: &MemoryDevice) -> bool {
    judge(device);
    let image = tempfile::NamedTempFile::new().unwrap();
    write_image(device, image.path()).unwrap();
    f2fs_checkpoint_state(image.path()).contains(" trimmed")
}

/// Consecutive files. Every second one is deleted after all were synced, so used segments have
/// holes.
fn wear(fs: &F2fs) {
    let name = |number: u8| format!("file {number}").into_bytes();
    for number in 0..FILES {
        let ino = fs
            .create(fs.root(), &name(number), NewInode::Regular, 0o644, &Caller::ROOT)
            .unwrap()
            .ino;
        fs.write(ino, 0, &vec![number; PIECE], IoFlags::empty()).unwrap();
        fs.fsync(ino, 0, false).unwrap();
        fs.forget(ino, 1);
    }
    fs.sync().unwrap();
    (0..FILES).step_by(2).for_each(|number| fs.unlink(fs.root(), &name(number)).unwrap());
}

fn assert_whole(fs: &F2fs) {
    for number in (1..FILES).step_by(2) {
        let found = fs.lookup(fs.root(), format!("file {number}").as_bytes()).unwrap();
        let mut bytes = vec![0; PIECE];
        assert_eq!(fs.read(found.ino, 0, &mut bytes, IoFlags::empty()).unwrap(), PIECE);
        assert!(bytes.iter().all(|byte| *byte == number), "file {number} was discarded");
        fs.forget(found.ino, 1);
    }
}

#[test]
fn what_was_freed_is_discarded_and_the_unmount_says_so() {
    let device = fresh();
    assert!(is_trimmed(&device), "a new volume is discarded whole");
    let fs = open(device.clone(), "");
    wear(&fs);
    fs.unmount().unwrap();
    assert!(is_trimmed(&device));
    // Nothing is left to be trimmed, in this mount or in the next one.
    let counted = Arc::new(Stats::new(device.clone()));
    let fs = open(counted.clone(), "");
    assert_eq!((fs.trim(0, u64::MAX, 0).unwrap(), counted.snapshot().discards), (0, 0));
    assert_whole(&fs);
    fs.unmount().unwrap();
    assert!(is_trimmed(&device));
}

#[test]
fn without_discards_the_flag_goes_until_the_free_space_has_been_trimmed() {
    let device = fresh();
    let fs = open(device.clone(), "nodiscard");
    wear(&fs);
    fs.unmount().unwrap();
    assert!(!is_trimmed(&device));
    // A mount discards nothing by itself. Trimming finds all undiscarded blocks once.
    let counted = Arc::new(Stats::new(device.clone()));
    let fs = open(counted.clone(), "");
    assert_eq!(counted.snapshot().discards, 0);
    let free = fs.statfs().unwrap().free_blocks * 4096;
    let trimmed = fs.trim(0, u64::MAX, 0).unwrap();
    assert!(trimmed >= free && trimmed < SIZE, "{trimmed} of {free}");
    assert_eq!(counted.snapshot().discard_bytes, trimmed);
    assert_eq!(fs.trim(0, u64::MAX, 0).unwrap(), 0);
    assert_whole(&fs);
    fs.unmount().unwrap();
    assert!(is_trimmed(&device));
    assert_whole(&look(device));
}

#[test]
fn a_part_that_was_trimmed_does_not_make_the_whole() {
    let device = fresh();
    let fs = open(device.clone(), "nodiscard");
    wear(&fs);
    fs.unmount().unwrap();
    let fs = open(device.clone(), "");
    let part = fs.trim(SIZE / 2, SIZE / 4, 0).unwrap();
    assert!(part > 0 && part <= SIZE / 4 + (4 << 20), "{part}");
    // Runs that are shorter than the minimum are not discarded.
    let long = fs.trim(0, u64::MAX, 1 << 20).unwrap();
    let short = fs.trim(0, u64::MAX, 0).unwrap();
    assert!(long > 0 && short > 0 && short <= u64::from(FILES) * (1 << 20), "{long}, then {short}");
    fs.unmount().unwrap();
    assert!(is_trimmed(&device));
    let fs = open(device.clone(), "nodiscard");
    wear_more(&fs);
    fs.unmount().unwrap();
    assert!(!is_trimmed(&device), "freed since, and not discarded");
}

fn wear_more(fs: &F2fs) {
    fs.unlink(fs.root(), b"file 1").unwrap();
    fs.sync().unwrap();
}
