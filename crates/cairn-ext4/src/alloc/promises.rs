//! How much space is promised to data that has no place yet.
//!
//! One number: free blocks minus promised ones. Whoever takes space without a promise must leave a floor, which keeps
//! room for the reserved user and for the mapping blocks of promised data. Lock-free.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Who asks, and so what must be left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An ordinary user's data: leaves the reserved blocks and the pool.
    User,
    /// The reserved user's data, and metadata of the namespace: leaves the pool.
    Privileged,
    /// Mapping blocks of promised data: may use everything.
    Mapping,
}

/// The counter.
#[derive(Debug)]
pub struct Promises {
    unpromised: AtomicI64,
    promised: AtomicU64,
    reserved: u64,
    pool: u64,
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Promises {
    /// `free` blocks now, of which `reserved` are the reserved user's. A fiftieth of the volume, at most 4096 blocks, is
    /// the pool for mapping blocks.
    #[must_use]
    pub fn new(free: u64, reserved: u64, blocks: u64) -> Self {
        let pool = (blocks / 50).min(4096);
        Self { unpromised: AtomicI64::new(signed(free)), promised: AtomicU64::new(0), reserved, pool }
    }

    fn floor(&self, class: Class) -> i64 {
        match class {
            Class::User => signed(self.pool.saturating_add(self.reserved)),
            Class::Privileged => signed(self.pool),
            Class::Mapping => 0,
        }
    }

    /// What `class` could still get.
    #[must_use]
    pub fn available(&self, class: Class) -> u64 {
        let left = self.unpromised.load(Ordering::Relaxed) - self.floor(class);
        u64::try_from(left).unwrap_or(0)
    }

    /// Blocks promised now.
    #[must_use]
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Takes between 1 and `want` blocks out of what is free; `None` if there is not one.
    pub fn take_up_to(&self, want: u64, class: Class) -> Option<u64> {
        let floor = self.floor(class);
        let mut seen = self.unpromised.load(Ordering::Relaxed);
        loop {
            let got = u64::try_from(seen - floor).unwrap_or(0).min(want);
            if got == 0 {
                return None;
            }
            match self.unpromised.compare_exchange_weak(seen, seen - signed(got), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(got),
                Err(now) => seen = now,
            }
        }
    }

    /// Promises `count` blocks, or nothing.
    #[must_use]
    pub fn promise(&self, count: u64, class: Class) -> bool {
        let (floor, count_signed) = (self.floor(class), signed(count));
        let grant = |seen: i64| (seen.checked_sub(count_signed)? >= floor).then_some(seen - count_signed);
        let granted = self.unpromised.fetch_update(Ordering::AcqRel, Ordering::Relaxed, grant).is_ok();
        if granted {
            self.promised.fetch_add(count, Ordering::Relaxed);
        }
        granted
    }

    /// Takes a promise back.
    pub fn release(&self, count: u64) {
        let before = self.promised.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "only what was promised is released");
        self.give(count);
    }

    /// A promise has become `placed` real blocks; both numbers are of the same write, and differ if part of the
    /// promise was released in between.
    pub fn keep(&self, promised: u64, placed: u64) {
        let before = self.promised.fetch_sub(promised, Ordering::Relaxed);
        assert!(before >= promised, "only what was promised is kept");
        self.unpromised.fetch_add(signed(promised) - signed(placed), Ordering::AcqRel);
    }

    /// Blocks became free.
    pub fn give(&self, count: u64) {
        self.unpromised.fetch_add(signed(count), Ordering::AcqRel);
    }

    /// Free blocks turned out not to be usable.
    pub fn lose(&self, count: u64) {
        self.unpromised.fetch_sub(signed(count), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_by_class() {
        let promises = Promises::new(1000, 50, 5000);
        assert_eq!(promises.available(Class::User), 850);
        assert!(!promises.promise(851, Class::User));
        assert!(promises.promise(850, Class::User));
        assert_eq!(promises.take_up_to(100, Class::User), None);
        assert_eq!(promises.take_up_to(100, Class::Privileged), Some(50));
        assert_eq!(promises.take_up_to(1000, Class::Mapping), Some(100));
        promises.release(850);
        assert_eq!(promises.available(Class::Mapping), 850);
    }

    #[test]
    fn contending_takers_never_get_more_than_there_is() {
        let promises = Promises::new(10_000, 0, 0);
        let total: u64 = std::thread::scope(|scope| {
            let takers: Vec<_> = (1..=8)
                .map(|want| {
                    let promises = &promises;
                    scope.spawn(move || {
                        let mut got = 0;
                        while promises.promise(want, Class::User) {
                            got += want;
                        }
                        while let Some(more) = promises.take_up_to(want, Class::Mapping) {
                            got += more;
                        }
                        got
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().expect("no panic")).sum()
        });
        assert_eq!(total, 10_000);
    }
}
