//! Volumes of one pool: copies share objects, and gc removes what none needs and nothing else.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cairn_block::ErrorKind;
use cairn_objects::pool::{Copy, Pool};
use cairn_objects::store::{Moment, Trouble};

use super::*;

pub(super) fn pool(store: Arc<dyn Store>) -> Pool {
    Pool::new(store, Threads::new(), Duration::ZERO)
}

fn open_named(store: &Arc<MemoryStore>, name: &str) -> ObjectVolume {
    ObjectVolume::open_in(store.clone(), name, &options()).unwrap()
}

fn names(store: &MemoryStore, prefix: &str) -> usize {
    store.list(prefix, None).unwrap().len()
}

/// A volume with dead objects, and what it holds.
fn used(store: &Arc<MemoryStore>) -> (ObjectVolume, Oracle) {
    let device = volume(store);
    let mut oracle = Oracle::default();
    for number in 1..=40 {
        oracle.write(&device, number, number % 8 * 50, 40);
        oracle.write(&device, number, 1000 + number * 3, 2);
        device.flush().unwrap();
    }
    (device, oracle)
}

#[test]
fn a_copy_is_its_source_at_that_moment_and_shares_objects() {
    let store = Arc::new(MemoryStore::new());
    let (device, oracle) = used(&store);
    let pool = pool(store.clone());
    let objects = names(&store, "log/");
    pool.copy("main", "snap", Copy::Snapshot).unwrap();
    pool.copy("snap", "work", Copy::Clone).unwrap();
    assert_eq!(names(&store, "log/"), objects, "no object was made");
    let mut newer = oracle.clone();
    newer.write(&device, 100, 0, 60);
    device.flush().unwrap();

    let work = open_named(&store, "work");
    assert_eq!(oracle.differs(&work), None);
    let mut worked = oracle.clone();
    worked.write(&work, 200, 30, 60);
    work.close().unwrap();
    let reader = ObjectVolume::open_in(store.clone(), "snap", &read_only()).unwrap();
    assert_eq!(oracle.differs(&reader), None);
    assert_eq!(newer.differs(&device), None);
    assert_eq!(worked.differs(&open_named(&store, "work")), None);
    let refused = ObjectVolume::open_in(store.clone(), "snap", &options()).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::ReadOnly);

    let taken = pool.copy("main", "work", Copy::Clone).unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Exists);
    assert_eq!(pool.copy("none", "new", Copy::Clone).unwrap_err().kind, ErrorKind::NotFound);
    assert!(pool.copy("main", "No", Copy::Clone).is_err());
    let (listed, unreadable) = pool.volumes().unwrap();
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let shown: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.read_only)).collect();
    assert_eq!(shown, [("main", false), ("snap", true), ("work", false)]);
    assert_eq!(listed[0].writer.as_ref().unwrap().1, std::process::id());
    assert_eq!(pool.remove("main", false).unwrap_err().kind, ErrorKind::InUse);
}

#[test]
fn gc_removes_what_no_volume_needs_and_nothing_else() {
    let store = Arc::new(MemoryStore::new());
    let (device, snapped) = used(&store);
    let pool = pool(store.clone());
    pool.copy("main", "snap", Copy::Snapshot).unwrap();
    // Nothing but the snapshot needs most objects now.
    let mut oracle = snapped.clone();
    oracle.write(&device, 100, 1000, 125);
    device.checkpoint().unwrap();
    let before = names(&store, "log/");
    pool.gc().unwrap();
    assert_eq!(names(&store, "log/"), before);
    let reader = ObjectVolume::open_in(store.clone(), "snap", &read_only()).unwrap();
    assert_eq!(snapped.differs(&reader), None);
    drop(reader);
    pool.remove("snap", false).unwrap();
    let collected = pool.gc().unwrap();
    assert!(collected.objects >= 30 && collected.bytes > 30 * 20_000, "{collected:?}");
    assert_eq!(oracle.differs(&device), None);
    device.close().unwrap();
    assert_eq!(oracle.differs(&open_named(&store, "main")), None);
    pool.remove("main", true).unwrap();
    pool.gc().unwrap();
    assert_eq!(store.list("", None).unwrap(), [], "nothing is left of a pool without volumes");
}

#[test]
fn repacking_empties_objects_that_no_copy_needs() {
    let store = Arc::new(MemoryStore::new());
    let (device, oracle) = used(&store);
    let pool = pool(store.clone());
    pool.copy("main", "snap", Copy::Snapshot).unwrap();
    assert_eq!(device.repack().unwrap(), 0, "the snapshot needs all of them");
    pool.remove("snap", false).unwrap();
    // Eight objects are live, and small parts of the others.
    let repacked = device.repack().unwrap();
    assert!(repacked >= 25, "{repacked}");
    assert!(names(&store, "log/") < 15, "{}", names(&store, "log/"));
    assert_eq!(oracle.differs(&device), None);
    let (read, damaged) = pool.verify("main").unwrap();
    assert!(read > 8 && damaged.is_empty(), "{read} {damaged:?}");
    device.abandon();
    assert_eq!(oracle.differs(&open_named(&store, "main")), None);
}

/// A gc runs in the midst of each request of a writer, and of each request of a copy.
#[test]
fn gc_at_any_moment_leaves_everything_that_somebody_needs() {
    let made = Arc::new(MemoryStore::new());
    let (device, oracle) = used(&made);
    device.close().unwrap();
    for copies in [false, true] {
        for at in 0.. {
            for moment in [Moment::Before, Moment::After] {
                let memory = Arc::new(made.fork());
                let store = Arc::new(Trouble::new(memory.clone()));
                let below = memory.clone();
                store.set(move |number, now, _, _| {
                    if (number, now) == (at, moment) {
                        pool(below.clone()).gc().unwrap();
                    }
                    false
                });
                let context = format!("copies: {copies}, request {at}, {moment:?}");
                let mut oracle = oracle.clone();
                if copies {
                    pool(store.clone()).copy("main", "copy", Copy::Clone).unwrap();
                    assert_eq!(oracle.differs(&open_named(&memory, "copy")), None, "{context}");
                } else {
                    let device = open(store.clone()).unwrap();
                    for number in 50..56 {
                        oracle.write(&device, number, number % 8 * 50, 40);
                        device.flush().unwrap();
                    }
                    device.repack().unwrap();
                    oracle.write(&device, 60, 7, 40);
                    device.checkpoint().unwrap();
                    assert_eq!(oracle.differs(&device), None, "{context}");
                    device.abandon();
                }
                pool(memory.clone()).gc().unwrap();
                assert_eq!(oracle.differs(&open_named(&memory, "main")), None, "{context}");
                let (_, damaged) = pool(memory).verify("main").unwrap();
                assert!(damaged.is_empty(), "{context}: {damaged:?}");
                if store.requests() <= at {
                    break;
                }
            }
            if at > 100 || (copies && at > 20) {
                break;
            }
        }
    }
}

/// In the midst of a copy, its source makes objects dead, and a gc removes them: the copy needs
/// none of them.
#[test]
fn a_source_that_changes_is_copied_again() {
    for at in 0.. {
        for moment in [Moment::Before, Moment::After] {
            let memory = Arc::new(MemoryStore::new());
            let (device, _) = used(&memory);
            device.checkpoint().unwrap();
            let (store, below) = (Arc::new(Trouble::new(memory.clone())), memory.clone());
            store.set(move |number, now, _, _| {
                if (number, now) == (at, moment) {
                    for start in (0..1200).step_by(100) {
                        device.write_at(start * SECTOR, data(70, start, 100)).unwrap();
                    }
                    device.checkpoint().unwrap();
                    pool(below.clone()).gc().unwrap();
                }
                false
            });
            pool(store.clone()).copy("main", "copy", Copy::Clone).unwrap();
            let (read, damaged) = pool(memory.clone()).verify("copy").unwrap();
            assert!(read > 0 && damaged.is_empty(), "request {at}, {moment:?}: {damaged:?}");
            if store.requests() <= at {
                assert!(at > 5, "{at}");
                return;
            }
        }
    }
}

/// While gc runs, at each of its requests, the volume is written, repacked and copied.
#[test]
fn a_gc_that_others_overtake_removes_nothing_of_theirs() {
    let made = Arc::new(MemoryStore::new());
    let (device, oracle) = used(&made);
    device.abandon();
    for at in 0..80 {
        for moment in [Moment::Before, Moment::After] {
            let memory = Arc::new(made.fork());
            let (device, mut oracle) = (open_named(&memory, "main"), oracle.clone());
            let copy = oracle.clone();
            let store = Arc::new(Trouble::new(memory.clone()));
            let (below, volume) = (memory.clone(), Arc::new(device));
            let writer = volume.clone();
            store.set(move |number, now, _, _| {
                if (number, now) == (at, moment) {
                    // A copy of what is dead a moment later.
                    pool(below.clone()).copy("main", "copy", Copy::Clone).unwrap();
                    for start in 0..10 {
                        writer.write_at(start * 50 * SECTOR, data(70, start * 50, 50)).unwrap();
                    }
                    writer.checkpoint().unwrap();
                    writer.write_at(900 * SECTOR, data(71, 900, 5)).unwrap();
                    writer.flush().unwrap();
                }
                false
            });
            pool(store.clone()).gc().unwrap();
            if store.requests() <= at {
                return;
            }
            oracle.0.extend((0..500).map(|sector| (sector, 70)));
            oracle.0.extend((900..905).map(|sector| (sector, 71)));
            let context = format!("request {at}, {moment:?}");
            drop(store);
            assert_eq!(copy.differs(&open_named(&memory, "copy")), None, "{context}");
            Arc::into_inner(volume).unwrap().abandon();
            assert_eq!(oracle.differs(&open_named(&memory, "main")), None, "{context}");
        }
    }
}

/// Between the requests of a repack, what it moves is written again.
#[test]
fn repacking_does_not_bring_back_what_was_overwritten() {
    for at in 0..12 {
        let memory = Arc::new(MemoryStore::new());
        let (device, mut oracle) = used(&memory);
        device.close().unwrap();
        let store = Arc::new(Trouble::new(memory.clone()));
        let device = Arc::new(open(store.clone()).unwrap());
        let (writer, written) = (device.clone(), Arc::new(AtomicBool::new(false)));
        let writes = written.clone();
        store.set(move |number, moment, kind, _| {
            // Not in the midst of the repack's own flush.
            if (number, moment, kind) == (at, Moment::After, "GET") {
                writes.store(true, Relaxed);
                writer.write_at(1000 * SECTOR, data(80, 1000, 60)).unwrap();
                if at % 2 == 0 {
                    writer.flush().unwrap();
                }
            }
            false
        });
        assert!(device.repack().unwrap() > 0);
        store.set(|_, _, _, _| false);
        if written.load(Relaxed) {
            oracle.0.extend((1000..1060).map(|sector| (sector, 80)));
        }
        assert_eq!(oracle.differs(&*device), None, "request {at}");
        device.flush().unwrap();
        Arc::into_inner(device).unwrap().abandon();
        assert_eq!(oracle.differs(&open(memory).unwrap()), None, "request {at}");
    }
}

/// What the writer of a large volume does by itself.
#[test]
fn a_volume_that_is_overwritten_does_not_grow() {
    let store = Arc::new(MemoryStore::new());
    create_in(store.clone(), "main", SIZE, &small(), &options()).unwrap();
    let reclaiming = Options { reclaim: true, ..options() };
    let device = ObjectVolume::open_in(store.clone(), "main", &reclaiming).unwrap();
    let (mut random, mut oracle) = (Random(5), Oracle::default());
    for number in 1..=1500 {
        oracle.write(&device, number, random.below(50) * 64, 64);
        if number % 4 == 0 {
            device.flush().unwrap();
        }
    }
    device.checkpoint().unwrap();
    device.repack().unwrap();
    let bytes: u64 = store.list("log/", None).unwrap().iter().map(|one| one.size).sum();
    let live = 50 * 64 * SECTOR;
    assert!(bytes < live * 5, "{bytes} bytes for {live}");
    assert_eq!(oracle.differs(&device), None);
    device.close().unwrap();
    assert_eq!(oracle.differs(&open_named(&store, "main")), None);
}

#[test]
fn verify_finds_damage() {
    let store = Arc::new(MemoryStore::new());
    let (device, _) = used(&store);
    device.close().unwrap();
    let large = store.list("log/", None).unwrap().into_iter().max_by_key(|one| one.size).unwrap();
    let live = pool(store.clone()).verify("main").unwrap().0;
    store.list("log/", None).unwrap().iter().filter(|one| one.size > 10_000).for_each(|one| {
        store.damage(&one.name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    });
    let (read, damaged) = pool(store.clone()).verify("main").unwrap();
    assert_eq!(read, live);
    assert!(damaged.len() >= 8 && damaged[0].contains("has the checksum"), "{damaged:?}");
    store.delete(&large.name).unwrap();
    let (read, _) = pool(store).verify("main").unwrap();
    assert_eq!(read, live);
}
