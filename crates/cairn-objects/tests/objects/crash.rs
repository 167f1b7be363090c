//! The writer dies at each request, before and after the store has done it: what was flushed is
//! there, and the whole disk is as it was at one moment since. Answers that are lost, and requests
//! that fail, do no harm.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn_base::runtime::simulated::Simulated;
use cairn_objects::store::{Moment, Trouble};

use super::*;

pub(super) const SMALL: u64 = 512 << 10;

pub(super) fn simulated(seed: u64) -> Options {
    Options { runtime: Simulated::new(seed), ..options() }
}

/// The disk after each operation, and how many of them are flushed.
pub(super) struct History {
    pub(super) states: Vec<Oracle>,
    pub(super) flushed: usize,
    /// Called between operations.
    pub(super) pause: Box<dyn Fn(u64)>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { states: vec![Oracle::default()], flushed: 0, pause: Box::new(|_| ()) }
    }

    /// True if the disk is as it was after one of the operations since the last flush.
    pub(super) fn has(&self, device: &ObjectVolume) -> bool {
        self.states[self.flushed..].iter().any(|state| state.differs(device).is_none())
    }
}

/// Seeded operations until one fails.
pub(super) fn run(device: &ObjectVolume, seed: u64, history: &mut History) -> DeviceResult<()> {
    let mut random = Random(seed);
    for number in 1..40 {
        (history.pause)(number);
        let start = random.below(SMALL / SECTOR - 40);
        // One object takes a whole write: no longer one is in the store as a whole or not at all.
        let sectors = 1 + random.below(30);
        let mut state = history.states.last().unwrap().clone();
        match random.below(10) {
            0..5 => {
                let none = Durability::default();
                let outcome = state.try_write(device, number, (start, sectors), none);
                history.states.push(state);
                outcome?;
            }
            5 => {
                let all = Durability { preflush: true, fua: true };
                let outcome = state.try_write(device, number, (start, sectors), all);
                history.states.push(state);
                outcome?;
                history.flushed = history.states.len() - 1;
            }
            6 => {
                state.0.retain(|sector, _| !(start..start + sectors).contains(sector));
                history.states.push(state);
                device.discard(start * SECTOR, sectors * SECTOR)?;
            }
            7 => {
                device.checkpoint()?;
                history.flushed = history.states.len() - 1;
            }
            8 => {
                device.repack()?;
                history.flushed = history.states.len() - 1;
            }
            _ => {
                device.flush()?;
                history.flushed = history.states.len() - 1;
            }
        }
    }
    Ok(())
}

pub(super) fn made() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let create = CreateOptions { object_size: 16 << 10, ..CreateOptions::default() };
    create_in(store.clone(), "main", SMALL, &create, &simulated(0)).unwrap();
    // With a history of its own.
    let device = ObjectVolume::open_in(store.clone(), "main", &simulated(0)).unwrap();
    device.flush().unwrap();
    device.close().unwrap();
    store
}

/// From this request on, nothing reaches the store.
pub(super) fn dies(store: &Trouble, at: u64, after: bool) {
    store.set(move |number, moment, _, _| {
        number > at || (number == at && (moment == Moment::After || !after))
    });
}

#[test]
fn nothing_flushed_is_lost_wherever_the_writer_dies() {
    let made = made();
    let mut cuts = 0;
    for seed in 1..=3 {
        for at in 0.. {
            let mut died = false;
            for after in [false, true] {
                let memory = Arc::new(made.fork());
                let store = Arc::new(Trouble::new(memory.clone()));
                dies(&store, at, after);
                let mut history = History::new();
                let opened = ObjectVolume::open_in(store.clone(), "main", &simulated(seed));
                if let Ok(device) = opened {
                    died |= run(&device, seed, &mut history).is_err();
                    device.abandon();
                } else {
                    died = true;
                }
                let context = format!("seed {seed}, request {at}, after it was done: {after}");
                // The next opening dies, too, at one of its first requests.
                let store = Arc::new(Trouble::new(memory.clone()));
                dies(&store, at % 12, after);
                drop(ObjectVolume::open_in(store, "main", &simulated(seed)));
                let reader = Options { read_only: true, ..simulated(seed) };
                let reader = ObjectVolume::open_in(memory.clone(), "main", &reader).unwrap();
                assert!(history.has(&reader), "{context}: for reading");
                let device = ObjectVolume::open_in(memory, "main", &simulated(seed)).unwrap();
                assert!(history.has(&device), "{context}");
                cuts += 1;
            }
            if !died {
                break;
            }
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 150, "{cuts}");
}

#[test]
fn a_lost_answer_changes_nothing() {
    let made = made();
    let mut lost = 0;
    for seed in 1..=3 {
        for at in 0.. {
            let memory = Arc::new(made.fork());
            let store = Arc::new(Trouble::new(memory.clone()));
            let met = Arc::new(AtomicBool::new(false));
            let (seen, twice) = (met.clone(), at % 3 == 0);
            // Once, or with the request after it; before or after it was done.
            store.set(move |number, moment, _, _| {
                let hit = number == at || (twice && number == at + 1);
                let when = if at % 2 == 0 { Moment::After } else { Moment::Before };
                seen.fetch_or(hit, Relaxed);
                hit && moment == when
            });
            let patient = Options { patience: Duration::from_secs(5), ..simulated(seed) };
            let device = ObjectVolume::open_in(store, "main", &patient).unwrap();
            let mut history = History::new();
            run(&device, seed, &mut history).unwrap();
            device.close().unwrap();
            let device = ObjectVolume::open_in(memory, "main", &simulated(seed)).unwrap();
            let last = history.states.last().unwrap();
            assert_eq!(last.differs(&device), None, "seed {seed}, request {at}");
            lost += 1;
            if !met.load(Relaxed) {
                break;
            }
        }
    }
    assert!(lost > 80, "{lost}");
}

/// A store that comes back: what failed is written with the next flush.
#[test]
fn a_flush_that_failed_can_be_repeated() {
    let memory = made();
    let store = Arc::new(Trouble::new(memory.clone()));
    let device = ObjectVolume::open_in(store.clone(), "main", &simulated(1)).unwrap();
    let mut oracle = Oracle::default();
    for round in 1..=6 {
        store.set(move |_, moment, kind, _| {
            kind == "PUT" && (moment == Moment::After || round % 2 == 0)
        });
        let none = Durability::default();
        oracle.try_write(&device, round, (round * 10, 20), none).unwrap();
        let failed = device.flush().unwrap_err();
        assert!(failed.to_string().contains("no answer; try again later"), "{failed}");
        // More than what may be on its way is refused, and does not fill the memory.
        let full = (0..20).find_map(|at| {
            let sectors = (500 + at * 20, 20);
            oracle.try_write(&device, round * 100 + at, sectors, none).err()
        });
        assert!(full.is_some());
        store.set(|_, _, _, _| false);
        for at in 0..20 {
            let sectors = (500 + at * 20, 20);
            oracle.try_write(&device, round * 100 + at, sectors, none).unwrap();
        }
        device.flush().unwrap();
        assert_eq!(oracle.differs(&device), None);
    }
    device.abandon();
    let device = ObjectVolume::open_in(memory, "main", &simulated(1)).unwrap();
    assert_eq!(oracle.differs(&device), None);
}
