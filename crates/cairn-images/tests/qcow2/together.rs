//! Many threads on one disk.

use std::sync::Arc;

use cairn_block::memory::MemoryDevice;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_images::qcow2::{self, CreateOptions, Options};
use cairn_testkit::crash::write_image;
use cairn_testkit::deep;

use crate::model::Model;
use crate::qemu::{Checked, Place, alone, check};

const THREADS: u64 = 4;
const SIZE: u64 = 4 << 20;
const STEPS: u32 = 8000;

/// Each thread has every fourth sector, so that all share every cluster.
#[test]
fn threads_that_share_clusters_lose_nothing() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    qcow2::create(device.clone(), &CreateOptions { size: SIZE, cluster_size: 4096 }).unwrap();
    let options = Options { write: true, backing: &alone, depth: 0 };
    let disk = qcow2::open(device.clone(), &options).unwrap();
    let mine = |thread: u64, number: u64| (number * THREADS + thread) * 512;
    let count = SIZE / 512 / THREADS;
    let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let disk = &disk;
            move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                let mut bytes = vec![0; count as usize];
                for step in 0..STEPS * if deep() { 20 } else { 1 } {
                    let number = rng.u64(0..count);
                    let at = mine(thread, number);
                    match rng.u32(0..20) {
                        0 => disk.flush().unwrap(),
                        1 => {
                            disk.write_zeroes(at, 512).unwrap();
                            bytes[number as usize] = 0;
                        }
                        2..=7 => {
                            let read = disk.read_at(at, 512).unwrap();
                            let expected = bytes[number as usize];
                            assert!(read.iter().all(|byte| *byte == expected), "at {at}");
                        }
                        _ => {
                            let byte = (step % 255) as u8 + 1;
                            disk.write_at(at, vec![byte; 512]).unwrap();
                            bytes[number as usize] = byte;
                        }
                    }
                }
                bytes
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut model = Model::new(vec![0; SIZE as usize], 512, 0);
    for (thread, bytes) in (0..).zip(&written) {
        for (number, byte) in (0..).zip(bytes) {
            model.set(mine(thread, number), &[*byte; 512]);
        }
    }
    model.compare(&disk);
    drop(disk);
    let place = Place::new();
    let path = place.path("disk");
    write_image(&device, &path).unwrap();
    assert_eq!(check(&path), Checked::Clean);
    model.same(&place.contents(&path), "by qemu-img");
}

/// Clusters go back and forth between the threads' halves of the disk. Nobody reads what another
/// has in a cluster that was given back.
#[test]
fn clusters_that_are_given_back_are_not_mixed_up() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    qcow2::create(device.clone(), &CreateOptions { size: SIZE, cluster_size: 4096 }).unwrap();
    let options = Options { write: true, backing: &alone, depth: 0 };
    let disk = qcow2::open(device, &options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let disk = &disk;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(100 + thread);
                let part = SIZE / THREADS;
                let byte = thread as u8 + 1;
                for _ in 0..STEPS / 5 {
                    let at = thread * part + rng.u64(0..part / 4096 - 8) * 4096;
                    match rng.u32(0..4) {
                        0 => disk.discard(at, 8 * 4096).unwrap(),
                        1 => disk.write_at(at + 512, vec![byte; 9000]).unwrap(),
                        2 => disk.flush().unwrap(),
                        _ => {
                            let read = disk.read_at(at, 8 * 4096).unwrap();
                            let foreign = read.iter().find(|one| ![0, byte].contains(one));
                            assert_eq!(foreign, None, "thread {thread} at {at}");
                        }
                    }
                }
            });
        }
    });
}
