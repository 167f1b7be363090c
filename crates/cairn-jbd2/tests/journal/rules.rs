//! Rules that make a crash harmless and keep a full log from a deadlock. jbd2 has broken each once.
//!
//! Other rules are tested elsewhere: durability in `crash`, write errors in `fault` and `ahead`,
//! wrapping numbers in `crash` and `ahead`, many revokes in `damage`, the largest transaction in
//! `contention`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use cairn_base::Pba;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_base::runtime::{Event, Runtime, RuntimeOver};
use cairn_block::wrap::{Fault, Latency, LatencyProfile, Operation};
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_jbd2::{Error, JournalOptions};

use crate::fixture::{
    BLOCK, HOME, commit_blocks, features, format, modes, open_with, read_home, recovered, stamp,
};
use crate::watch::Watch;

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

#[test]
fn a_freed_block_is_not_reused_while_an_old_version_is_being_written() {
    let memory = Arc::new(format(INCOMPAT, 0, 1));
    let watch = Watch::new(memory.clone());
    let device: Arc<dyn BlockDevice> = watch.clone();
    let (buffers, journal) =
        open_with(&device, Threads::new(), JournalOptions::default()).expect("it opens");
    commit_blocks(&buffers, &journal, 1..9, 5);
    watch.hold.store(true, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| journal.checkpoint_all().expect("the device works"));
        Watch::wait_for(|| watch.held.load(SeqCst) > 0);
        let handle = journal.start(1).expect("the device works");
        handle.forget(Pba(HOME + 3)).expect("the device works");
        let free = Arc::new(AtomicBool::new(false));
        let told = free.clone();
        handle.on_commit(Box::new(move |durable| told.store(durable, SeqCst)));
        let tid = handle.tid();
        drop(handle);
        let committer = journal.clone();
        let commit = scope.spawn(move || committer.commit_and_wait(tid).expect("the device works"));
        // The revoke is in the log, and the block is not free yet: the write in flight would
        // overwrite its next contents.
        Watch::wait_for(|| journal.stats().revokes.get() == 1);
        std::thread::sleep(Duration::from_millis(20));
        let early = free.load(SeqCst) || journal.is_committed(tid);
        watch.release();
        commit.join().expect("no panic");
        assert!(!early && free.load(SeqCst), "given away too early: {early}");
        memory.write_at((HOME + 3) * u64::from(BLOCK), stamp(1 << 40)).expect("memory");
    });
    journal.shutdown().expect("the device works");
    assert_eq!(
        read_home(&*memory, 3),
        stamp(1 << 40),
        "an old version was written after its block had been reused"
    );
    assert_eq!(read_home(&*memory, 4), stamp(5));
}

#[test]
fn a_failed_update_of_the_tail_ends_the_wait_for_log_space() {
    for options in modes() {
        let memory = Arc::new(format(INCOMPAT, 0, 1));
        let fault = Arc::new(Fault::new(memory.clone()));
        let device: Arc<dyn BlockDevice> = fault.clone();
        let (buffers, journal) = open_with(&device, Simulated::new(1), options).expect("it opens");
        commit_blocks(&buffers, &journal, 1..100, 1);
        commit_blocks(&buffers, &journal, 1..100, 2);
        // Writes of the superblock fail. All other writes succeed.
        fault.fail_range(Operation::Write, 64 * u64::from(BLOCK)..65 * u64::from(BLOCK));
        let mut value = 2;
        let error = loop {
            let Ok(handle) = journal.start(200) else { break journal.start(200).map(drop) };
            for block in 1..100 {
                let buffer = buffers.get(Pba(HOME + block)).expect("memory");
                handle
                    .get_write_access(&buffer)
                    .expect("it is running")
                    .copy_from_slice(&stamp(value + 1));
            }
            let tid = handle.tid();
            drop(handle);
            if journal.commit_and_wait(tid).is_ok() {
                value += 1;
            }
            assert!(value < 20, "{options:?}: log space was found without an update of the tail");
        };
        assert!(matches!(error, Err(Error::Aborted(_))), "{options:?}");
        let (device, _) = recovered(memory.fork()).expect("a good log");
        let found = read_home(&*device, 50);
        assert!(
            found == stamp(value) || found == stamp(value + 1),
            "{options:?}: version {value} is lost"
        );
    }
}

/// A runtime whose waits do not time out early, so that a loaded machine does not change the
/// result.
struct Patient(Arc<Threads>);

impl RuntimeOver for Patient {
    fn inner(&self) -> &dyn Runtime {
        &*self.0
    }

    fn wait_until_timeout(
        &self,
        event: &Event,
        timeout: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.0.wait_until_timeout(event, timeout.max(Duration::from_secs(1)), ready)
    }
}

/// Without batching, each round would take two commits.
#[test]
fn callers_share_commits() {
    const ROUNDS: u64 = 40;
    for threads in [8, 32] {
        let profile =
            LatencyProfile { flush: Duration::from_micros(500), ..LatencyProfile::default() };
        let latency = Arc::new(Latency::new(Arc::new(format(INCOMPAT, 0, 1)), profile));
        let device: Arc<dyn BlockDevice> = latency;
        let (buffers, journal) =
            open_with(&device, Arc::new(Patient(Threads::new())), JournalOptions::default())
                .expect("it opens");
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (buffers, journal) = (&buffers, &journal);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        commit_blocks(buffers, journal, thread..thread + 1, round);
                    }
                });
            }
        });
        let (commits, callers) = (journal.stats().transactions.get(), threads * ROUNDS);
        assert!(
            callers >= commits * threads / 2,
            "{commits} commits for {callers} callers in {threads} threads"
        );
        // A lone caller does not wait.
        let before = journal.stats().transactions.get();
        for value in 0..10 {
            commit_blocks(&buffers, &journal, 0..1, value);
        }
        assert_eq!(journal.stats().transactions.get(), before + 10);
        journal.shutdown().expect("the device works");
    }
}
