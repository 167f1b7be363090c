//! The checkpoint daemon (`async_checkpoint`). Each test shows one thing that the first proposal
//! for Linux got wrong, or one thing that the option promises.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use cairn_base::Pba;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Fault, Lasting, Operation, Stats};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_jbd2::{Error, Journal, JournalOptions, KeepFree};

use crate::fixture::{
    self, BLOCK, HOME, LOG_BLOCKS, commit_blocks, features, format, open_with, read_home, recovered,
};
use crate::fixture::{stamp, toggle};
use crate::observed::Observed;
use crate::watch::Watch;

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

fn percent(percent: u8) -> Option<KeepFree> {
    Some(KeepFree::Percent(percent))
}

fn ahead(free: u8) -> JournalOptions {
    JournalOptions { async_checkpoint: percent(free), ..JournalOptions::default() }
}

fn percent_free(journal: &Journal) -> u32 {
    journal.free_blocks() * 100 / LOG_BLOCKS
}

/// Commits until at most `free` percent of the log are free. No block is committed twice.
fn fill(buffers: &BufferCache, journal: &Arc<Journal>, free: u32, next: &mut u64) {
    while percent_free(journal) > free {
        let from = *next;
        *next += 10;
        commit_blocks(buffers, journal, from..from + 10, from);
    }
}

struct Sim {
    memory: Arc<MemoryDevice>,
    stats: Arc<Stats>,
    runtime: Arc<Simulated>,
    buffers: Arc<BufferCache>,
    journal: Arc<Journal>,
    next: u64,
}

fn sim(options: JournalOptions) -> Sim {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let stats = Arc::new(Stats::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let runtime = Simulated::new(1);
    let (buffers, journal) =
        open_with(&device, runtime.clone(), options).expect("an empty journal opens");
    Sim { memory, stats, runtime, buffers, journal, next: 1 }
}

impl Sim {
    fn fill(&mut self, free: u32) {
        fill(&self.buffers, &self.journal, free, &mut self.next);
    }

    fn check(&self) {
        let (device, _) = recovered(self.memory.fork()).expect("a good log");
        for block in 1..self.next {
            assert_eq!(
                read_home(&*device, block),
                stamp((block - 1) / 10 * 10 + 1),
                "block {block}"
            );
        }
    }
}

#[test]
fn a_new_threshold_counts_at_once_while_it_is_on() {
    let mut sim = sim(ahead(10));
    sim.fill(30);
    sim.runtime.run_until_idle();
    assert!(
        (10..=30).contains(&percent_free(&sim.journal)),
        "above the threshold nothing is to be done"
    );
    assert_eq!(sim.journal.stats().async_runs.get(), 0);
    sim.journal.set_async_checkpoint(percent(60)).expect("1 to 99");
    assert_eq!(sim.journal.async_checkpoint(), percent(60));
    sim.runtime.run_until_idle();
    assert!(
        (60..80).contains(&percent_free(&sim.journal)),
        "{} % free",
        percent_free(&sim.journal)
    );
    sim.check();
}

#[test]
fn a_share_that_cannot_be_kept_free_is_refused_and_changes_nothing() {
    let sim = sim(ahead(30));
    for bad in [0, 100, 101, 255] {
        let refused = sim.journal.set_async_checkpoint(percent(bad)).expect_err("out of range");
        assert!(refused.to_string().contains("1 to 99"), "{refused}");
        assert_eq!(sim.journal.async_checkpoint(), percent(30));
        let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
        let opened = open_with(&device, Simulated::new(1), ahead(bad));
        assert!(matches!(opened, Err(Error::Threshold { percent: told }) if told == bad));
    }
}

#[test]
fn the_daemon_exists_only_while_the_option_is_on() {
    let runtime = Observed::new(Simulated::new(1));
    let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
    let (_, journal) = open_with(&device, runtime.clone(), JournalOptions::default())
        .expect("an empty journal opens");
    for (keep, running) in
        [(None, 0), (percent(50), 1), (Some(KeepFree::AsNeeded), 1), (None, 0), (percent(99), 1)]
    {
        journal.set_async_checkpoint(keep).expect("1 to 99");
        assert_eq!(runtime.running("jbd2-checkpoint"), running, "after {keep:?}");
    }
    journal.shutdown().expect("the device works");
    assert_eq!(runtime.running("jbd2-checkpoint"), 0, "after the shutdown");
}

#[test]
fn it_goes_on_by_itself_with_one_flush_for_many_transactions() {
    let mut sim = sim(JournalOptions::default());
    sim.fill(8);
    let transactions = sim.journal.stats().transactions.get();
    let before = sim.stats.snapshot();
    sim.journal.set_async_checkpoint(percent(95)).expect("1 to 99");
    // From here on there is no handle and no commit.
    sim.runtime.run_until_idle();
    assert!(percent_free(&sim.journal) >= 95, "{} % free", percent_free(&sim.journal));
    let after = sim.stats.snapshot();
    let (stats, flushes) = (sim.journal.stats(), after.flushes - before.flushes);
    assert_eq!(stats.transactions.get(), transactions, "a commit helped");
    assert!(stats.checkpointed.get() > 60, "{} transactions", stats.checkpointed.get());
    assert!(
        flushes <= 3 && flushes == stats.async_runs.get(),
        "{flushes} flushes, {} rounds",
        stats.async_runs.get()
    );
    assert_eq!(after.fua_writes - before.fua_writes, stats.tail_moves.get());
    sim.check();
}

#[test]
fn a_busy_block_is_left_out_without_waiting_for_its_commit() {
    let mut sim = sim(JournalOptions::default());
    sim.fill(70);
    // Block 1 of the oldest transaction changes again. The open handle prevents a commit.
    let handle = sim.journal.start(1).expect("the device works");
    let buffer = sim.buffers.get(Pba(HOME + 1)).expect("the device works");
    handle.get_write_access(&buffer).expect("the device works").copy_from_slice(&stamp(7777));
    let before = sim.journal.stats().transactions.get();
    // 70 % is more than half of the threshold: the daemon leaves out busy blocks.
    sim.journal.set_async_checkpoint(percent(99)).expect("1 to 99");
    sim.runtime.run_until_idle();
    let stats = sim.journal.stats();
    assert!(
        stats.left_out.get() > 0 && stats.async_blocks.get() > 100,
        "{} written",
        stats.async_blocks.get()
    );
    assert_eq!(stats.checkpointed.get(), 0, "the oldest transaction still has a block to write");
    assert_eq!(read_home(&*sim.memory, 1), [0; BLOCK as usize], "it is about to be superseded");
    drop(handle);
    // The commit supersedes the block and wakes the daemon.
    sim.journal.force_commit().expect("the device works");
    sim.runtime.run_until_idle();
    assert!(stats.dropped_superseded.get() == 0 && stats.superseded.get() == 1);
    assert!(percent_free(&sim.journal) >= 99);
    assert_eq!(stats.transactions.get(), before + 1, "a commit was forced");
}

#[test]
fn under_pressure_a_busy_block_is_written_as_it_was_committed() {
    let mut sim = sim(JournalOptions::default());
    sim.fill(40);
    let handle = sim.journal.start(1).expect("the device works");
    let buffer = sim.buffers.get(Pba(HOME + 1)).expect("the device works");
    handle.get_write_access(&buffer).expect("the device works").copy_from_slice(&stamp(7777));
    sim.journal.set_async_checkpoint(percent(90)).expect("1 to 99");
    sim.runtime.run_until_idle();
    assert!(percent_free(&sim.journal) >= 90, "{} % free", percent_free(&sim.journal));
    assert_eq!(read_home(&*sim.memory, 1), stamp(1), "the committed version, not the newer one");
    sim.check();
    drop(handle);
}

#[test]
fn a_failed_write_keeps_the_transactions_and_stops_the_journal() {
    for (operation, nth) in [(Operation::Write, 1), (Operation::Write, 2), (Operation::Flush, 1)] {
        let memory = Arc::new(format(INCOMPAT, 0, 1));
        let fault = Arc::new(Fault::new(memory.clone()));
        let device: Arc<dyn BlockDevice> = fault.clone();
        let runtime = Simulated::new(1);
        let (buffers, journal) =
            open_with(&device, runtime.clone(), JournalOptions::default()).expect("it opens");
        let mut next = 1;
        fill(&buffers, &journal, 30, &mut next);
        let tail = memory.read_at(64 * u64::from(BLOCK), 32).expect("memory").to_vec();
        let pending = journal.report().u64("pending_transactions");
        fault.fail(operation, fault.count(operation) + nth, Lasting::Once);
        journal.set_async_checkpoint(percent(60)).expect("1 to 99");
        runtime.run_until_idle();
        let reason = journal.aborted().expect("the error stops the journal");
        assert!(reason.contains("injected fault"), "{reason}");
        assert!(matches!(journal.start(1), Err(Error::Aborted(_))));
        // The superblock's `s_sequence` and `s_start`.
        assert_eq!(
            memory.read_at(64 * u64::from(BLOCK), 32).expect("memory").to_vec(),
            tail,
            "the tail moved"
        );
        if nth == 1 {
            assert_eq!(
                journal.report().u64("pending_transactions"),
                pending,
                "a transaction was dropped"
            );
        }
        let (device, _) = recovered(memory.fork()).expect("a good log");
        for block in 1..next {
            assert_eq!(
                read_home(&*device, block),
                stamp((block - 1) / 10 * 10 + 1),
                "{operation:?}: block {block}"
            );
        }
        let weak = Arc::downgrade(&buffers.get(Pba(HOME + 1)).expect("cached"));
        drop((journal, buffers));
        assert!(weak.upgrade().is_none(), "what was listed stays in memory for ever");
    }
}

#[test]
fn blocks_of_many_transactions_are_written_in_one_sorted_pass() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let watch = Watch::new(memory);
    let device: Arc<dyn BlockDevice> = watch.clone();
    let runtime = Simulated::new(1);
    let (buffers, journal) =
        open_with(&device, runtime.clone(), JournalOptions::default()).expect("it opens");
    // Each block is in two transactions, and the transactions are not in order of address.
    for round in 0..2 {
        for number in 0..10 {
            commit_blocks(
                &buffers,
                &journal,
                (0..5).map(|n| (n * 97 + number * 10) % 400),
                round * 100 + number,
            );
        }
    }
    journal.set_async_checkpoint(percent(99)).expect("1 to 99");
    runtime.run_until_idle();
    let offsets = watch.offsets.lock().expect("no panic").clone();
    assert!(offsets.len() > 40 && offsets.is_sorted(), "{offsets:?}");
    let stats = journal.stats();
    // The last transaction may stay: 99 % of the log is free without it.
    assert_eq!(
        (stats.superseded.get(), stats.async_blocks.get(), stats.dropped_superseded.get()),
        (50, 45, 10)
    );
    assert_eq!((stats.async_runs.get(), stats.tail_moves.get()), (1, 1));
}

#[test]
fn handles_and_commits_go_on_while_the_daemon_waits_for_the_device() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let watch = Watch::new(memory.clone());
    let device: Arc<dyn BlockDevice> = watch.clone();
    let (buffers, journal) =
        open_with(&device, Threads::new(), JournalOptions::default()).expect("it opens");
    let mut next = 1;
    fill(&buffers, &journal, 60, &mut next);
    watch.hold.store(true, SeqCst);
    journal.set_async_checkpoint(percent(80)).expect("1 to 99");
    Watch::wait_for(|| watch.held.load(SeqCst) > 0);
    // The device holds every checkpoint write. Commits of the same blocks and of others, a change
    // of the options, and the counters do not wait for it.
    for value in 0..20 {
        commit_blocks(&buffers, &journal, (value..value + 5).chain([1]), value);
    }
    journal.set_async_checkpoint(percent(70)).expect("1 to 99");
    assert_eq!(journal.report().u64("checkpoint.async_percent"), Some(70));
    assert_eq!(journal.report().u64("stalls.count"), Some(0));
    watch.release();
    Watch::wait_for(|| percent_free(&journal) >= 70);
    journal.shutdown().expect("the device works");
    assert!(!watch.overlapped.load(SeqCst));
    assert_eq!(read_home(&*memory, 1), stamp(19));
}

#[test]
fn there_is_one_checkpointer_at_a_time_whatever_is_switched() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 500;
    let memory = Arc::new(format(INCOMPAT, 0, 0_u32.wrapping_sub(300)));
    let watch = Watch::new(memory.clone());
    let device: Arc<dyn BlockDevice> = watch.clone();
    let (buffers, journal) = open_with(&device, Threads::new(), ahead(50)).expect("it opens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (buffers, journal) = (&buffers, &journal);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let from = 1 + thread * 100 + round % 30;
                    commit_blocks(buffers, journal, from..from + 8, thread * 1000 + round);
                }
            });
        }
        for seed in 0..2 {
            let journal = &journal;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..200 {
                    toggle(journal, &mut random);
                    if random.u8(..4) == 0 {
                        journal.checkpoint(100).expect("the device works");
                    }
                }
                journal.set_async_checkpoint(percent(50)).expect("1 to 99");
            });
        }
    });
    Watch::wait_for(|| percent_free(&journal) >= 50);
    assert!(!watch.overlapped.load(SeqCst), "two checkpointers wrote at once");
    let stats = journal.stats();
    assert_eq!(stats.checkpoint_blocks.get(), stats.async_blocks.get() + stats.sync_blocks.get());
    let (device, _) = recovered(memory.fork()).expect("a good log");
    for thread in 0..THREADS {
        let last = 1 + thread * 100 + ROUNDS % 30;
        assert_eq!(read_home(&*device, last), stamp(thread * 1000 + ROUNDS), "thread {thread}");
    }
    journal.shutdown().expect("the device works");
}

#[test]
fn stalls_are_counted_when_it_is_off_and_do_not_happen_when_it_is_on() {
    let mut off = sim(JournalOptions::default());
    for _ in 0..200 {
        let from = off.next % 2000;
        commit_blocks(&off.buffers, &off.journal, from..from + 10, 1);
        off.next += 10;
    }
    let report = off.journal.report();
    let (stalls, forced) = (
        report.u64("stalls.count").expect("there"),
        report.u64("forced_checkpoints").expect("there"),
    );
    assert!(stalls > 2 && stalls == forced, "{stalls} stalls, {forced} forced checkpoints");
    assert!(report.u64("checkpoint.sync_buffers_written").expect("there") > 1000);
    assert_eq!(report.u64("checkpoint.async_buffers_written"), Some(0));
    assert!(report.u64("free_blocks_low_water").expect("there") < 100);

    let mut on = sim(ahead(50));
    for _ in 0..200 {
        let from = on.next % 2000;
        commit_blocks(&on.buffers, &on.journal, from..from + 10, 1);
        on.next += 10;
        on.runtime.run_until_idle();
    }
    let report = on.journal.report();
    assert_eq!(
        (report.u64("stalls.count"), report.u64("checkpoint.sync_buffers_written")),
        (Some(0), Some(0))
    );
    assert!(report.u64("free_blocks_low_water").expect("there") > 450);
    assert_eq!(
        report.u64("checkpoint.async_threshold_blocks"),
        Some(u64::from(LOG_BLOCKS - 1) / 2)
    );
    assert_eq!(report.u64("transactions"), Some(200));
    assert_eq!(report.f64("average.blocks_per_transaction"), Some(10.0));
    assert_eq!(report.f64("average.logged_blocks_per_transaction"), Some(12.0));
    assert_eq!(report.f64("average.handles_per_transaction"), Some(1.0));
    assert!(report.f64("pending_transactions_mean").expect("there") > 10.0);
    fixture::toggle(&on.journal, &mut fastrand::Rng::with_seed(3));
}
