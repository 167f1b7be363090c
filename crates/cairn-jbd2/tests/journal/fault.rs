//! A device that fails: the first error stops the journal for good, and a prefix survives all the same.

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_jbd2::Journal;

use crate::fixture::{self, features, format, recovered};
use crate::model::Model;

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

/// Operates until the journal stops; true if it did.
fn operate(
    model: &mut Model,
    buffers: &cairn_cache::block::BufferCache,
    journal: &Arc<Journal>,
    fault: &Fault,
) -> bool {
    for round in 0..160 {
        let Ok(tid) = model.operate(buffers, journal) else { return true };
        if round % 3 == 0 {
            if journal.commit_and_wait(tid).is_err() {
                return true;
            }
            model.acknowledge(0);
        }
        if model.reuse(fault, || 0).is_err() {
            journal.abort("file data could not be written");
            return true;
        }
    }
    journal.shutdown().is_err()
}

fn fails_at(operation: Operation, nth: u64, lasting: Lasting) -> bool {
    let memory = format(INCOMPAT, 0, 1);
    let memory = Arc::new(memory);
    let fault = Arc::new(Fault::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = fault.clone();
    let runtime = Simulated::new(nth);
    let (buffers, journal) = fixture::open(&device, runtime.clone()).expect("nothing has failed yet");
    fault.fail(operation, nth, lasting);
    let mut model = Model::new(nth);
    let stopped = operate(&mut model, &buffers, &journal, &fault);
    if stopped {
        assert!(journal.aborted().is_some(), "{operation:?} {nth} failed, and the journal goes on");
        assert!(journal.begin(1).is_err(), "{operation:?} {nth}: an operation was let in after the abort");
        assert!(journal.commit_running().is_err(), "{operation:?} {nth}: a commit after the abort");
        assert!(journal.shutdown().is_err(), "{operation:?} {nth}: the journal was closed as if nothing had happened");
    }
    drop(journal);
    // Whatever had been written by then is on the medium: one legal outcome of the crash.
    let (recovered, _) = recovered(memory.fork()).expect("the log is good up to the failure");
    // A write whose failure was reported may or may not be there; nothing acknowledged may be missing.
    model.check(&*recovered, u64::MAX).unwrap_or_else(|error| panic!("{operation:?} {nth} {lasting:?}: {error}"));
    stopped
}

#[test]
fn every_failed_write_stops_the_journal_and_leaves_a_prefix() {
    let mut nth = 1;
    while nth < 400 && fails_at(Operation::Write, nth, Lasting::Forever) {
        fails_at(Operation::Write, nth, Lasting::Once);
        nth += if nth < 40 { 1 } else { 7 };
    }
    assert!(nth > 40, "the run made only {nth} writes");
}

#[test]
fn every_failed_flush_stops_the_journal_and_leaves_a_prefix() {
    let mut nth = 1;
    while nth < 400 && fails_at(Operation::Flush, nth, Lasting::Forever) {
        fails_at(Operation::Flush, nth, Lasting::Once);
        nth += if nth < 20 { 1 } else { 5 };
    }
    assert!(nth > 20, "the run made only {nth} flushes");
}
