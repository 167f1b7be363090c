//! Failing devices: the volume stops, and the last checkpoint is found unchanged.

use std::sync::Arc;

use crate::Error;
use crate::checkpoint::Reason;
use crate::store::Store;
use cairn_block::wrap::{Fault, Lasting, Operation};

use super::memory::{judge, open, small, stir};
use super::state::State;

/// A checkpoint during which the `nth` operation fails; false if it has fewer.
fn fail_at(
    base: &cairn_block::memory::MemoryDevice,
    old: &State,
    operation: Operation,
    nth: u64,
    lasting: Lasting,
) -> bool {
    let inner = Arc::new(base.fork());
    let fault = Arc::new(Fault::new(inner.clone()));
    let store = open(fault.clone());
    stir(&store, 3);
    fault.fail(operation, fault.count(operation) + nth, lasting);
    let before = fault.count(operation);
    let outcome = store.checkpoints.write(Reason::Sync);
    if outcome.is_ok() {
        assert!(fault.count(operation) - before < nth, "operation {nth} failed unnoticed");
        return false;
    }
    refuses(&store);
    // Only what was written before the failure, and what the stopped volume would still try.
    let again = open(inner.clone());
    assert_eq!(State::of(&again), *old, "{operation:?} {nth}");
    judge(&*inner, &format!("{operation:?} {nth} failed"));
    true
}

/// A stopped volume takes no change, but is still read.
fn refuses(store: &Store) {
    assert!(matches!(store.operation_lock.lock_op().map(drop), Err(Error::Stopped(_))));
    assert!(matches!(store.checkpoints.write(Reason::Umount), Err(Error::Stopped(_))));
    assert!(
        store.operation_lock.stopped().unwrap().contains("injected fault"),
        "{:?}",
        store.operation_lock.stopped()
    );
    assert_eq!(store.checkpoints.stats.failed.get(), 1);
    assert!(!store.nat.lookup(crate::format::Nid::ROOT).unwrap().is_free());
}

fn fail_everywhere(operation: Operation, lasting: Lasting) -> u64 {
    let base = small();
    let old = State::of(&open(Arc::new(base.fork())));
    let met = (1..).take_while(|nth| fail_at(&base, &old, operation, *nth, lasting)).count();
    met as u64
}

#[test]
fn every_write_of_a_checkpoint_may_fail_once() {
    assert!(fail_everywhere(Operation::Write, Lasting::Once) >= 4);
}

#[test]
fn every_write_of_a_checkpoint_may_fail_for_good() {
    assert!(fail_everywhere(Operation::Write, Lasting::Forever) >= 4);
}

#[test]
fn every_flush_of_a_checkpoint_may_fail() {
    assert_eq!(fail_everywhere(Operation::Flush, Lasting::Once), 1, "one barrier a checkpoint");
}
