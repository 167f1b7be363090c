//! Memory set aside for small allocations, which cannot fail: see [`cairn_base::memory`].
//!
//! The reserve is address space in pieces. If the system refuses memory, the allocator
//! ([`Reserving`]) gives one piece back to the system and tries again. So does
//! [`crate::IoBuf::zeroed`]. Memory then counts as short until the reserve is full again.
//!
//! Locking: none. A piece belongs to the thread that takes it out of its slot.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use cairn_base::memory::{self, NoMemory};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::allocations;

/// Bytes of a piece: an allocator takes memory from the system in bites of several MiB.
const PIECE: usize = 4 << 20;
const PIECES: usize = 8;

static HELD: [AtomicPtr<c_void>; PIECES] = [const { AtomicPtr::new(null_mut()) }; PIECES];
static WANTED: AtomicBool = AtomicBool::new(false);

/// Bytes of the whole reserve.
pub const SIZE: u64 = (PIECE * PIECES) as u64;

/// Sets the reserve aside. It costs address space, no memory.
///
/// # Errors
/// The system refuses it.
pub fn set_aside() -> Result<(), NoMemory> {
    one_arena();
    memory::set_refill(refill);
    WANTED.store(true, Ordering::Relaxed);
    if refill() {
        return Ok(());
    }
    // The caller continues without a reserve, so memory is not short.
    memory::set_state(false, false);
    Err(NoMemory { what: "the reserve that a volume needs when memory runs out", bytes: SIZE })
}

/// Limits the C library's allocator to one arena. By default each thread that uses it gets 64 MiB
/// of address space, which is more than all threads together need.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn one_arena() {
    // SAFETY: it changes a parameter of the C library's allocator, nothing that was allocated.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn one_arena() {}

/// Checks that `bytes` of memory are left. Called before many small allocations whose number
/// depends on an image.
///
/// # Errors
/// They are not left.
pub fn expect_room(what: &'static str, bytes: u64) -> Result<(), NoMemory> {
    memory::fallibly(what, bytes, || {
        memmap2::MmapMut::map_anon(usize::try_from(bytes).ok()?.max(1)).ok()
    })
    .map(drop)
}

/// Gives one piece back to the system. False if none is left.
pub(crate) fn open() -> bool {
    for slot in &HELD {
        let piece = slot.swap(null_mut(), Ordering::AcqRel);
        if !piece.is_null() {
            // SAFETY: `refill` mapped it at this length, it has not been used, and the slot no
            // longer names it.
            let _ = unsafe { munmap(piece, PIECE) };
            tell();
            return true;
        }
    }
    false
}

/// Refills the reserve. True if it is full.
fn refill() -> bool {
    if !WANTED.load(Ordering::Relaxed) {
        return true;
    }
    for slot in &HELD {
        if !slot.load(Ordering::Relaxed).is_null() {
            continue;
        }
        // SAFETY: a mapping of its own, which no other memory is part of.
        let piece = unsafe {
            mmap_anonymous(null_mut(), PIECE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let Ok(piece) = piece else { break };
        if slot.compare_exchange(null_mut(), piece, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: mapped above, and no other reference to it exists.
            let _ = unsafe { munmap(piece, PIECE) };
        }
    }
    tell();
    !memory::is_short()
}

fn tell() {
    let left = HELD.iter().filter(|slot| !slot.load(Ordering::Relaxed).is_null()).count();
    memory::set_state(left < PIECES, left < PIECES / 2);
}

/// Tries until it succeeds or the reserve is used up.
pub(crate) fn insist<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        if let Some(got) = attempt() {
            return Some(got);
        }
        if memory::may_fail() || !open() {
            // Another thread may have given the last piece back just now.
            return attempt();
        }
    }
}

thread_local! {
    /// The latest allocation of this thread was refused.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// An allocator that uses the reserve before a small allocation fails.
///
/// After a refusal it tries a large block first, and gives that back. If mimalloc 3 gets no memory
/// for the lists of a new thread, it returns null; it then reads through a null pointer at that
/// thread's next small allocation, but makes the lists at its next large one.
pub struct Reserving<A>(pub A);

/// Above the largest block that mimalloc takes from the lists (`MI_SMALL_SIZE_MAX`).
const LARGE: Layout = Layout::new::<[u8; 4096]>();

impl<A: GlobalAlloc> Reserving<A> {
    #[inline]
    fn insist_on(&self, mut attempt: impl FnMut() -> *mut u8) -> *mut u8 {
        if !REFUSED.get() {
            let block = attempt();
            if !block.is_null() {
                return block;
            }
            REFUSED.set(true);
        }
        self.insist_after_refusal(attempt)
    }

    #[cold]
    fn insist_after_refusal(&self, mut attempt: impl FnMut() -> *mut u8) -> *mut u8 {
        let block = insist(|| {
            // SAFETY: the layout is not empty, and the block goes back with the layout it was made
            // with.
            unsafe {
                let large = self.0.alloc(LARGE);
                if large.is_null() {
                    return None;
                }
                self.0.dealloc(large, LARGE);
            }
            Some(attempt()).filter(|block| !block.is_null())
        });
        REFUSED.set(block.is_none());
        block.unwrap_or(null_mut())
    }
}

// SAFETY: every block comes from `A` and goes back to it, with the layout it was made with; trying
// again after null is allowed.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserving<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocations::note(layout.size());
        // SAFETY: as the caller promises.
        self.insist_on(|| unsafe { self.0.alloc(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocations::note(layout.size());
        // SAFETY: as the caller promises.
        self.insist_on(|| unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        allocations::note(new_size);
        // SAFETY: as the caller promises; a call that returns null has left the block alone.
        self.insist_on(|| unsafe { self.0.realloc(block, layout, new_size) })
    }
}
