//! A failing device. The first error aborts the journal, and a prefix of the operations survives.

use std::sync::Arc;

use cairn_base::runtime::simulated::Simulated;
use cairn_block::BlockDevice;
use cairn_block::wrap::{Fault, Lasting, Operation};
use cairn_jbd2::{Journal, JournalOptions};

use crate::fixture::{self, features, format, recovered};
use crate::model::Model;

const INCOMPAT: u32 = features::REVOKE | features::BITS_64 | features::CSUM_V3;

/// Operates until the journal is aborted. False if it was not.
fn operate(
    model: &mut Model,
    buffers: &cairn_cache::block::BufferCache,
    journal: &Arc<Journal>,
    fault: &Fault,
    runtime: &Simulated,
) -> bool {
    for round in 0..160 {
        let Ok(tid) = model.operate(buffers, journal) else { return true };
        runtime.some_steps(2);
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

fn fails_at(operation: Operation, nth: u64, lasting: Lasting, options: JournalOptions) -> bool {
    let memory = format(INCOMPAT, 0, 1);
    let memory = Arc::new(memory);
    let fault = Arc::new(Fault::new(memory.clone()));
    let device: Arc<dyn BlockDevice> = fault.clone();
    let runtime = Simulated::new(nth);
    let (buffers, journal) =
        fixture::open_with(&device, runtime.clone(), options).expect("nothing has failed yet");
    fault.fail(operation, nth, lasting);
    let mut model = Model::new(nth);
    let stopped = operate(&mut model, &buffers, &journal, &fault, &runtime);
    if stopped {
        assert!(journal.aborted().is_some(), "{operation:?} {nth} failed, and the journal goes on");
        assert!(
            journal.start(1).is_err(),
            "{operation:?} {nth}: an operation was let in after the abort"
        );
        assert!(journal.force_commit().is_err(), "{operation:?} {nth}: a commit after the abort");
        assert!(
            journal.shutdown().is_err(),
            "{operation:?} {nth}: the journal was closed as if nothing had happened"
        );
    }
    drop(journal);
    // All writes before the crash are on the medium, which is one legal outcome.
    let (recovered, _) = recovered(memory.fork()).expect("the log is good up to the failure");
    // A failed write may or may not be on the medium. No acknowledged operation may be missing.
    model
        .check(&*recovered, u64::MAX)
        .unwrap_or_else(|error| panic!("{operation:?} {nth} {lasting:?}: {error}"));
    stopped
}

/// Tries failures all along a run, fewer towards its end. Returns the last.
fn every_n(operation: Operation, dense: u64, step: u64, options: JournalOptions) -> u64 {
    let mut nth = 1;
    while nth < 400 && fails_at(operation, nth, Lasting::Forever, options) {
        fails_at(operation, nth, Lasting::Once, options);
        nth += if nth < dense { 1 } else { step };
    }
    nth
}

#[test]
fn every_failed_write_stops_the_journal_and_leaves_a_prefix() {
    let nth = every_n(Operation::Write, 40, 7, JournalOptions::default());
    assert!(nth > 40, "the run made only {nth} writes");
}

#[test]
fn every_failed_flush_stops_the_journal_and_leaves_a_prefix() {
    let nth = every_n(Operation::Flush, 20, 5, JournalOptions::default());
    assert!(nth > 20, "the run made only {nth} flushes");
}

#[test]
fn every_failure_is_noticed_in_every_mode() {
    for options in fixture::modes() {
        let writes = every_n(Operation::Write, 20, 11, options);
        let flushes = every_n(Operation::Flush, 10, 7, options);
        assert!(
            writes > 40 && flushes > 20,
            "{options:?}: the run made {writes} writes and {flushes} flushes"
        );
    }
}
