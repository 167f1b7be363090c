//! Damaged volumes, read and written: typed errors, no panic, no endless walk, no more memory than the caches may have.
//!
//! A search runs in a process of its own, whose memory and processor time the host's kernel limits.

mod process;
mod target;
mod tour;
mod work;

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::modes::{MODES, Mode};

use crate::process::Search;
use crate::target::target;

const PLAIN: &[&str] = &[];
const EXTRA: &[&str] = &["-O", "extra_attr,inode_crtime,inode_checksum,compression"];

fn open(device: Arc<MemoryDevice>, options: &str) -> cairn_f2fs::Result<Arc<F2fs>> {
    let options = MountOptions { cache_bytes: 32 << 20, ..MountOptions::parse(options).unwrap() };
    F2fs::open(device, Threads::new(), &options)
}

/// Of so many seeds one has a worn volume, if its mode is `lfs`.
const WORN: u64 = 10;

/// The mode that a seed is written in; without zones, because the target is not on any.
fn mode(seed: u64) -> &'static Mode {
    let mut plain = MODES.iter().filter(|mode| !mode.zoned).cycle();
    plain.nth((seed % MODES.len() as u64) as usize).unwrap()
}

/// Opens damaged volumes and uses them; what a process of a [`Search`] does.
fn search(arguments: &[&str], writing: bool, seeds: Range<u64>) {
    let target = target(arguments);
    let (mut opened, mut refused, mut written, mut cleaned) = (0, 0, 0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let device = target.mutate(seed);
        match open(device.clone(), if writing { mode(seed).options } else { "ro" }) {
            Ok(volume) if writing => {
                written += work::upon(&volume, seed, mode(seed).is_lfs() && seed.is_multiple_of(WORN));
                cleaned += volume.volume().gc.stats.data_sections.get();
                // Whatever is left is met again.
                if let Ok(again) = open(device, "ro") {
                    opened += usize::from(tour::of(&again) > 0);
                }
            }
            Ok(volume) => opened += usize::from(tour::of(&volume) > 0),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
    assert!(!writing || written > 0 && cleaned > 0, "{written} calls succeeded, {cleaned} sections were cleaned");
}

/// What runs in the small process.
#[test]
#[ignore = "runs in a process of its own"]
fn in_a_small_process() {
    if let Some(Search { extra, writing, seeds }) = Search::from_environment() {
        search(if extra { EXTRA } else { PLAIN }, writing, seeds);
    }
}

/// Images of one search.
fn count() -> u64 {
    if cairn_testkit::deep() { 5000 } else { 150 }
}

#[test]
fn damaged_volumes_are_read() {
    Search { extra: false, writing: false, seeds: 0..count() }.run();
}

#[test]
fn damaged_volumes_with_extra_attributes_are_read() {
    Search { extra: true, writing: false, seeds: 10_000..10_000 + count() }.run();
}

#[test]
fn damaged_volumes_are_written() {
    Search { extra: false, writing: true, seeds: 20_000..20_000 + count() }.run();
}

#[test]
fn damaged_volumes_with_extra_attributes_are_written() {
    Search { extra: true, writing: true, seeds: 30_000..30_000 + count() }.run();
}

#[test]
fn devices_that_are_cut_or_empty_are_refused() {
    let target = target(PLAIN);
    for size in [0, 512, 4096, 8192, 1 << 20, 8 << 20, 63 << 20] {
        let cut = MemoryDevice::new(size);
        let head = target.device.read_at(0, usize::try_from(size.min(4 << 20)).unwrap()).unwrap();
        if size > 0 {
            cut.write_at(0, head.to_vec()).unwrap();
        }
        assert_eq!(cut.geometry().size, size);
        assert!(open(Arc::new(cut), "").is_err(), "{size} bytes");
    }
}
