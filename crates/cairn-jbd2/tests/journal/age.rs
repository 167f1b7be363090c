//! The commit daemon commits by age, and sleeps through transactions that fsync commits.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Pba;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::{Event, Runtime};
use cairn_block::BlockDevice;
use cairn_jbd2::JournalOptions;

use crate::fixture::{HOME, commit_blocks, features, format, open_with, stamp};
use crate::observed::Observed;

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;
const SECOND: Duration = Duration::from_secs(1);

fn sleep(runtime: &Observed, time: Duration) {
    assert!(!runtime.wait_until_timeout(&Event::new(), time, &mut || false));
}

/// Each wake-up is two changes of context on another processor, and a file that is written and
/// fsynced takes a transaction.
#[test]
fn a_transaction_that_fsync_commits_does_not_wake_the_daemon() {
    let runtime = Observed::new(Simulated::new(1));
    let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
    let (buffers, journal) =
        open_with(&device, runtime.clone(), JournalOptions::default()).expect("it opens");
    commit_blocks(&buffers, &journal, 1..3, 1);
    sleep(&runtime, SECOND);
    let before = runtime.notified("jbd2");
    for value in 2..202 {
        commit_blocks(&buffers, &journal, 1..3, value);
    }
    assert_eq!(runtime.notified("jbd2"), before);
    // It wakes once, after the commit interval, and then sleeps until it is needed.
    sleep(&runtime, 60 * SECOND);
    commit_blocks(&buffers, &journal, 1..3, 300);
    assert_eq!(runtime.notified("jbd2"), before + 1);
    journal.shutdown().expect("the device works");
}

/// Whatever the daemon does when a transaction starts, it commits it when it is old enough.
#[test]
fn each_transaction_is_committed_at_its_age() {
    let options = JournalOptions::default();
    let interval = options.commit_interval;
    for before in [Duration::ZERO, SECOND, interval - SECOND, interval, 3 * interval] {
        let runtime = Observed::new(Simulated::new(1));
        let device: Arc<dyn BlockDevice> = Arc::new(format(INCOMPAT, 0, 1));
        let (buffers, journal) = open_with(&device, runtime.clone(), options).expect("it opens");
        commit_blocks(&buffers, &journal, 1..3, 1);
        sleep(&runtime, before);
        let handle = journal.start(1).expect("the device works");
        let buffer = buffers.get(Pba(HOME + 1)).expect("the device works");
        handle.get_write_access(&buffer).expect("the device works").copy_from_slice(&stamp(2));
        let tid = handle.tid();
        drop(handle);
        sleep(&runtime, interval - SECOND / 2);
        assert!(!journal.is_committed(tid), "too early, {before:?} after a commit");
        sleep(&runtime, SECOND);
        assert!(journal.is_committed(tid), "too late, {before:?} after a commit");
        journal.shutdown().expect("the device works");
    }
}
