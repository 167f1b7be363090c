//! A device that fails once, or from some moment on: what was flushed is there, errors are told,
//! and `qemu-img check` finds leaks at most.

use std::path::Path;
use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::qcow2::{self, Options, Qcow2};
use cairn_testkit::crash::write_image;
use cairn_testkit::deep;

use crate::model::Model;
use crate::qemu::{Place, alone, check, io, qemu};

const SIZE: usize = 1 << 20;
const SECTOR: usize = 512;

fn open(device: Arc<dyn BlockDevice>, write: bool) -> qcow2::Result<Qcow2> {
    qcow2::open(device, &Options { write, backing: &alone, depth: 0 })
}

/// For each sector the bytes that it may have.
type Allowed = Vec<Vec<u8>>;

fn judge(disk: &dyn BlockDevice, allowed: &Allowed, what: &str) {
    let read = disk.read_at(0, SIZE).unwrap();
    for (number, (sector, allowed)) in read.chunks(SECTOR).zip(allowed).enumerate() {
        let whole = sector.iter().all(|byte| *byte == sector[0]);
        let found = sector[0];
        assert!(whole && allowed.contains(&found), "{what}: {number} has {found}, not {allowed:?}");
    }
}

/// Runs changes on an image with one fault, and judges what is left. Gives how many operations of
/// this kind there were, and whether anything failed.
fn run(
    image: &MemoryDevice,
    fault: Option<(Operation, u64, Lasting)>,
    left: Option<&Path>,
) -> ([u64; 4], bool) {
    let device = Arc::new(image.fork());
    let faulty = Arc::new(Fault::new(device.clone()));
    let what = format!("{fault:?}");
    let disk = open(faulty.clone(), true).unwrap();
    if let Some((operation, nth, lasting)) = fault {
        faulty.fail(operation, nth, lasting);
    }
    let mut model = Model::new(vec![0; SIZE], SECTOR as u64, 41);
    let mut now: Allowed = vec![vec![200]; SIZE / SECTOR];
    let (mut flushed, mut failed) = (now.clone(), false);
    for step in 0..40 {
        let (offset, len) = model.range(60 << 10);
        let data = model.data(len);
        let (byte, done) = match step % 8 {
            3 => (0, disk.write_zeroes(offset, len)),
            5 => (0, disk.discard(offset, len)),
            7 => {
                match disk.flush() {
                    Ok(()) => flushed.clone_from(&now),
                    Err(_) => failed = true,
                }
                continue;
            }
            _ => (data[0], disk.write_at(offset, data)),
        };
        for sector in offset as usize / SECTOR..(offset + len) as usize / SECTOR {
            flushed[sector].push(byte);
            if done.is_ok() && step % 8 != 5 {
                now[sector] = vec![byte];
            } else {
                now[sector].push(byte);
            }
        }
        failed |= done.is_err();
    }
    match disk.flush() {
        Ok(()) => flushed.clone_from(&now),
        Err(_) => failed = true,
    }
    faulty.clear();
    judge(&disk, &now, &what);
    drop(disk);
    judge(&open(device.clone(), false).unwrap(), &flushed, &what);
    if let Some(path) = left {
        write_image(&device, path).unwrap();
        println!("{what}");
        check(path);
    }
    let kinds = [Operation::Read, Operation::Write, Operation::Discard, Operation::Flush];
    (kinds.map(|kind| faulty.count(kind)), failed)
}

#[test]
fn every_request_may_fail() {
    let place = Place::new();
    let path = place.create("disk", "cluster_size=4k", "1M");
    io(&path, &["write -P 200 0 1M"]);
    qemu("qemu-img", &["snapshot", "-c", "one", path.to_str().unwrap()]);
    let bytes = std::fs::read(&path).unwrap();
    let image = MemoryDevice::new(8 << 20);
    image.load(0, &bytes);
    let (counts, failed) = run(&image, None, None);
    assert!(!failed);
    let left = place.path("left");
    let kinds = [Operation::Read, Operation::Write, Operation::Discard, Operation::Flush];
    let every = if deep() { 1 } else { 16 };
    for (kind, count) in kinds.into_iter().zip(counts) {
        let mut told = 0;
        for nth in 1..=count {
            for lasting in [Lasting::Once, Lasting::Forever] {
                let judged = (nth % every == 0).then_some(left.as_path());
                told += u32::from(run(&image, Some((kind, nth, lasting)), judged).1);
            }
        }
        println!("{kind:?}: {count} times two faults, {told} were told");
        // The host may ignore a discard; and some of the first reads were over.
        assert!(told > 0 || kind == Operation::Discard, "no fault of {kind:?} was noticed");
    }
}
