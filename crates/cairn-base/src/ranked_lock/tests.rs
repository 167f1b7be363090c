use std::sync::Barrier;
use std::thread;

use super::*;

#[test]
fn rising_ranks_nest() {
    let low = Mutex::new(Rank::INODE_DATA, 1);
    let high = RwLock::new(Rank::FOLIO, 2);
    let low = low.lock();
    let gate = enter(Rank::OPERATION);
    let high = high.read();
    assert_eq!(*low + *high, 3);
    drop((low, gate, high));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: rank 200 taken while rank 400 is held")]
fn a_falling_rank_panics() {
    let low = Mutex::new(Rank::INODE_DATA, ());
    let high = Mutex::new(Rank::FOLIO, ());
    let _high = high.lock();
    let _low = low.lock();
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: rank 400 taken while rank 400 is held")]
fn an_equal_rank_without_order_panics() {
    let (one, two) = (RwLock::new(Rank::FOLIO, ()), RwLock::new(Rank::FOLIO, ()));
    let _one = one.read();
    let _two = two.read();
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: rank 300 taken while rank 400 is held")]
fn the_gate_is_not_entered_under_a_folio() {
    let folio = Mutex::new(Rank::FOLIO, ());
    let _folio = folio.lock();
    let _gate = enter(Rank::OPERATION);
}

#[test]
fn equal_ranks_nest_in_rising_order() {
    let locks: Vec<_> = (0..4).map(|order| Mutex::new_ordered(Rank::FOLIO, order, order)).collect();
    let guards: Vec<_> = locks.iter().map(Mutex::lock).collect();
    assert_eq!(guards.iter().map(|guard| **guard).sum::<u64>(), 6);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "lock order: rank 400 order 1 taken while rank 400 order 2 is held")]
fn equal_ranks_in_falling_order_panic() {
    let locks = [1, 2].map(|order| Mutex::new_ordered(Rank::FOLIO, order, ()));
    let _two = locks[1].lock();
    let _one = locks[0].lock();
}

#[test]
fn a_rank_is_free_again_however_guards_are_released() {
    let (low, high) = (Mutex::new(Rank::FOLIO, ()), Mutex::new(Rank::BUFFER, ()));
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
    let (low, high) = (RwLock::new(Rank::FOLIO, ()), RwLock::new(Rank::BUFFER, ()));
    let _high = high.write();
    assert!(low.try_write().is_some());
    assert!(high.try_read().is_none());
}

#[test]
fn a_writer_that_steps_down_keeps_its_rank() {
    let lock = RwLock::new(Rank::FOLIO, 1);
    let mut guard = lock.write();
    *guard = 2;
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(*lock.try_read().unwrap(), 2);
    assert!(lock.try_write().is_none());
    drop(guard);
    assert!(lock.try_write().is_some());
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
fn isolated_work_starts_with_nothing_held_and_gives_the_ranks_back() {
    let (low, high) = (Mutex::new(Rank::FOLIO, ()), Mutex::new(Rank::BUFFER, ()));
    let held = high.lock();
    isolated(|| drop(low.lock()));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| low.lock()));
    assert!(caught.is_err(), "the rank of the suspended work must be back");
    drop(held);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "ranks are checked in debug builds only")]
#[should_panic(expected = "simulated deadlock: rank 400 is held by the work that waits")]
fn isolated_work_that_needs_a_suspended_lock_panics_instead_of_hanging() {
    let lock = Mutex::new(Rank::FOLIO, ());
    let _held = lock.lock();
    isolated(|| isolated(|| drop(lock.lock())));
}

/// Every thread moves money between two accounts that it locks in rank order; the sum is seen whole
/// by readers.
#[test]
fn contending_threads_exclude_each_other() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 20_000;
    let low = RwLock::new(Rank::ALLOCATOR, 1_000_i64);
    let high = Mutex::new(Rank::BUFFER, 1_000_i64);
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
    let turn = Mutex::new(Rank::JOURNAL, 0_u32);
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
fn a_condition_that_nobody_meets_times_out() {
    let (changed, lock) = (Condvar::new(), Mutex::new(Rank::JOURNAL, ()));
    assert!(!changed.wait_for(&mut lock.lock(), Duration::from_millis(1)));
}
