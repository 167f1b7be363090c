//! The way to a block device that nobody asks for: large transfers past the page cache, small ones
//! through it, beside programs that read the device meanwhile.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cairn_block::file::{DirectFile, OpenOptions};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, IoBuf, Request};
use cairn_testkit::judge::{self, KernelMount, LoopDevice};
use cairn_testkit::place::Place;
use rustix::fs::{Advice, fadvise};

use crate::fixture::{CAIRN, Volume};

/// Bytes of a thread's part of the device.
const AREA: u64 = 16 << 20;
const WRITERS: u64 = 3;

/// Numbers below a bound, by xorshift.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}

/// What a block has: its own number and that of the write.
fn fill(block: &mut [u8], number: u64, version: u32) {
    for (at, word) in block.chunks_exact_mut(16).enumerate() {
        word[..8].copy_from_slice(&number.to_le_bytes());
        word[8..12].copy_from_slice(&version.to_le_bytes());
        word[12..].copy_from_slice(&(at as u32).to_le_bytes());
    }
}

/// Writes blocks of `unit` bytes in pieces of all sizes, and compares them with what it knows.
fn write_and_compare(device: &dyn BlockDevice, thread: u64, unit: u64, rounds: u32) -> Vec<u32> {
    let (first, blocks) = (thread * AREA / unit, AREA / unit);
    let mut random = numbers(thread * 977 + 3);
    let mut model = vec![0_u32; blocks as usize];
    let read = |from: u64, count: u64| {
        device.read_at((first + from) * unit, (count * unit) as usize).expect("it reads")
    };
    let compare = |model: &[u32], from: u64, read: &[u8], what: &str| {
        let mut expected = vec![0; unit as usize];
        for (number, found) in (from..).zip(read.chunks_exact(unit as usize)) {
            let version = model[number as usize];
            if version > 0 {
                fill(&mut expected, first + number, version);
                let found_version = u32::from_le_bytes(found[8..12].try_into().unwrap());
                assert!(found == expected, "{what}: {number} is {found_version}, not {version}");
            }
        }
    };
    for version in 1..=rounds {
        let bytes = match random(4) {
            // A run that is direct, off its pages or on them.
            0 => (64 << 10) + random(400 << 10),
            1 => 1 + random(60 << 10),
            _ => 1 + random(6 << 10),
        };
        let count = bytes.div_ceil(unit).min(blocks);
        // Often where it was a moment ago.
        let places = if random(2) == 0 { blocks } else { 2000 };
        let from = random(places).min(blocks - count);
        let mut data = IoBuf::zeroed((count * unit) as usize);
        for (number, block) in (first + from..).zip(data.chunks_exact_mut(unit as usize)) {
            fill(block, number, version);
        }
        let write = Request::Write { offset: (first + from) * unit, bufs: vec![data.into_bytes()] };
        let durability = Durability { preflush: false, fua: random(200) == 0 };
        let written = device.submit(Batch { requests: vec![write], durability });
        let near = from.saturating_sub(1 + random(8));
        if near < from {
            compare(&model, near, &read(near, from - near), "beside");
        }
        written.wait().expect("it writes");
        model[from as usize..(from + count) as usize].fill(version);
        for _ in 0..3 {
            let one = from + random(count);
            compare(&model, one, &read(one, 1), "one");
        }
        let start = from.saturating_sub(random(4));
        let end = (from + count + random(4)).min(blocks);
        compare(&model, start, &read(start, end - start), "all of it");
    }
    compare(&model, 0, &read(0, blocks), "at the end");
    model
}

/// Another program: it reads everywhere through the page cache, and the system reads ahead for it.
fn read_beside(device: &Path, seed: u64, is_over: &AtomicBool) {
    let file = File::open(device).expect("the device opens");
    let mut random = numbers(seed);
    let mut buf = [0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        let at = random(WRITERS * AREA / 4096) * 4096;
        let _ = file.read_at(&mut buf, at);
        let _ = fadvise(file.as_fd(), at, std::num::NonZeroU64::new(128 << 10), Advice::WillNeed);
    }
}

/// Linux keeps old pages of a block device after asynchronous direct writes, if somebody reads them
/// in meanwhile. Nothing of that is ever read.
#[test]
fn no_old_byte_is_read_whoever_reads_the_device_meanwhile() {
    let dir = Place::new();
    let image = dir.path().join("image");
    let file = File::create(&image).unwrap();
    let rounds = if std::env::var_os("CAIRN_DEEP").is_some() { 20_000 } else { 250 };
    for unit in [1024, 4096] {
        // With small sectors the end is no whole page.
        file.set_len(WRITERS * AREA + if unit == 1024 { 512 } else { 0 }).unwrap();
        let made = match unit {
            1024 => LoopDevice::attach(&image, false),
            _ => LoopDevice::with_large_sectors(&image),
        };
        let device = DirectFile::open(made.path(), OpenOptions::write()).unwrap();
        let device = device.with_depth().with_page_cache().unwrap();
        let is_over = AtomicBool::new(false);
        let models: Vec<Vec<u32>> = std::thread::scope(|scope| {
            for seed in 1..3 {
                let (path, is_over) = (made.path(), &is_over);
                scope.spawn(move || read_beside(path, seed, is_over));
            }
            let device = &device;
            let threads = (0..WRITERS)
                .map(|thread| scope.spawn(move || write_and_compare(device, thread, unit, rounds)));
            let threads: Vec<_> = threads.collect();
            let models = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            let models: Vec<_> = models.collect();
            is_over.store(true, Ordering::Relaxed);
            models.into_iter().map(|model| model.expect("what was written is read")).collect()
        });
        device.flush().unwrap();
        drop(device);
        // On the disk, and for the next who opens it.
        let found = fs::read(made.path()).unwrap();
        let mut expected = vec![0; unit as usize];
        for (number, version) in (0..).zip(models.concat()).filter(|(_, version)| *version > 0) {
            fill(&mut expected, number, version);
            let at = (number * unit) as usize;
            assert!(found[at..at + unit as usize] == expected, "block {number} of {unit}");
        }
    }
}

/// fio compares all that it writes, in pieces of all sizes, while another program reads the device;
/// the checkers of each format and the kernel's ext4 judge the rest.
#[test]
fn a_mounted_device_has_what_was_written_in_pieces_of_all_sizes() {
    const SIZE: u64 = 256 << 20;
    let mut volume = Volume::f2fs(SIZE, "");
    volume.unmount();
    mixed_sizes(&volume, judge::assert_f2fs_clean);
    for block in ["1024", "4096"] {
        let volume = Volume::make(SIZE, &["-b", block]);
        let files = mixed_sizes(&volume, judge::assert_clean);
        let kernel = KernelMount::new(&volume.image(), "ro");
        for (name, bytes) in files {
            assert!(fs::read(kernel.path().join(&name)).unwrap() == bytes, "{name}");
        }
    }
}

/// Returns the files that it leaves.
fn mixed_sizes(volume: &Volume, assert_clean: fn(&Path)) -> Vec<(String, Vec<u8>)> {
    let device = LoopDevice::attach(&volume.image(), false);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (source, root) = (text(device.path()), text(&volume.root()));
    let mut common = vec![
        format!("--directory={root}"),
        "--size=6M".into(),
        "--ioengine=psync".into(),
        "--verify=crc32c".into(),
        "--verify_fatal=1".into(),
        "--verify_state_save=0".into(),
        "--rw=randwrite".into(),
        "--fsync=64".into(),
    ];
    let jobs = ["512-16k", "16k-128k", "64k-1M"];
    for (number, sizes) in jobs.iter().enumerate() {
        common.push(format!("--name=job{number}"));
        common.push(format!("--bsrange={sizes}"));
    }
    let is_over = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        scope.spawn(|| read_beside(device.path(), 9, &is_over));
        let work = std::panic::catch_unwind(|| {
            judge::run(CAIRN, ["mount", &source, &root]);
            judge::run("fio", &common);
            let small = |number: usize| format!("small {number}");
            for number in 0..200 {
                let bytes = vec![number as u8; 700 * number];
                fs::write(volume.root().join(small(number)), bytes).unwrap();
            }
            judge::run(CAIRN, ["umount", &root]);
            judge::run(CAIRN, ["mount", &source, &root]);
            judge::run("fio", common.iter().chain([&"--verify_only=1".to_owned()]));
            let names =
                (0..200).map(small).chain((0..jobs.len()).map(|job| format!("job{job}.0.0")));
            let files: Vec<_> = names
                .map(|name| (name.clone(), fs::read(volume.root().join(name)).unwrap()))
                .collect();
            judge::run(CAIRN, ["umount", &root]);
            files
        });
        is_over.store(true, Ordering::Relaxed);
        work.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_clean(&volume.image());
    left
}
