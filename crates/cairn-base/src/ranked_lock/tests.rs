use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use super::held::holders;
use super::*;

#[test]
fn rising_ranks_nest() {
    let low = Mutex::new(Rank::InodeData, 1);
    let high = RwLock::new(Rank::Folio, 2);
    let low = low.lock();
    let gate = enter(Rank::Operation);
    let high = high.read();
    assert_eq!(*low + *high, 3);
    drop((low, gate, high));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: InodeData taken at")]
fn a_falling_rank_panics() {
    let low = Mutex::new(Rank::InodeData, ());
    let high = Mutex::new(Rank::Folio, ());
    let _high = high.lock();
    let _low = low.lock();
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: Folio taken at")]
fn an_equal_rank_without_order_panics() {
    let (one, two) = (RwLock::new(Rank::Folio, ()), RwLock::new(Rank::Folio, ()));
    let _one = one.read();
    let _two = two.read();
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: Operation taken at")]
fn the_gate_is_not_entered_under_a_folio() {
    let folio = Mutex::new(Rank::Folio, ());
    let _folio = folio.lock();
    let _gate = enter(Rank::Operation);
}

#[test]
fn equal_ranks_nest_in_rising_order() {
    let locks: Vec<_> = (0..4).map(|order| Mutex::new_ordered(Rank::Folio, order, order)).collect();
    let guards: Vec<_> = locks.iter().map(Mutex::lock).collect();
    assert_eq!(guards.iter().map(|guard| **guard).sum::<u64>(), 6);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: Folio 1 taken at")]
fn equal_ranks_in_falling_order_panic() {
    let locks = [1, 2].map(|order| Mutex::new_ordered(Rank::Folio, order, ()));
    let _two = locks[1].lock();
    let _one = locks[0].lock();
}

#[test]
fn a_rank_is_free_again_however_guards_are_released() {
    let (low, high) = (Mutex::new(Rank::Folio, ()), Mutex::new(Rank::Buffer, ()));
    for _ in 0..3 {
        let first = low.lock();
        let second = high.lock();
        drop(first);
        assert!(low.try_lock().is_some());
        drop(second);
    }
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = high.lock();
        panic!("with the lock held");
    }));
    assert!(caught.is_err());
    drop((low.lock(), high.lock()));
}

#[test]
fn trying_is_never_an_inversion() {
    let (low, high) = (RwLock::new(Rank::Folio, ()), RwLock::new(Rank::Buffer, ()));
    let _high = high.write();
    assert!(low.try_read().is_some());
    assert!(high.try_read().is_none());
}

#[test]
fn a_writer_that_steps_down_keeps_its_rank() {
    let lock = RwLock::new(Rank::Folio, 1);
    let mut guard = lock.write();
    *guard = 2;
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(*lock.try_read().unwrap(), 2);
    assert!(lock.inner.try_write().is_none());
    drop(guard);
    assert!(lock.inner.try_write().is_some());
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
fn isolated_work_starts_with_nothing_held_and_gives_the_ranks_back() {
    let (low, high) = (Mutex::new(Rank::Folio, ()), Mutex::new(Rank::Buffer, ()));
    let held = high.lock();
    isolated(|| drop(low.lock()));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| low.lock()));
    assert!(caught.is_err(), "the rank of the suspended work must be back");
    drop(held);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "simulated deadlock: Folio is held by the work that waits")]
fn isolated_work_that_needs_a_suspended_lock_panics_instead_of_hanging() {
    let lock = Mutex::new(Rank::Folio, ());
    let _held = lock.lock();
    isolated(|| isolated(|| drop(lock.lock())));
}

/// Every thread moves money between two accounts that it locks in rank order; the sum is seen whole
/// by readers.
#[test]
fn contending_threads_exclude_each_other() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 20_000;
    let low = RwLock::new(Rank::Allocator, 1_000_i64);
    let high = Mutex::new(Rank::Buffer, 1_000_i64);
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (low, high, start) = (&low, &high, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    if number == 0 {
                        let low = low.read();
                        assert_eq!(*low + *high.lock(), 2_000);
                    } else {
                        let mut low = low.write();
                        let mut high = high.lock();
                        // Not one step: without exclusion, a lost update changes the sum.
                        let amount = (round % 7).cast_signed() - 3;
                        let (a, b) = (*low, *high);
                        thread::yield_now();
                        *low = a - amount;
                        *high = b + amount;
                    }
                }
            });
        }
    });
    assert_eq!(low.into_inner() + high.into_inner(), 2_000);
}

#[test]
fn a_condition_passes_between_threads() {
    let turn = Mutex::new(Rank::Journal, 0_u32);
    let changed = Condvar::new();
    thread::scope(|scope| {
        for parity in 0..2 {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for _ in 0..1_000 {
                    let mut turn = turn.lock();
                    while *turn % 2 != parity {
                        changed.wait(&mut turn);
                    }
                    *turn += 1;
                    changed.notify_all();
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), 2_000);
}

#[test]
fn a_condition_that_no_thread_meets_times_out() {
    let (changed, lock) = (Condvar::new(), Mutex::new(Rank::Journal, ()));
    assert!(!changed.wait_for(&mut lock.lock(), Duration::from_millis(1)));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "records are kept in debug builds only")]
fn a_waiting_thread_and_the_holder_are_named_with_their_places() {
    let lock = Mutex::new_ordered(Rank::InodeData, 12, ());
    let held = lock.lock();
    thread::scope(|scope| {
        let waiter = thread::Builder::new().name("waiter".to_owned());
        let waiter = waiter.spawn_scoped(scope, || drop(lock.lock())).unwrap();
        let here = file!();
        while !holders().contains(&format!("waiter waits for InodeData 12 at {here}")) {
            thread::yield_now();
        }
        let me = thread::current().name().unwrap().to_owned();
        let text = holders();
        assert!(text.contains(&format!("{me} holds InodeData 12, taken at {here}")), "{text}");
        drop(held);
        waiter.join().unwrap();
    });
    let text = holders();
    assert!(!text.contains("InodeData 12"), "{text}");
}

/// The names in backticks that begin the rows of a section's table.
fn rows(page: &str, section: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let names = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}

fn page_of_locks() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/locks.md");
    std::fs::read_to_string(page).unwrap()
}

/// The page that explains the lock order has the ranks of the code, in their order.
#[test]
fn the_page_of_locks_has_every_rank() {
    let ranks: Vec<_> = Rank::ALL.iter().map(|rank| format!("{rank:?}")).collect();
    assert_eq!(rows(&page_of_locks(), "The lock order"), ranks);
}

/// All Rust sources of a folder and its subfolders.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The page names each file of the library whose locks have no rank: nobody adds one unseen.
#[test]
fn the_page_of_locks_has_every_file_with_a_lock_without_a_rank() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut named = rows(&page_of_locks(), "Locks without a rank");
    let mut found = Vec::new();
    for name in ["base", "block", "cache", "jbd2", "vfs", "ext4", "f2fs"] {
        sources(&crates.join(format!("cairn-{name}/src")), &mut found);
    }
    sources(&crates.join("cairn/src"), &mut found);
    found.retain(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let path = path.to_str().unwrap();
        let is_test = path.contains("tests") || path.ends_with("testing.rs");
        let own = text.contains("parking_lot::") || text.contains("std::sync::Mutex");
        own && !is_test && !path.contains("/ranked_lock/")
    });
    let in_crates = |path: PathBuf| path.strip_prefix(crates).unwrap().display().to_string();
    let mut found: Vec<_> = found.into_iter().map(in_crates).collect();
    named.sort();
    found.sort();
    assert_eq!(named, found);
}
