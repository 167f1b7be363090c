//! `async_checkpoint` without a number, and what commits do for others: they flush for the
//! checkpoint daemon, update the log tail, and let handles into the next transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cairn_base::Pba;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::wrap::{Flushing, Hold, Stats};
use cairn_jbd2::{Journal, JournalOptions, KeepFree};

use crate::fixture::{
    HOME, LOG_BLOCKS, commit_blocks, features, format, open_with, read_home, recovered, stamp,
};

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

fn as_needed() -> JournalOptions {
    JournalOptions { async_checkpoint: Some(KeepFree::AsNeeded), ..JournalOptions::default() }
}

fn number(journal: &Journal, name: &str) -> u64 {
    journal.report().u64(name).expect("there")
}

#[test]
fn under_load_the_log_is_used_and_commits_flush_for_the_daemon() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let stats = Arc::new(Stats::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let runtime = Simulated::new(1);
    let (buffers, journal) =
        open_with(&device, runtime.clone(), as_needed()).expect("an empty journal opens");
    let before = stats.snapshot();
    for round in 0..400 {
        let from = 10 * (round % 200);
        commit_blocks(&buffers, &journal, from..from + 10, round);
        runtime.run_until_idle();
    }
    let after = stats.snapshot();
    let low = number(&journal, "free_blocks_low_water");
    assert!((1..u64::from(LOG_BLOCKS) / 3).contains(&low), "{low} blocks were free at least");
    assert_eq!(number(&journal, "stalls.count"), 0);
    assert_eq!(number(&journal, "checkpoint.sync_buffers_written"), 0);
    assert!(number(&journal, "checkpoint.async_buffers_written") > 1000);
    assert!(journal.stats().tail_moves.get() > 10);
    assert_eq!(after.flushes, before.flushes, "the daemon flushed itself");
    assert_eq!(after.fua_writes - before.fua_writes, 400, "one for each commit block");
    // After a rest half of the log is free, although no commit follows.
    runtime.advance(Duration::from_secs(1));
    assert!(journal.free_blocks() >= LOG_BLOCKS / 2 - 1, "{} are free", journal.free_blocks());
    let (device, _) = recovered(memory.fork()).expect("a good log");
    for block in 0..2000 {
        assert_eq!(read_home(&*device, block), stamp(200 + block / 10), "block {block}");
    }
}

#[test]
fn a_commit_updates_the_tail_with_its_own_flush() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let stats = Arc::new(Stats::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let (buffers, journal) =
        open_with(&device, Simulated::new(1), JournalOptions::default()).expect("it opens");
    let before = stats.snapshot();
    // Each supersedes the last, so nothing is written home.
    for number in 0..1000 {
        commit_blocks(&buffers, &journal, 0..1, number);
        let (device, _) = recovered(memory.fork()).expect("a good log");
        assert_eq!(read_home(&*device, 0), stamp(number));
    }
    let after = stats.snapshot();
    assert!(journal.stats().tail_moves.get() >= 10);
    assert_eq!(number(&journal, "forced_checkpoints"), 0);
    assert_eq!(after.fua_writes - before.fua_writes, 1000, "one for each commit block");
}

#[test]
fn handles_join_the_next_transaction_while_a_full_one_is_written() {
    let hold = Arc::new(Hold::new(Arc::new(format(INCOMPAT, 0, 1))));
    let device: Arc<dyn BlockDevice> = hold.clone();
    let (buffers, journal) =
        open_with(&device, Threads::new(), JournalOptions::default()).expect("it opens");
    hold.set(Flushing::Held);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // More than a quarter of the log, and less than two.
            for from in (0..400).step_by(50) {
                let handle = journal.start(50).expect("the device works");
                for block in from..from + 50 {
                    let buffer = buffers.get(Pba(HOME + block)).expect("the device works");
                    let mut guard = handle.get_write_access(&buffer).expect("the device works");
                    guard.copy_from_slice(&stamp(block));
                }
            }
            done.store(true, SeqCst);
        });
        let begun = Instant::now();
        while !done.load(SeqCst) && begun.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let was_done = done.load(SeqCst);
        // The full transaction is being committed.
        hold.wait_for(1);
        hold.set(Flushing::Free);
        assert!(was_done, "a handle waited for the flush of a full transaction");
    });
    journal.shutdown().expect("the device works");
}
