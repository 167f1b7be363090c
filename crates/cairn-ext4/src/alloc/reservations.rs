//! Counts the space that is reserved for data without an address.
//!
//! The main counter is the number of free blocks minus the reserved ones. A caller without a
//! reservation must leave a floor, which contains the root-reserved blocks and the blocks for maps
//! of reserved data. There is no lock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use cairn_vfs::root_reserved;

/// The class of a caller, which decides how many blocks it must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Data, names and attributes of unprivileged users. They leave the root-reserved blocks and
    /// the pool.
    User,
    /// As `User`, for users who may use the root-reserved blocks. They leave the pool.
    Privileged,
    /// Blocks for maps of reserved data, and operations that remove something. They leave nothing.
    Mapping,
}

impl Class {
    /// The class of the present call on this thread.
    #[must_use]
    pub(crate) fn of_call() -> Self {
        if root_reserved::may_be_used() { Self::Privileged } else { Self::User }
    }
}

/// The counters of free and reserved blocks.
#[derive(Debug)]
pub(crate) struct Reservations {
    unreserved: AtomicI64,
    reserved: AtomicU64,
    root_reserved: u64,
    pool: AtomicU64,
    default_pool: u64,
}

fn signed(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX)
}

impl Reservations {
    /// Creates the counters for `free` blocks, of which `root_reserved` are root-reserved
    /// (`s_r_blocks_count`). The pool for maps is a fiftieth of the volume, and at most 4096
    /// blocks.
    #[must_use]
    pub(crate) fn new(free: u64, root_reserved: u64, blocks: u64) -> Self {
        let pool = (blocks / 50).min(4096);
        Self {
            unreserved: AtomicI64::new(signed(free)),
            reserved: AtomicU64::new(0),
            root_reserved,
            pool: AtomicU64::new(pool),
            default_pool: pool,
        }
    }

    /// Changes the pool to at most this many blocks; `None` is the default.
    pub(crate) fn set_pool(&self, most: Option<u64>) {
        let pool = most.map_or(self.default_pool, |most| most.min(self.default_pool));
        self.pool.store(pool, Ordering::Relaxed);
    }

    fn floor(&self, class: Class) -> i64 {
        let pool = self.pool.load(Ordering::Relaxed);
        match class {
            Class::User => signed(pool.saturating_add(self.root_reserved)),
            Class::Privileged => signed(pool),
            Class::Mapping => 0,
        }
    }

    /// Blocks that `class` can get once `more` are free. They first fill the pool.
    #[must_use]
    pub(crate) fn available_with(&self, more: u64, class: Class) -> u64 {
        let free = self.unreserved.load(Ordering::Relaxed).saturating_add(signed(more));
        u64::try_from(free.saturating_sub(self.floor(class))).unwrap_or(0)
    }

    /// Takes 1 to `want` free blocks. `None` if there is none.
    pub(crate) fn take_up_to(&self, want: u64, class: Class) -> Option<u64> {
        let floor = self.floor(class);
        let mut seen = self.unreserved.load(Ordering::Relaxed);
        loop {
            let got = u64::try_from(seen - floor).unwrap_or(0).min(want);
            if got == 0 {
                return None;
            }
            match self.unreserved.compare_exchange_weak(
                seen,
                seen - signed(got),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(got),
                Err(now) => seen = now,
            }
        }
    }

    /// Reserves `count` blocks, or none.
    #[must_use]
    pub(crate) fn reserve(&self, count: u64, class: Class) -> bool {
        let (floor, count_signed) = (self.floor(class), signed(count));
        let grant =
            |seen: i64| (seen.checked_sub(count_signed)? >= floor).then_some(seen - count_signed);
        let granted =
            self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, grant).is_ok();
        if granted {
            self.reserved.fetch_add(count, Ordering::Relaxed);
        }
        granted
    }

    /// Releases a reservation of `count` blocks.
    pub(crate) fn release(&self, count: u64) {
        let before = self.reserved.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "only what was reserved is released");
        self.add_free(count);
    }

    /// Records that `allocated` blocks are in use and `reserved` blocks of a reservation are used
    /// up. Both belong to one write. They differ if a part of the reservation was released in
    /// between.
    pub(crate) fn convert(&self, reserved: u64, allocated: u64) {
        let before = self.reserved.fetch_sub(reserved, Ordering::Relaxed);
        assert!(before >= reserved, "only what was reserved is used");
        self.unreserved.fetch_add(signed(reserved) - signed(allocated), Ordering::AcqRel);
    }

    /// Adds blocks that became free.
    pub(crate) fn add_free(&self, count: u64) {
        self.unreserved.fetch_add(signed(count), Ordering::AcqRel);
    }

    /// Removes free blocks that turned out to be unusable.
    pub(crate) fn remove_free(&self, count: u64) {
        self.unreserved.fetch_sub(signed(count), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_by_class() {
        let reservations = Reservations::new(1000, 50, 5000);
        assert_eq!(reservations.available_with(0, Class::User), 850);
        assert!(!reservations.reserve(851, Class::User));
        assert!(reservations.reserve(850, Class::User));
        assert_eq!(reservations.take_up_to(100, Class::User), None);
        assert_eq!(reservations.take_up_to(100, Class::Privileged), Some(50));
        assert_eq!(reservations.take_up_to(1000, Class::Mapping), Some(100));
        reservations.release(850);
        assert_eq!(reservations.available_with(0, Class::Mapping), 850);
        // What is about to be free belongs to the pool first.
        assert_eq!(reservations.available_with(0, Class::Privileged), 750);
        assert!(reservations.reserve(750, Class::Privileged));
        assert_eq!(reservations.take_up_to(60, Class::Mapping), Some(60));
        assert_eq!(reservations.available_with(60, Class::Privileged), 0);
        assert_eq!(reservations.available_with(61, Class::Privileged), 1);
        reservations.add_free(60);
        reservations.release(750);
        reservations.set_pool(Some(10));
        assert_eq!(reservations.available_with(0, Class::Privileged), 840);
        reservations.set_pool(None);
        assert_eq!(reservations.available_with(0, Class::Privileged), 750);
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
