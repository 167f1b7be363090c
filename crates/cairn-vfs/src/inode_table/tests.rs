use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn load(table: &InodeTable<u64>, n: u64) -> Arc<u64> {
    table.get_or_try_insert(Ino(n), || Ok::<_, ()>(n)).unwrap()
}

#[test]
fn one_load_under_contention() {
    let table = InodeTable::new(1000, |_: &u64| true);
    let loads = AtomicUsize::new(0);
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for n in 0..200 {
                    barrier.wait();
                    let value = table.get_or_try_insert(Ino(n), || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        Ok::<_, ()>(n * 2)
                    });
                    assert_eq!(*value.unwrap(), n * 2);
                }
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 200);
}

#[test]
fn a_failed_load_leaves_nothing() {
    let table = InodeTable::new(10, |_: &u64| true);
    assert_eq!(table.get_or_try_insert(Ino(1), || Err("bad")), Err("bad"));
    assert!(table.get(Ino(1)).is_none());
    assert_eq!(*load(&table, 1), 1);
}

#[test]
fn held_values_and_the_callback_keep_entries() {
    let table = InodeTable::new(1, |value: &u64| value.is_multiple_of(2));
    let held = load(&table, 4);
    drop(load(&table, 5));
    drop(load(&table, 6));
    table.shrink();
    assert!(table.get(Ino(4)).is_some() && table.get(Ino(5)).is_some());
    assert!(table.get(Ino(6)).is_none());
    drop(held);
    table.shrink();
    assert!(table.get(Ino(4)).is_none());
}

#[test]
fn evicted_values_keep_their_references() {
    let table = InodeTable::new(1000, |_: &u64| true);
    drop(load(&table, 2));
    table.acquire(Ino(2));
    table.acquire(Ino(2));
    table.shrink();
    assert!(table.get(Ino(2)).is_none() && table.is_empty());
    assert_eq!((table.references(Ino(2)), table.referenced()), (2, vec![Ino(2)]));
    // A failed load changes nothing.
    assert_eq!(table.get_or_try_insert(Ino(2), || Err("bad")), Err("bad"));
    assert_eq!((table.references(Ino(2)), table.release(Ino(2), 1)), (2, 1));
    drop(load(&table, 2));
    assert_eq!((table.acquire(Ino(2)), table.release(Ino(2), 2)), (Some(2), 0));
    table.shrink();
    assert!(table.referenced().is_empty() && table.references(Ino(2)) == 0);
    drop(load(&table, 3));
    table.acquire(Ino(3));
    table.shrink();
    assert!(table.remove(Ino(3)).is_none() && table.references(Ino(3)) == 0);
}

#[test]
fn values_without_references_are_evicted_first() {
    let table = InodeTable::new(10_000, |_: &u64| true);
    for n in 0..2000 {
        drop(load(&table, n));
        if n % 3 == 0 {
            table.acquire(Ino(n));
        }
    }
    let evicted = table.evict(900);
    assert!((800..=1100).contains(&evicted), "{evicted} evicted");
    let left = (0..2000).filter(|n| n % 3 == 0 && table.get(Ino(*n)).is_some()).count();
    assert_eq!(left, 667, "values with references are left");
}

/// With 8 MiB of cache and 8,000 open files, each request of memory searched all of them in vain.
#[test]
fn values_that_cannot_leave_are_not_searched_each_time() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    static MAY_LEAVE: AtomicBool = AtomicBool::new(false);
    let table = InodeTable::new(10_000, |_: &u64| {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        MAY_LEAVE.load(Ordering::Relaxed)
    });
    for n in 0..6400 {
        drop(load(&table, n));
    }
    LOOKS.store(0, Ordering::Relaxed);
    for n in 0..1000 {
        assert_eq!(table.evict(1), 0);
        // One of them is used, as by a request.
        assert!(table.get(Ino(n)).is_some());
    }
    let looks = LOOKS.load(Ordering::Relaxed);
    assert!(looks < 1000 * 2 * 64 * 2, "{looks} looks in 1,000 calls");
    // When they may leave, some of the next calls find it out.
    MAY_LEAVE.store(true, Ordering::Relaxed);
    let evicted: usize = (0..300).map(|_| table.evict(1)).sum();
    assert!(evicted > 0, "nothing leaves any more");
}

#[test]
fn the_table_stays_near_its_limit() {
    let table = InodeTable::new(640, |_: &u64| true);
    for n in 0..100_000 {
        drop(load(&table, n));
    }
    assert!(table.len() <= 640 + SHARDS * 2 * SCAN_STEP, "{}", table.len());
}

/// Values that were used since the last search are spared once: the table grows by two steps then.
#[test]
fn a_small_table_of_used_values_stays_near_its_limit() {
    const LIMIT: usize = 9 * SHARDS;
    let table = InodeTable::new(LIMIT, |_: &u64| true);
    let mut most = 0;
    for n in 0..10_000 {
        drop(load(&table, n));
        assert!(table.get(Ino(n)).is_some());
        most = most.max(table.len());
    }
    assert!((LIMIT..LIMIT * 3 / 2).contains(&most), "{most}");
}

#[test]
fn references_count_and_saturate() {
    let table = InodeTable::new(10, |_: &u64| true);
    let _held = load(&table, 7);
    assert_eq!(table.acquire(Ino(7)), Some(1));
    assert_eq!(table.acquire(Ino(7)), Some(2));
    assert_eq!(table.release(Ino(7), 1), 1);
    assert_eq!(table.references(Ino(7)), 1);
    assert_eq!(table.release(Ino(7), 9), 0);
    assert_eq!((table.release(Ino(8), 1), table.acquire(Ino(8))), (0, None));
    assert!(table.remove(Ino(7)).is_some() && table.is_empty());
}

#[test]
fn threads_load_reference_and_evict_at_once() {
    let table = InodeTable::new(64, |_: &u64| true);
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                let mut n = seed;
                for _ in 0..20_000 {
                    n = n
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let ino = n >> 33 & 1023;
                    let value = load(table, ino);
                    table.acquire(Ino(ino));
                    drop(value);
                    // Evicted or not, the count stays.
                    assert!(table.references(Ino(ino)) > 0);
                    assert_eq!(*load(table, ino), ino);
                    table.release(Ino(ino), 1);
                }
            });
        }
    });
    table.for_each(|ino, _| assert_eq!(table.references(ino), 0));
}
