//! Power cuts during checkpoints: what is found is the old state or the new one, whole.

use std::sync::Arc;

use crate::checkpoint::Reason;
use cairn_block::BlockDevice;
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::{Record, RecordLog};

use super::memory::{judge, open, small, stir};
use super::state::{State, contents};

/// Opens a crash state, compares it with both states it may be in, and has it judged. True if it is
/// the new one.
fn look(device: MemoryDevice, old: &State, new: &State, what: &str) -> bool {
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    judge(&*device, what);
    let store = open(device);
    let found = State::of(&store);
    assert!(found == *old || found == *new, "{what}: neither the old nor the new state");
    found == *new
}

fn cut_everywhere(reason: Reason, seed: u16) {
    println!("seed {seed}");
    let base = Arc::new(small());
    let before = {
        // A first checkpoint of our own: journals and both packs are ours then.
        let store = open(base.clone());
        stir(&store, seed);
        store.checkpoints.write(Reason::Sync).unwrap();
        contents(&store)
    };
    let record = Arc::new(Record::new(Arc::new(base.fork())));
    let store = open(record.clone());
    let old = State::of(&store);
    stir(&store, seed.wrapping_add(3));
    let start = record.log().events.len();
    store.checkpoints.write(reason).unwrap();
    let new = State::of(&store);
    assert_ne!(old, new);
    let log = record.log();

    let mut news = 0;
    for end in (start..=log.events.len()).chain([0, start / 3, start / 2]) {
        let device = base.fork();
        log.apply(&device, 0..end).unwrap();
        news += usize::from(look(
            device,
            &old,
            &new,
            &format!("cut before event {end} of {}", log.events.len()),
        ));
    }
    assert_eq!(news, 1, "the last write makes the new state");
    news += subsets(&log, &base, &old, &new, seed);
    assert!(news > 1, "some reordered state holds the last write");
    let device: Arc<dyn BlockDevice> = Arc::new(base.fork());
    log.apply(&*device, 0..log.events.len()).unwrap();
    assert_eq!(contents(&open(device)), before);
}

/// Cuts at moments within the checkpoint, with any of the writes that no flush covers missing.
/// Returns the new states met.
fn subsets(log: &RecordLog, base: &MemoryDevice, old: &State, new: &State, seed: u16) -> usize {
    let mut random = fastrand::Rng::with_seed(seed.into());
    let mut news = 0;
    for round in 0..24 {
        let moment = if round % 3 == 0 { log.end } else { random.u64(log.end * 2 / 3..=log.end) };
        let point = log.crash_point(moment);
        let lucky: Vec<usize> = point.volatile.iter().copied().filter(|_| random.bool()).collect();
        let device = base.fork();
        log.apply(&device, point.durable.iter().copied().chain(lucky)).unwrap();
        news += usize::from(look(
            device,
            old,
            new,
            &format!("seed {seed}, moment {moment}, round {round}"),
        ));
    }
    news
}

#[test]
fn a_checkpoint_cut_anywhere_is_the_old_or_the_new_state() {
    cut_everywhere(Reason::Sync, 5);
}

#[test]
fn an_unmount_cut_anywhere_is_the_old_or_the_new_state() {
    cut_everywhere(Reason::Umount, 11);
}
