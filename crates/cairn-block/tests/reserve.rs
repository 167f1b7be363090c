//! The reserve of memory. A process has only one, so it is tested in a process of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cairn_base::memory;
use cairn_block::IoBuf;
use cairn_block::allocations::{self, Allocations};
use cairn_block::reserve::{Reserving, set_aside};

/// The reserve and the counters are of the whole process: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses this many blocks, and then allocates.
struct Poor(AtomicUsize);

// SAFETY: all blocks come from the system's allocator.
unsafe impl GlobalAlloc for Poor {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            return null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }
}

/// True if an allocation succeeds after the system has refused it this many times.
fn gives(refusals: usize) -> bool {
    let (layout, poor) = (Layout::new::<[u64; 8]>(), Reserving(Poor(AtomicUsize::new(refusals))));
    // SAFETY: the layout has a size, and the block is freed with the same layout.
    unsafe {
        let block = poor.alloc(layout);
        if block.is_null() {
            return false;
        }
        poor.dealloc(block, layout);
    }
    true
}

#[test]
fn small_allocations_open_the_reserve_and_others_are_refused_until_it_is_whole_again() {
    let _alone = alone();
    set_aside().unwrap();
    assert!(gives(0) && !memory::is_short());

    assert!(gives(3), "from the reserve");
    assert!(memory::is_short());
    assert!(IoBuf::try_zeroed(4096).is_err(), "what can be refused is, as long as memory is short");
    assert_eq!(IoBuf::zeroed(4096).len(), 4096, "what has to go on goes on");
    memory::admit("a request").unwrap();
    assert!(!memory::is_short(), "the system has the memory again");
    assert!(IoBuf::try_zeroed(4096).is_ok());

    let refused = memory::fallibly("a page", 64, || gives(3).then_some(()));
    assert!(refused.is_err() && !memory::is_short(), "what may be refused opens nothing");

    assert!(!gives(100), "there is an end of it");
    assert!(memory::is_short());
    memory::relieve();
    assert!(!memory::is_short());
}

/// Refuses blocks on demand, and notes the sizes that it was asked for.
#[derive(Default)]
struct Noting {
    refuses: AtomicBool,
    sizes: Mutex<Vec<usize>>,
}

impl Noting {
    fn sizes(&self) -> Vec<usize> {
        std::mem::take(&mut self.sizes.lock().unwrap())
    }
}

// SAFETY: all blocks come from the system's allocator.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.sizes.lock().unwrap().push(layout.size());
        if self.refuses.load(Ordering::Relaxed) {
            return null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }
}

/// Mimalloc crashes if a thread's first allocation was refused and the next one is small.
#[test]
fn a_thread_that_was_refused_memory_goes_on_with_a_large_block() {
    let _alone = alone();
    let allocator = Reserving(Noting::default());
    let noting = &allocator.0;
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the layout has a size, and the block is freed with the same layout.
    let allocates = || unsafe {
        let block = allocator.alloc(layout);
        (!block.is_null()).then(|| allocator.dealloc(block, layout)).is_some()
    };
    assert!(allocates());
    assert_eq!(noting.sizes(), [64]);

    noting.refuses.store(true, Ordering::Relaxed);
    assert!(memory::fallibly("a page", 64, || allocates().then_some(())).is_err());
    let [64, large @ ..] = &noting.sizes()[..] else { panic!("it was not tried") };
    assert!(large.iter().all(|size| *size > 1024), "{large:?}");
    assert!(memory::fallibly("a page", 64, || allocates().then_some(())).is_err());
    assert!(noting.sizes().iter().all(|size| *size > 1024), "refused before");

    noting.refuses.store(false, Ordering::Relaxed);
    assert!(allocates() && allocates());
    assert_eq!(noting.sizes(), [4096, 64, 64]);
}

#[test]
fn allocations_are_counted_while_somebody_measures() {
    let _alone = alone();
    assert!(gives(0), "counted by nobody");
    let (given, counted) = allocations::during(|| gives(0));
    assert!(given && counted == Allocations { calls: 1, bytes: 64 }, "{counted:?}");
    assert_eq!(allocations::during(|| ()).1, Allocations::default());
}
