//! Concurrent readers, writers, write-back and truncation, with the caller's lock of an inode.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Rank, RwLock};

use super::model::Rig;
use crate::file::{BufferedMode, CacheError};
use crate::writeback::{Flushable, Flushed, WritebackMode};

const BUDGET: u64 = 2 << 20;
const MODES: [BufferedMode; 2] = [BufferedMode::Extents, BufferedMode::PerBlock];

/// The part of an inode that the cache needs: a lock around the size.
struct Inode {
    rig: Rig,
    size: RwLock<u64>,
}

impl Flushable for Inode {
    fn flush(&self, mode: WritebackMode) -> Result<Flushed, CacheError> {
        let Some(size) = self.size.try_read() else { return Ok(Flushed::Busy) };
        self.rig.file.write_back(&self.rig.mapper, 0..u64::MAX, *size, mode)?;
        Ok(Flushed::Written)
    }

    fn read_ahead(&self, blocks: std::ops::Range<u64>) {
        if let Some(size) = self.size.try_read() {
            self.rig.file.read_ahead(&self.rig.mapper, *size, blocks);
        }
    }

    fn release_reservation(&self) {
        self.rig.file.release_reservation(&self.rig.mapper);
    }
}

impl Inode {
    fn new(free: u64) -> Arc<Self> {
        let rig = Rig::new(4096, BUDGET, free, 9);
        let inode = Arc::new(Self { rig, size: RwLock::new(Rank::InodeData, 0) });
        let owner: Weak<dyn Flushable> = Arc::downgrade(&(inode.clone() as Arc<dyn Flushable>));
        inode.rig.file.set_owner(owner);
        inode
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            self.rig.pages.balance().expect("the device takes everything");
            let mut size = self.size.write();
            let at = offset + done as u64;
            done += self.rig.file.write(&self.rig.mapper, *size, at, &data[done..]).expect("room");
            *size = (*size).max(offset + done as u64);
        }
    }
}

#[test]
fn a_file_of_ten_budgets_stays_within_one() {
    for mode in MODES {
        write_ten_budgets(mode);
    }
}

fn write_ten_budgets(mode: BufferedMode) {
    let inode = Inode::new(1 << 20);
    inode.rig.pages.set_mode(mode);
    let daemon =
        (inode.rig.pages.start_writeback().unwrap(), inode.rig.pages.start_readahead().unwrap());
    let piece = vec![3; 256 << 10];
    for at in 0..80_u64 {
        inode.write(at * piece.len() as u64, &piece);
    }
    let peak = inode.rig.pages.budget().peak();
    assert!(peak <= BUDGET + BUDGET / 4, "{peak} bytes were used of {BUDGET}");
    inode.flush(WritebackMode::Sync).expect("writable");
    let mut buf = vec![0; 1 << 20];
    for at in 0..20 {
        let n =
            inode.rig.file.read(&inode.rig.mapper, 20 << 20, at << 20, &mut buf).expect("readable");
        assert!(n == buf.len() && buf.iter().all(|byte| *byte == 3));
        assert!(inode.rig.pages.budget().used() <= BUDGET + BUDGET / 4);
    }
    drop(daemon);
    assert!(inode.rig.pages.counters().evictions.get() > 0);
}

/// Each 4 KiB block is written with one byte value. A reader must never see two values in a block.
#[test]
fn blocks_are_never_torn_or_lost_between_threads() {
    for mode in MODES {
        contend(mode);
    }
}

fn contend(mode: BufferedMode) {
    const BLOCKS: u64 = 700;
    let inode = Inode::new(1 << 20);
    inode.rig.pages.set_mode(mode);
    inode.write(0, &vec![1; usize::try_from(BLOCKS).expect("small") * 4096]);
    let daemon =
        (inode.rig.pages.start_writeback().unwrap(), inode.rig.pages.start_readahead().unwrap());
    let stop = AtomicBool::new(false);
    let latest: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(1)).collect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|id| {
                let (inode, latest) = (&inode, &latest);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(id);
                    for _ in 0..1500 {
                        // Each writer has its own blocks.
                        let block = random.u64(0..BLOCKS / 2) * 2 + id;
                        let value = random.u8(1..);
                        inode.write(block * 4096, &[value; 4096]);
                        latest[usize::try_from(block).expect("small")]
                            .store(value.into(), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for id in 0..2 {
            let (inode, stop) = (&inode, &stop);
            scope.spawn(move || read_whole_blocks(inode, stop, id, BLOCKS));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                inode.flush(WritebackMode::Sync).expect("writable");
                inode.rig.file.invalidate(0..BLOCKS);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut size = inode.size.write();
                let grown = BLOCKS * 4096 + 10_000;
                inode.rig.file.write(&inode.rig.mapper, *size, grown, &[9]).expect("room");
                *size = grown + 1;
                inode.rig.file.truncate(&inode.rig.mapper, *size, BLOCKS * 4096).expect("shrinks");
                inode.rig.mapper.unmap(BLOCKS..u64::MAX);
                *size = BLOCKS * 4096;
            }
        });
        for writer in writers {
            writer.join().expect("no writer failed");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(daemon);
    inode.flush(WritebackMode::Sync).expect("writable");
    inode.rig.file.invalidate(0..u64::MAX);
    let mut buf = [0; 4096];
    for (block, value) in (0..BLOCKS).zip(&latest) {
        inode
            .rig
            .file
            .read(&inode.rig.mapper, BLOCKS * 4096, block * 4096, &mut buf)
            .expect("readable");
        let value = u8::try_from(value.load(Ordering::Relaxed)).expect("a byte");
        assert!(buf.iter().all(|byte| *byte == value), "block {block} is not {value}");
    }
    assert_eq!((inode.rig.file.dirty_bytes(), inode.rig.mapper.delayed()), (0, 0));
}

fn read_whole_blocks(inode: &Inode, stop: &AtomicBool, seed: u64, blocks: u64) {
    let mut random = fastrand::Rng::with_seed(100 + seed);
    let mut buf = vec![0; 64 << 10];
    let mut block = 0;
    while !stop.load(Ordering::Relaxed) {
        // Every second read is sequential, for the readahead.
        block = if random.bool() { block + 16 } else { random.u64(0..blocks) };
        block = block.min(blocks - 16);
        let size = inode.size.read();
        let n = inode
            .rig
            .file
            .read(&inode.rig.mapper, *size, block * 4096, &mut buf)
            .expect("readable");
        drop(size);
        assert_eq!(n, buf.len());
        for block in buf.chunks(4096) {
            assert!(block[0] != 0 && block.iter().all(|byte| *byte == block[0]), "a torn block");
        }
    }
}

/// The writer is sequential, and other threads release what it has not used yet. It never loses a
/// reservation that it relies on (the mapper panics at a placement without one), and in the end
/// every reservation is used or released.
#[test]
fn reservations_are_released_under_a_writer() {
    let inode = Inode::new(40 << 8);
    let daemon = inode.rig.pages.start_writeback().unwrap();
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let takers = [0, 1].map(|id| {
            let (inode, stop, turns) = (&inode, &stop, &turns);
            scope.spawn(move || {
                let mut had = 0;
                while !stop.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                    had += u64::from(inode.rig.pages.release_reservations());
                    if id == 0 {
                        inode.rig.file.release_reservation(&inode.rig.mapper);
                    }
                    std::thread::yield_now();
                }
                had
            })
        });
        let piece = vec![9; 12 << 10];
        for (number, at) in (0..20_u64 << 20).step_by(piece.len()).enumerate() {
            inode.write(at, &piece);
            let before = turns.load(Ordering::Relaxed);
            // A thread releases a reservation from time to time, even with one processor.
            while number % 7 == 0 && turns.load(Ordering::Relaxed) < before + 3 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let had: u64 = takers.into_iter().map(|taker| taker.join().expect("no panic")).sum();
        assert!(had > 0, "nothing was reserved ahead");
    });
    drop(daemon);
    inode.flush(WritebackMode::Sync).expect("reserved");
    let size = *inode.size.read();
    let mut buf = vec![0; usize::try_from(size).expect("small")];
    assert_eq!(
        inode.rig.file.read(&inode.rig.mapper, size, 0, &mut buf).expect("readable"),
        buf.len()
    );
    assert!(buf.iter().all(|byte| *byte == 9));
    assert_eq!((inode.rig.mapper.delayed(), inode.rig.pages.release_reservations()), (0, false));
}
