use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cairn_base::Pba;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation, Stats};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Completion, Geometry, Result};
use parking_lot::{Condvar, Mutex};

use super::{BufferCache, Image};
use crate::budget::Budget;

const BLOCK: u32 = 1024;

fn cache(device: Arc<dyn BlockDevice>, buffers: u64) -> Arc<BufferCache> {
    BufferCache::new(device, BLOCK, Budget::new(buffers * u64::from(BLOCK)))
}

fn counted() -> (Arc<MemoryDevice>, Arc<Stats>) {
    let memory = Arc::new(MemoryDevice::new(4 << 20));
    (memory.clone(), Arc::new(Stats::new(memory)))
}

#[test]
fn many_threads_read_a_block_once() {
    let (_, stats) = counted();
    let cache = cache(stats.clone(), 4096);
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for block in 0..500 {
                    if block % 50 == 0 {
                        barrier.wait();
                    }
                    assert_eq!(cache.get(Pba(block)).unwrap().pba(), Pba(block));
                }
            });
        }
    });
    assert_eq!(stats.snapshot().reads, 500);
}

#[test]
fn writers_in_many_threads_lose_nothing_while_others_pin_and_evict() {
    let (memory, stats) = counted();
    let cache = cache(stats, 16);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..2_000 {
                    let buffer = cache.get(Pba((round * 7 + thread) % 64)).unwrap();
                    let pinned = buffer.image();
                    let before = pinned.to_vec();
                    {
                        let mut guard = buffer.modify_direct();
                        let count = u64::from_le_bytes(*guard.first_chunk().unwrap()) + 1;
                        guard[..8].copy_from_slice(&count.to_le_bytes());
                    }
                    assert_eq!(*pinned, *before, "a pinned image changed");
                    if round % 100 == thread {
                        cache.write_back().unwrap();
                    }
                }
            });
        }
    });
    cache.write_back().unwrap();
    let total: u64 = (0..64)
        .map(|block| {
            u64::from_le_bytes(
                *memory.read_at(block * u64::from(BLOCK), 8).unwrap().first_chunk().unwrap(),
            )
        })
        .sum();
    assert_eq!(total, 4 * 2_000);
}

/// A device that delays its first write until a second one is done, if one arrives within the time
/// limit.
struct Overtaken {
    memory: MemoryDevice,
    writes: AtomicU32,
    begun: Barrier,
    overtaken: (Mutex<bool>, Condvar),
}

impl BlockDevice for Overtaken {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        let order = self.writes.fetch_add(1, Ordering::SeqCst);
        let (overtaken, changed) = &self.overtaken;
        if order == 0 {
            self.begun.wait();
            let wait = Duration::from_millis(200);
            let _ = changed.wait_while_for(&mut overtaken.lock(), |overtaken| !*overtaken, wait);
        }
        let done = self.memory.submit(batch);
        if order == 1 {
            *overtaken.lock() = true;
            changed.notify_all();
        }
        done
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
}

/// Two concurrent write-backs once left the older image on the device and the newer one marked
/// clean.
#[test]
fn an_older_image_never_overtakes_a_newer_one() {
    let device = Arc::new(Overtaken {
        memory: MemoryDevice::new(1 << 20),
        writes: AtomicU32::new(0),
        begun: Barrier::new(2),
        overtaken: (Mutex::new(false), Condvar::new()),
    });
    let cache = cache(device.clone(), 16);
    let buffer = cache.create(Pba(3));
    buffer.modify_direct()[0] = 1;
    std::thread::scope(|scope| {
        scope.spawn(|| cache.write_back().unwrap());
        device.begun.wait();
        buffer.modify_direct()[0] = 2;
        cache.write_back().unwrap();
    });
    assert_eq!(device.memory.read_at(3 * u64::from(BLOCK), 1).unwrap()[0], 2);
}

#[test]
fn what_is_dirty_or_held_stays_and_the_rest_goes() {
    let (_, stats) = counted();
    let cache = cache(stats, 8);
    let held = cache.get(Pba(1)).unwrap();
    let mut image: Image = held.image();
    image.make_mut()[0] = 7;
    cache.get(Pba(2)).unwrap().modify_direct()[0] = 9;
    for block in 10..1_000 {
        drop(cache.get(Pba(block)).unwrap());
    }
    assert!(Arc::ptr_eq(&held, &cache.peek(Pba(1)).expect("held")));
    assert_eq!(cache.peek(Pba(2)).expect("dirty").image()[0], 9);
    assert_eq!(held.image()[0], 0, "a copy changed the cached block");
    let left = (10..1_000).filter(|block| cache.peek(Pba(*block)).is_some()).count();
    assert!(left < 200, "{left} clean buffers kept in a budget of 8");
}

#[test]
fn a_failed_write_keeps_its_buffers_dirty() {
    let memory = Arc::new(MemoryDevice::new(4 << 20));
    let fault = Arc::new(Fault::new(memory.clone()));
    let cache = cache(fault.clone(), 4096);
    for block in [3, 4, 9] {
        cache.get(Pba(block)).unwrap().modify_direct().fill(5);
    }
    fault.fail_next(Operation::Write, Lasting::Once);
    assert!(cache.write_back().is_err());
    cache.write_back().unwrap();
    for block in [3, 4, 9] {
        assert_eq!(
            *memory.read_at(block * u64::from(BLOCK), BLOCK as usize).unwrap(),
            [5; BLOCK as usize]
        );
    }
}

#[test]
fn a_failed_read_is_tried_again_by_the_next_caller() {
    let fault = Arc::new(Fault::new(Arc::new(MemoryDevice::new(4 << 20))));
    let cache = cache(fault.clone(), 4096);
    fault.fail_next(Operation::Read, Lasting::Once);
    assert!(cache.get(Pba(3)).is_err());
    assert!(cache.get(Pba(3)).is_ok());
    assert!(cache.get(Pba(1 << 50)).is_err(), "a block beyond the device");
}

#[test]
fn created_blocks_are_zeros_and_need_no_read_nor_check() {
    let (memory, stats) = counted();
    memory.write_at(5 * u64::from(BLOCK), vec![1; BLOCK as usize]).unwrap();
    let cache = cache(stats.clone(), 4096);
    let created = cache.create(Pba(5));
    assert!(created.image().iter().all(|byte| *byte == 0) && created.is_verified());
    assert_eq!(stats.snapshot().reads, 0);
    created.modify_direct().fill(3);
    let pinned = created.image();
    let again = cache.create(Pba(5));
    assert!(Arc::ptr_eq(&created, &again) && again.image().iter().all(|byte| *byte == 0));
    assert!(pinned.iter().all(|byte| *byte == 3), "a pinned image was cleared");
}

#[test]
fn a_forgotten_block_is_not_written() {
    let (_, stats) = counted();
    let cache = cache(stats.clone(), 4096);
    cache.create(Pba(5)).modify_direct().fill(3);
    cache.forget(Pba(5));
    assert!(cache.peek(Pba(5)).is_none());
    cache.write_back().unwrap();
    assert_eq!(stats.snapshot().writes, 0);
}

#[test]
fn prefetch_reads_what_is_missing_and_an_overlay_takes_the_device_s_place() {
    let (_, stats) = counted();
    let overlay = HashMap::from([(Pba(12), Image::from(vec![4; BLOCK as usize]))]);
    let cache = BufferCache::with_overlay(stats.clone(), BLOCK, Budget::new(1 << 20), overlay);
    drop(cache.get(Pba(11)).unwrap());
    cache.prefetch(Pba(10), 5);
    let reads = stats.snapshot().reads;
    for block in 10..15 {
        let first = if block == 12 { 4 } else { 0 };
        assert_eq!(cache.get(Pba(block)).unwrap().image()[0], first);
    }
    assert_eq!(stats.snapshot().reads, reads, "prefetched blocks were read again");
}
