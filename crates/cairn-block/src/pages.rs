//! Single pages of memory, which go back to the system whatever their neighbours do.
//!
//! A cache frees pages in another order than it has taken them. An allocator keeps them together
//! in spans, and a span stays in memory as long as one page of it is in use. Here each page is one
//! of the system's, and a free one is given back by itself.
//!
//! Pages are cut from regions of [`REGION`] pages. A free page is warm (it has its memory, so the
//! next user pays no page fault) or cold. Beyond [`WARM`] warm pages, half of them are made cold. A
//! region whose pages are all cold goes back to the system with its addresses.
//!
//! Locking: one mutex, held for a few steps, and while a new region is mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a page.
pub(crate) const SIZE: usize = 4096;
/// Pages of a region.
const REGION: usize = 256;
/// Most warm pages.
const WARM: usize = 1024;

/// The address of a page, which is free or has one user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Address(NonNull<[u8; SIZE]>);

// SAFETY: the memory belongs to no thread.
unsafe impl Send for Address {}
// SAFETY: a shared reference gives no more than shared access to the memory.
unsafe impl Sync for Address {}

/// Memory for [`REGION`] pages.
struct Region {
    start: Address,
    /// A bit for each page.
    cold: [u64; REGION / 64],
}

#[derive(Default)]
struct Pool {
    /// By the address of the first page.
    regions: BTreeMap<usize, Region>,
    /// Regions with a cold page.
    open: BTreeSet<usize>,
    warm: Vec<Address>,
    /// Cold pages of all regions.
    cold: usize,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

fn with_pool<R>(work: impl FnOnce(&mut Pool) -> R) -> R {
    work(POOL.lock().get_or_insert_default())
}

impl Region {
    fn new() -> Option<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, which no other memory is part of.
        let start =
            unsafe { mmap_anonymous(null_mut(), REGION * SIZE, access, MapFlags::PRIVATE).ok()? };
        let start = Address(NonNull::new(start.cast())?);
        Some(Self { start, cold: [u64::MAX; REGION / 64] })
    }

    /// Takes a cold page.
    fn take(&mut self) -> Option<Address> {
        let word = self.cold.iter().position(|bits| *bits != 0)?;
        let bit = self.cold[word].trailing_zeros() as usize;
        self.cold[word] &= !(1 << bit);
        // SAFETY: the number is below that of the region's pages.
        Some(Address(unsafe { self.start.0.add(word * 64 + bit) }))
    }

    fn has_cold(&self) -> bool {
        self.cold.iter().any(|bits| *bits != 0)
    }

    fn is_unused(&self) -> bool {
        self.cold.iter().all(|bits| *bits == u64::MAX)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        assert!(self.is_unused(), "a page of a region is in use");
        // SAFETY: `new` has mapped it at this length, and nobody uses a page of it.
        let _ = unsafe { munmap(self.start.0.as_ptr().cast(), REGION * SIZE) };
    }
}

impl Pool {
    fn take(&mut self) -> Option<Address> {
        if let Some(page) = self.warm.pop() {
            return Some(page);
        }
        if self.cold == 0 {
            let region = Region::new()?;
            let start = region.start.0.addr().get();
            self.cold += REGION;
            self.open.insert(start);
            self.regions.insert(start, region);
        }
        // From the lowest region, so that the others become unused.
        let start = *self.open.first()?;
        let region = self.regions.get_mut(&start)?;
        let page = region.take()?;
        self.cold -= 1;
        if !region.has_cold() {
            self.open.remove(&start);
        }
        Some(page)
    }

    /// Takes a page back. Returns the pages that are to be made cold.
    fn put(&mut self, page: Address) -> Vec<Address> {
        self.warm.push(page);
        if self.warm.len() <= WARM {
            return Vec::new();
        }
        // The oldest: the others may be in the processor's caches.
        let mut surplus: Vec<Address> = self.warm.drain(..WARM / 2).collect();
        surplus.sort_unstable();
        surplus
    }

    /// Notes that pages are cold, and returns the regions that are unused now.
    fn put_cold(&mut self, pages: &[Address]) -> Vec<Region> {
        let mut unused = Vec::new();
        for page in pages {
            let address = page.0.addr().get();
            let Some((start, region)) = self.regions.range_mut(..=address).next_back() else {
                unreachable!("a page comes from a region")
            };
            let (start, number) = (*start, (address - start) / SIZE);
            region.cold[number / 64] |= 1 << (number % 64);
            self.cold += 1;
            self.open.insert(start);
            // One stays, so that a user of one page does not map and unmap all the time.
            if region.is_unused() && self.cold > REGION {
                self.cold -= REGION;
                self.open.remove(&start);
                unused.extend(self.regions.remove(&start));
            }
        }
        unused
    }
}

/// Gives the memory of free pages back, in as few calls as possible.
fn cool(pages: &[Address]) {
    for run in pages.chunk_by(|a, b| a.0.addr().get() + SIZE == b.0.addr().get()) {
        let Some(first) = run.first() else { continue };
        let len = run.len() * SIZE;
        // SAFETY: the pages are mapped, next to each other, and have no user. Afterwards they are
        // zeros, or what they were.
        let _ = unsafe { madvise(first.0.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

/// One page, aligned to its size.
pub(crate) struct Page(Address);

impl Page {
    /// A page with arbitrary contents. `None` if the system has no memory.
    pub(crate) fn arbitrary() -> Option<Self> {
        with_pool(Pool::take).map(Self)
    }

    /// A page of zeros.
    pub(crate) fn zeroed() -> Option<Self> {
        let mut page = Self::arbitrary()?;
        page.fill(0);
        Some(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let surplus = with_pool(|pool| pool.put(self.0));
        if !surplus.is_empty() {
            cool(&surplus);
            drop(with_pool(|pool| pool.put_cold(&surplus)));
        }
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the page is mapped, has been zeros since then or what a user has written, and
        // this is its only user.
        unsafe { self.0.0.as_ref() }
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the reference is exclusive as `self` is.
        unsafe { self.0.0.as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a pool of its own: other tests use the process's.
    fn taken(pool: &mut Pool, count: usize) -> Vec<Address> {
        (0..count).map(|_| pool.take().expect("memory")).collect()
    }

    #[test]
    fn pages_are_aligned_apart_and_used_again() {
        let mut pool = Pool::default();
        let mut pages = taken(&mut pool, 3 * REGION);
        let first = pages[0];
        pages.sort_unstable();
        pages.dedup();
        assert_eq!((pages.len(), pool.regions.len(), pool.cold), (3 * REGION, 3, 0));
        assert!(pages.iter().all(|page| page.0.addr().get().is_multiple_of(SIZE)));
        assert!(pool.open.is_empty());
        assert!(pool.put(first).is_empty());
        assert!(pool.take() == Some(first), "it is warm");
        assert_eq!(pool.put_cold(&pages).len(), 2, "one region stays");
        assert_eq!((pool.regions.len(), pool.cold), (1, REGION));
    }

    #[test]
    fn pages_beyond_the_warm_ones_give_their_memory_back() {
        let mut pool = Pool::default();
        let pages = taken(&mut pool, WARM + 1);
        for page in &pages {
            // SAFETY: it was taken here and has no other user.
            unsafe { *page.0.as_ptr() = [7; SIZE] };
        }
        let (last, others) = pages.split_last().unwrap();
        assert!(others.iter().all(|page| pool.put(*page).is_empty()));
        let surplus = pool.put(*last);
        assert_eq!((surplus.len(), pool.warm.len()), (WARM / 2, WARM / 2 + 1));
        cool(&surplus);
        for page in &surplus {
            // SAFETY: it was taken here and has no other user.
            assert_eq!(unsafe { *page.0.as_ptr() }, [0; SIZE]);
        }
        drop(pool.put_cold(&surplus));
        let left = std::mem::take(&mut pool.warm);
        drop(pool.put_cold(&left));
        assert_eq!((pool.regions.len(), pool.cold), (1, REGION));
    }

    #[test]
    fn threads_never_share_a_page() {
        std::thread::scope(|scope| {
            for thread in 1..=4_u8 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let mut pages: Vec<Page> =
                            (0..50).map(|_| Page::zeroed().unwrap()).collect();
                        assert!(pages.iter().all(|page| page.iter().all(|byte| *byte == 0)));
                        pages.iter_mut().for_each(|page| page.fill(thread));
                        pages.truncate(round % 50);
                        assert!(pages.iter().all(|page| page.iter().all(|byte| *byte == thread)));
                    }
                });
            }
        });
    }
}
