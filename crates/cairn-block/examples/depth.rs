//! Measures the ways to a disk: the page cache, direct transfers one at a time, many at once, and
//! only the large ones of them.
//!
//! `depth PATH`: a block device or a file of at least 256 MiB, whose contents are **overwritten**.

#![allow(clippy::disallowed_methods, reason = "it measures with the system's clock")]

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use cairn_block::file::{DirectFile, FileDevice, OpenOptions};
use cairn_block::{
    Batch, BlockDevice, BlockDeviceExt, Bytes, Completion, Durability, IoBuf, Request,
};

const AREA: u64 = 256 << 20;
const BLOCK: u64 = 4096;

fn main() {
    let path = std::env::args().nth(1).expect("give the path of a device that may be overwritten");
    let path = Path::new(&path);
    let open = || FileDevice::open(path, OpenOptions::write()).expect("the device opens");
    fill(&open());
    let [cache, one, many, large] = ["page cache", "one by one", "many", "large ones"];
    println!("{:28} {cache:>12} {one:>12} {many:>12} {large:>12}", "");
    for (name, measure) in MEASURES {
        let mut line = format!("{name:28}");
        for way in 0..4 {
            forget(path);
            let rate = match way {
                0 => measure(&open()),
                1 => measure(&DirectFile::over(open()).expect("direct transfers")),
                many_or_large => {
                    let device = DirectFile::over(open()).expect("direct transfers").with_depth();
                    device.depth().expect("an io_uring");
                    match many_or_large {
                        2 => measure(&device),
                        _ => measure(&device.with_page_cache().expect("a descriptor")),
                    }
                }
            };
            line += &format!(" {rate:>12.0}");
        }
        println!("{line}");
    }
}

type Measure = fn(&dyn BlockDevice) -> f64;

/// Operations or MiB for each second.
const MEASURES: [(&str, Measure); 8] = [
    ("4K reads, 32 at once", |device| batches(device, 32, 200)),
    ("4K reads, one at a time", |device| batches(device, 1, 3000)),
    ("4K reads, 16 threads", threads),
    ("1M reads, one at a time", |device| large_reads(device, 1)),
    ("1M reads, 4 in flight", |device| large_reads(device, 4)),
    ("1M writes, 8 in flight", |device| writes(device, 1 << 20, 8, 256)),
    ("4K writes, 8 in flight", |device| writes(device, BLOCK, 8, 6000)),
    ("4K writes, one durable", durable),
];

fn fill(device: &FileDevice) {
    for at in (0..AREA).step_by(1 << 20) {
        let data = IoBuf::copy_from(&vec![(at >> 20) as u8 | 1; 1 << 20]);
        device.write_at(at, data.into_bytes()).expect("the device is large enough");
    }
    device.flush().expect("the device works");
}

/// Drops what the host has cached of it.
fn forget(path: &Path) {
    let file = std::fs::File::open(path).expect("the device opens");
    file.sync_data().expect("the device works");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is taken");
}

/// Places of blocks, in an order of no kind.
fn places(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (AREA / BLOCK) * BLOCK
    }
}

fn read(offset: u64, len: u64) -> Request {
    Request::Read { offset, buf: IoBuf::zeroed(len as usize) }
}

fn submit(device: &dyn BlockDevice, requests: Vec<Request>) -> Completion {
    device.submit(Batch { requests, durability: Durability::default() })
}

fn rate(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

fn batches(device: &dyn BlockDevice, size: u64, count: u64) -> f64 {
    let mut place = places(7);
    rate(size * count, || {
        for _ in 0..count {
            let requests = (0..size).map(|_| read(place(), BLOCK)).collect();
            submit(device, requests).wait().expect("it reads");
        }
    })
}

fn threads(device: &dyn BlockDevice) -> f64 {
    rate(16 * 400, || {
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let mut place = places(thread + 1);
                scope.spawn(move || {
                    (0..400).for_each(|_| drop(device.read_at(place(), 4096).expect("it reads")));
                });
            }
        });
    })
}

fn large_reads(device: &dyn BlockDevice, depth: usize) -> f64 {
    rate(AREA >> 20, || {
        let requests = (0..AREA).step_by(1 << 20).map(|at| read(at, 1 << 20));
        in_flight(device, depth, requests);
    })
}

/// MiB, or blocks, and a flush at the end.
fn writes(device: &dyn BlockDevice, len: u64, depth: usize, count: u64) -> f64 {
    let data: Bytes = IoBuf::copy_from(&vec![5; len as usize]).into_bytes();
    let mut place = places(9);
    rate(count, || {
        let requests = (0..count).map(|number| {
            let offset = if len > BLOCK { number * len } else { place() };
            Request::Write { offset, bufs: vec![data.clone()] }
        });
        in_flight(device, depth, requests);
        device.flush().expect("it flushes");
    })
}

fn in_flight(device: &dyn BlockDevice, depth: usize, requests: impl Iterator<Item = Request>) {
    let mut waiting = VecDeque::new();
    for request in requests {
        if waiting.len() == depth {
            let first: Option<Completion> = waiting.pop_front();
            first.map(Completion::wait).transpose().expect("it works");
        }
        waiting.push_back(submit(device, vec![request]));
    }
    waiting.into_iter().for_each(|one| drop(one.wait().expect("it works")));
}

fn durable(device: &dyn BlockDevice) -> f64 {
    let data: Bytes = IoBuf::copy_from(&[5; 4096]).into_bytes();
    let mut place = places(11);
    let durability = Durability { preflush: true, fua: true };
    rate(200, || {
        for _ in 0..200 {
            device.write_durable(place(), data.clone(), durability).expect("it writes");
        }
    })
}
