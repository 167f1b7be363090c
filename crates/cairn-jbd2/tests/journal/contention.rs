//! Many threads in one journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_base::Pba;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::wrap::Stats;

use crate::fixture::{self, BLOCK, HOME, features, format, read_home, recovered};

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;
const THREADS: u64 = 8;
const ROUNDS: u64 = 400;

/// Increments a counter in the thread's own block and one in a shared block, in one handle.
fn count(
    buffers: &cairn_cache::block::BufferCache,
    journal: &Arc<cairn_jbd2::Journal>,
    thread: u64,
) {
    for round in 1..=ROUNDS {
        let handle = journal.start(2).expect("the device works");
        for block in [0, 1 + thread] {
            let buffer = buffers.get(Pba(HOME + block)).expect("the device works");
            let mut guard = handle.get_write_access(&buffer).expect("the device works");
            let value = u64::from_le_bytes(*guard.first_chunk().expect("a block")) + 1;
            guard[..8].copy_from_slice(&value.to_le_bytes());
        }
        let tid = handle.tid();
        drop(handle);
        if round % 4 == thread % 4 {
            journal.commit_and_wait(tid).expect("the device works");
            assert!(journal.is_committed(tid));
        }
    }
}

#[test]
fn threads_share_transactions_and_commits_and_lose_nothing() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let stats = Arc::new(Stats::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let (buffers, journal) =
        fixture::open(&device, Threads::new()).expect("an empty journal opens");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (buffers, journal) = (&buffers, &journal);
            scope.spawn(move || count(buffers, journal, thread));
        }
    });
    journal.force_commit().expect("the device works");
    let crashed = memory.fork();
    let commits = journal.stats().transactions.get();
    let waits = THREADS * ROUNDS / 4;
    assert!(commits <= waits + 2 + ROUNDS, "{commits} commits for {waits} waiters");
    check(crashed);
    journal.shutdown().expect("the device works");
    let clean = memory.fork();
    let (_, done) = recovered(clean.fork()).expect("a clean journal");
    assert_eq!(
        (done.transactions, done.blocks),
        (0, 0),
        "the log was not empty after the shutdown"
    );
    check(clean);
}

fn check(image: cairn_block::memory::MemoryDevice) {
    let (device, _) = recovered(image).expect("a good log");
    let value =
        |block| u64::from_le_bytes(*read_home(&*device, block).first_chunk().expect("a block"));
    assert_eq!(value(0), THREADS * ROUNDS);
    for thread in 0..THREADS {
        assert_eq!(value(1 + thread), ROUNDS, "thread {thread}");
    }
}

#[test]
fn an_empty_transaction_writes_nothing_and_a_commit_flushes_once() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let stats = Arc::new(Stats::new(memory));
    let device: Arc<dyn BlockDevice> = stats.clone();
    let (buffers, journal) =
        fixture::open(&device, Threads::new()).expect("an empty journal opens");
    let write = |value: u8| {
        let handle = journal.start(1).expect("the device works");
        let buffer = buffers.get(Pba(HOME)).expect("the device works");
        handle.get_write_access(&buffer).expect("the device works").fill(value);
        let tid = handle.tid();
        drop(handle);
        journal.commit_and_wait(tid).expect("the device works");
    };
    write(1);
    let before = stats.snapshot();
    drop(journal.start(1).expect("the device works"));
    journal.force_commit().expect("the device works");
    let before = {
        let after = stats.snapshot();
        assert_eq!(after.write_bytes, before.write_bytes, "an empty transaction was written");
        after
    };
    for value in 2..12 {
        write(value);
    }
    let after = stats.snapshot();
    assert_eq!((after.flushes - before.flushes, after.preflushes - before.preflushes), (0, 10));
    assert_eq!(after.fua_writes - before.fua_writes, 10);
    // Descriptor block, metadata block, commit block.
    assert_eq!(after.write_bytes - before.write_bytes, 10 * 3 * u64::from(BLOCK));
    journal.shutdown().expect("the device works");
}

#[test]
fn an_operation_larger_than_a_transaction_is_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
    let (_, journal) = fixture::open(&device, Threads::new()).expect("an empty journal opens");
    assert!(matches!(
        journal.start(fixture::LOG_BLOCKS / 4),
        Err(cairn_jbd2::Error::TooLarge { .. })
    ));
    let largest = journal.start(fixture::LOG_BLOCKS / 4 - 32).expect("nearly a quarter fits");
    drop(largest);
    journal.shutdown().expect("the device works");
}

#[test]
fn hooks_run_once_each_and_only_when_durable() {
    let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
    let (buffers, journal) =
        fixture::open(&device, Threads::new()).expect("an empty journal opens");
    let (durable, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let operate = || {
        let handle = journal.start(1)?;
        let buffer = buffers.get(Pba(HOME))?;
        handle.get_write_access(&buffer)?.fill(1);
        let (durable, lost) = (durable.clone(), lost.clone());
        handle.on_commit(Box::new(move |committed| {
            let counter = if committed { &durable } else { &lost };
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        Ok::<_, cairn_jbd2::Error>(handle.tid())
    };
    let tid = operate().expect("the device works");
    assert_eq!(durable.load(Ordering::SeqCst), 0);
    journal.commit_and_wait(tid).expect("the device works");
    assert_eq!(durable.load(Ordering::SeqCst), 1);
    operate().expect("the device works");
    journal.abort("told to");
    assert!(journal.force_commit().is_err());
    let _ = journal.shutdown();
    drop(journal);
    assert_eq!((durable.load(Ordering::SeqCst), lost.load(Ordering::SeqCst)), (1, 1));
}
