//! How much space is reserved for data that has no address yet.
//!
//! One number: free blocks minus reserved ones. Whoever takes space without a reservation must leave a floor, which keeps
//! room for the root-reserved blocks and for the mapping blocks of reserved data. Lock-free.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use cairn_vfs::root_reserved;

/// Who asks, and so what must be left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Data, names and attributes of ordinary users. Leaves the root-reserved blocks and the pool.
    User,
    /// The same of users who may use the root-reserved blocks. Leaves the pool.
    Privileged,
    /// Mapping blocks of reserved data, and operations that remove something. Uses everything.
    Mapping,
}

impl Class {
    /// The class of the present call on this thread.
    #[must_use]
    pub fn of_call() -> Self {
        if root_reserved::may_be_used() { Self::Privileged } else { Self::User }
    }
}

/// The counter.
#[derive(Debug)]
pub struct Reservations {
    unreserved: AtomicI64,
    reserved: AtomicU64,
    root_reserved: u64,
    pool: u64,
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Reservations {
    /// `free` blocks now, of which `root_reserved` are root's (`s_r_blocks_count`). A fiftieth of the volume, at most 4096 blocks, is
    /// the pool for mapping blocks.
    #[must_use]
    pub fn new(free: u64, root_reserved: u64, blocks: u64) -> Self {
        let pool = (blocks / 50).min(4096);
        Self { unreserved: AtomicI64::new(signed(free)), reserved: AtomicU64::new(0), root_reserved, pool }
    }

    fn floor(&self, class: Class) -> i64 {
        match class {
            Class::User => signed(self.pool.saturating_add(self.root_reserved)),
            Class::Privileged => signed(self.pool),
            Class::Mapping => 0,
        }
    }

    /// What `class` could still get.
    #[must_use]
    pub fn available(&self, class: Class) -> u64 {
        let left = self.unreserved.load(Ordering::Relaxed) - self.floor(class);
        u64::try_from(left).unwrap_or(0)
    }

    /// Blocks reserved now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Takes between 1 and `want` blocks out of what is free; `None` if there is not one.
    pub fn take_up_to(&self, want: u64, class: Class) -> Option<u64> {
        let floor = self.floor(class);
        let mut seen = self.unreserved.load(Ordering::Relaxed);
        loop {
            let got = u64::try_from(seen - floor).unwrap_or(0).min(want);
            if got == 0 {
                return None;
            }
            match self.unreserved.compare_exchange_weak(seen, seen - signed(got), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(got),
                Err(now) => seen = now,
            }
        }
    }

    /// Reserves `count` blocks, or nothing.
    #[must_use]
    pub fn reserve(&self, count: u64, class: Class) -> bool {
        let (floor, count_signed) = (self.floor(class), signed(count));
        let grant = |seen: i64| (seen.checked_sub(count_signed)? >= floor).then_some(seen - count_signed);
        let granted = self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, grant).is_ok();
        if granted {
            self.reserved.fetch_add(count, Ordering::Relaxed);
        }
        granted
    }

    /// Gives up a reservation of `count` blocks.
    pub fn release(&self, count: u64) {
        let before = self.reserved.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "only what was reserved is released");
        self.give(count);
    }

    /// `reserved` blocks of a reservation became `allocated` blocks in use; both numbers are of the same write, and differ if part of the
    /// reservation was released in between.
    pub fn convert(&self, reserved: u64, allocated: u64) {
        let before = self.reserved.fetch_sub(reserved, Ordering::Relaxed);
        assert!(before >= reserved, "only what was reserved is used");
        self.unreserved.fetch_add(signed(reserved) - signed(allocated), Ordering::AcqRel);
    }

    /// Blocks became free.
    pub fn give(&self, count: u64) {
        self.unreserved.fetch_add(signed(count), Ordering::AcqRel);
    }

    /// Free blocks turned out not to be usable.
    pub fn lose(&self, count: u64) {
        self.unreserved.fetch_sub(signed(count), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_by_class() {
        let reservations = Reservations::new(1000, 50, 5000);
        assert_eq!(reservations.available(Class::User), 850);
        assert!(!reservations.reserve(851, Class::User));
        assert!(reservations.reserve(850, Class::User));
        assert_eq!(reservations.take_up_to(100, Class::User), None);
        assert_eq!(reservations.take_up_to(100, Class::Privileged), Some(50));
        assert_eq!(reservations.take_up_to(1000, Class::Mapping), Some(100));
        reservations.release(850);
        assert_eq!(reservations.available(Class::Mapping), 850);
    }

    #[test]
    fn contending_takers_never_get_more_than_there_is() {
        let reservations = Reservations::new(10_000, 0, 0);
        let total: u64 = std::thread::scope(|scope| {
            let takers: Vec<_> = (1..=8)
                .map(|want| {
                    let reservations = &reservations;
                    scope.spawn(move || {
                        let mut got = 0;
                        while reservations.reserve(want, Class::User) {
                            got += want;
                        }
                        while let Some(more) = reservations.take_up_to(want, Class::Mapping) {
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
