//! Damaged volumes, read and written: errors are typed; there is no panic and no endless walk;
//! memory stays within the limit of the caches.
//!
//! A search runs in a process of its own, whose memory and processor time the host's kernel limits.

mod cases;
mod process;
mod sealed;
mod target;
mod tour;
mod volume;
mod work;
mod zones;

#[path = "../common/open.rs"]
mod opened;
#[path = "../common/zoned.rs"]
mod zoned;

use std::ops::Range;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::zoned::open_image;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_f2fs::{F2fs, MountOptions};
use cairn_testkit::modes::{MODES, Mode};

use crate::process::Search;
use crate::target::target;
use crate::volume::{End, Kind, sound};

fn open(image: Arc<MemoryDevice>, options: &str) -> cairn_f2fs::Result<Arc<F2fs>> {
    let image: Arc<dyn BlockDevice> = image;
    match open_image(&image)? {
        Some(zoned) => open_on(Arc::new(zoned), options),
        None => open_on(image, options),
    }
}

fn open_on(device: Arc<dyn BlockDevice>, options: &str) -> cairn_f2fs::Result<Arc<F2fs>> {
    let options = MountOptions { cache_bytes: 32 << 20, ..MountOptions::parse(options).unwrap() };
    F2fs::open(device, Threads::new(), &options)
}

/// Checks a damaged volume, which may be any, but is only read.
fn check(image: Arc<MemoryDevice>) {
    let before = image.fork();
    let device: Arc<dyn BlockDevice> = match open_image(&(image.clone() as Arc<dyn BlockDevice>)) {
        Ok(Some(zoned)) => Arc::new(zoned),
        Ok(None) => image.clone(),
        Err(_) => return,
    };
    let runtime: Arc<dyn Runtime> = Threads::new();
    match cairn_f2fs::check::check(device, &runtime, Arc::new(())) {
        Ok(report) => assert!(report.findings.len() <= 200 * report.counts.len()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for at in (0..8 << 20).step_by(1 << 20) {
        let read = |device: &MemoryDevice| device.read_at(at, 1 << 20).unwrap();
        assert_eq!(&read(&before)[..], &read(&image)[..], "a check writes nothing");
    }
}

/// One of this many volumes is checked before it is read.
const CHECKED: u64 = 4;

/// In each mode, one of this many seeds has a worn volume, on which sections are cleaned.
const WORN: u64 = 5;

/// The mode of a seed. Zones imply `mode=lfs` and are combined with all options.
fn mode(kind: Kind, seed: u64) -> Mode {
    let zoned = kind.zones().is_some();
    let mut modes = MODES.iter().filter(|mode| zoned || !mode.zoned).cycle();
    let mode = modes.nth((seed % MODES.len() as u64) as usize).unwrap();
    Mode { zoned, ..*mode }
}

fn is_worn(kind: Kind, seed: u64) -> bool {
    mode(kind, seed).is_lfs() && (seed / MODES.len() as u64).is_multiple_of(WORN)
}

/// Opens damaged volumes and uses them, in the process of a [`Search`].
fn search(kind: Kind, writing: bool, seeds: Range<u64>) {
    let targets = [target(kind, End::Cut), target(kind, End::Closed)];
    let (mut opened, mut refused, mut written, mut cleaned) = (0, 0, 0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let device = targets[fastrand::Rng::with_seed(!seed).usize(..2)].mutate(seed);
        if !writing && seed.is_multiple_of(CHECKED) {
            check(device.clone());
        }
        match open(device.clone(), if writing { mode(kind, seed).options } else { "ro" }) {
            Ok(volume) if writing => {
                written += work::upon(&volume, seed, is_worn(kind, seed));
                cleaned += volume.gc_stats().data_sections.get();
                // The result is opened again.
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
    assert!(
        !writing || written > 0 && cleaned > 0,
        "{written} calls succeeded, {cleaned} sections were cleaned"
    );
}

/// The limited process runs this test.
#[test]
#[ignore = "runs in a process of its own"]
fn in_a_small_process() {
    if let Some(Search { kind, writing, seeds }) = Search::from_environment() {
        search(kind, writing, seeds);
    }
}

/// Images of one search.
fn count() -> u64 {
    if cairn_testkit::deep() { 5000 } else { 150 }
}

#[test]
fn damaged_volumes_are_read() {
    Search { kind: Kind::Plain, writing: false, seeds: 0..count() }.run();
}

#[test]
fn damaged_volumes_with_extra_attributes_are_read() {
    Search { kind: Kind::Extra, writing: false, seeds: 10_000..10_000 + count() }.run();
}

#[test]
fn damaged_volumes_are_written() {
    Search { kind: Kind::Plain, writing: true, seeds: 20_000..20_000 + count() }.run();
}

#[test]
fn damaged_volumes_with_extra_attributes_are_written() {
    Search { kind: Kind::Extra, writing: true, seeds: 30_000..30_000 + count() }.run();
}

#[test]
fn damaged_volumes_on_zones_are_read() {
    Search { kind: Kind::Zoned, writing: false, seeds: 40_000..40_000 + count() }.run();
}

#[test]
fn damaged_volumes_on_zones_are_written() {
    Search { kind: Kind::Zoned, writing: true, seeds: 50_000..50_000 + count() }.run();
}

#[test]
fn damaged_volumes_on_zones_with_less_capacity_than_size_are_read() {
    Search { kind: Kind::Short, writing: false, seeds: 60_000..60_000 + count() }.run();
}

#[test]
fn damaged_volumes_on_zones_with_less_capacity_than_size_are_written() {
    Search { kind: Kind::Short, writing: true, seeds: 70_000..70_000 + count() }.run();
}

#[test]
fn devices_that_are_cut_or_empty_are_refused() {
    let sound = sound(Kind::Plain, End::Closed);
    for size in [0, 512, 4096, 8192, 1 << 20, 8 << 20, 63 << 20] {
        let cut = MemoryDevice::new(size);
        let head = sound.read_at(0, usize::try_from(size.min(4 << 20)).unwrap()).unwrap();
        if size > 0 {
            cut.write_at(0, head.to_vec()).unwrap();
        }
        assert_eq!(cut.geometry().size, size);
        assert!(open(Arc::new(cut), "").is_err(), "{size} bytes");
    }
}
