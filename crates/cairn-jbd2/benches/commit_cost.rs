//! The cost of a commit with different numbers of listed transactions, for each value of
//! `checkpoint_clean`; and the number of callers that share a commit.
//!
//! `cargo bench -p cairn-jbd2` runs in memory and takes a minute or two.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::runtime::threads::Threads;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Latency, LatencyProfile};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::{CheckpointClean, Journal, JournalArea, JournalOptions};

const BLOCK: u32 = 1024;
/// Commits of one measurement, and measurements of which the fastest counts. Other programs may
/// slow down some of them.
const COMMITS: u64 = 200;
const ROUNDS: usize = 45;

const LISTED_MAX: u32 = 100_000;

/// A version 2 journal superblock of an empty log.
fn superblock(blocks: u32) -> Vec<u8> {
    let mut block = vec![0_u8; BLOCK as usize];
    for (at, value) in
        [(0, 0xc03b_3998), (4, 4), (12, BLOCK), (16, blocks), (20, 1), (24, 1), (0x40, 1)]
    {
        block[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
    }
    block
}

fn journal(log_blocks: u32, latency: LatencyProfile) -> (Arc<BufferCache>, Arc<Journal>) {
    let log_blocks = log_blocks.next_multiple_of(64);
    let size = (u64::from(log_blocks) + 1_000_000) * u64::from(BLOCK);
    let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(size));
    let device = if latency == LatencyProfile::default() {
        memory
    } else {
        Arc::new(Latency::new(memory, latency))
    };
    // Touches every page of the log before the measurement.
    for chunk in 0..u64::from(log_blocks).div_ceil(64) {
        device
            .write_at(chunk * 64 * u64::from(BLOCK), vec![0; 64 * BLOCK as usize])
            .expect("memory");
    }
    device.write_at(0, superblock(log_blocks)).expect("memory");
    let extents = vec![(FileBlock(0), Pba(0), u64::from(log_blocks))];
    let area = JournalArea { device: device.clone(), block_size: BLOCK, extents, since: 0 };
    let buffers = BufferCache::new(device, BLOCK, Budget::new(4 << 30));
    let journal = Journal::open(JournalOptions::default(), buffers.clone(), area, Threads::new())
        .expect("an empty log");
    (buffers, journal)
}

fn commit(buffers: &BufferCache, journal: &Arc<Journal>, pba: u64) {
    let handle = journal.start(1).expect("there is room");
    let buffer = buffers.get(Pba(pba)).expect("memory");
    handle.get_write_access(&buffer).expect("memory")[0] ^= 1;
    let tid = handle.tid();
    drop(handle);
    journal.commit_and_wait(tid).expect("memory");
}

fn fastest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Nanoseconds and looks per commit, for each mode.
fn with_listed(listed: u32) -> [(f64, f64); 3] {
    let measured = u32::try_from(COMMITS).expect("few") * u32::try_from(3 * ROUNDS).expect("few");
    let log_blocks = ((LISTED_MAX + measured) * 3 + 4096).next_multiple_of(64);
    let (buffers, journal) = journal(log_blocks, LatencyProfile::default());
    let home = u64::from(log_blocks) + 10;
    for number in 0..listed {
        commit(&buffers, &journal, home + 1 + u64::from(number));
    }
    // The log holds as many transactions as with the longest list. Only the list differs.
    (listed..LISTED_MAX).for_each(|_| commit(&buffers, &journal, home));
    // Empties the processor's caches: a short list leaves more of the log in them.
    std::hint::black_box(vec![1_u8; 512 << 20]);
    let mut times = [const { Vec::new() }; 3];
    let mut steps = [0; 3];
    let mut measure = |index: usize, mode| {
        journal.set_checkpoint_clean(mode);
        let before = journal.stats().clean_steps.get();
        let started = Instant::now();
        for _ in 0..COMMITS {
            commit(&buffers, &journal, home);
        }
        times[index].push(started.elapsed().as_nanos() as f64 / COMMITS as f64);
        steps[index] += journal.stats().clean_steps.get() - before;
    };
    for _ in 0..ROUNDS {
        measure(0, CheckpointClean::Counted);
        measure(1, CheckpointClean::BailOut);
    }
    // Measured last, because it empties the processor's caches.
    (0..ROUNDS).for_each(|_| measure(2, CheckpointClean::Scan));
    assert_eq!(journal.report().u64("list_len"), Some(u64::from(listed) + 1));
    let [counted, bail_out, scan] = times;
    let per = |index: usize| steps[index] as f64 / (COMMITS * ROUNDS as u64) as f64;
    [(fastest(&counted), per(0)), (fastest(&bail_out), per(1)), (fastest(&scan), per(2))]
}

/// Callers per commit, and commits waited for per second, with `threads` threads.
fn sharing(threads: u64, flush: Duration) -> (f64, f64) {
    const EACH: u64 = 200;
    let latency = LatencyProfile { flush, ..LatencyProfile::default() };
    let (buffers, journal) = journal(64 * 1024, latency);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (buffers, journal) = (&buffers, &journal);
            scope.spawn(move || (0..EACH).for_each(|_| commit(buffers, journal, 70_000 + thread)));
        }
    });
    let files = (threads * EACH) as f64;
    (files / journal.stats().transactions.get() as f64, files / started.elapsed().as_secs_f64())
}

fn main() {
    println!(
        "{:>8}  {:>22}  {:>22}  {:>22}",
        "listed", "counted ns (looks)", "bail_out ns (looks)", "scan ns (looks)"
    );
    with_listed(1);
    for listed in [10, 100, 1000, 3000, 10_000, LISTED_MAX] {
        let row = with_listed(listed).map(|(time, looks)| format!("{time:.0} ({looks:.1})"));
        println!("{listed:>8}  {:>22}  {:>22}  {:>22}", row[0], row[1], row[2]);
    }
    println!("\n{:>8}  {:>10}  {:>14}  {:>10}", "threads", "flush us", "files/commit", "files/s");
    for threads in [1, 2, 8, 32] {
        for micros in [50, 200, 2000] {
            let (shared, speed) = sharing(threads, Duration::from_micros(micros));
            println!("{threads:>8}  {micros:>10}  {shared:>14.1}  {speed:>10.0}");
        }
    }
}
