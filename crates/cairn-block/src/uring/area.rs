//! Memory whose pages can be exchanged with those of other memory.
//!
//! The kernel keeps the address of an entry's payload, and looks its pages up for each request. So
//! the pages that it has filled can be taken away, and others put in their place, without a copy:
//! `mremap` moves page tables. Areas begin and end where a page table does, so one table entry is
//! moved instead of one for each page.
//!
//! Every address remains mapped at any time (`MREMAP_DONTUNMAP`), because a mapping of another
//! thread in a gap would be destroyed by the next move.

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use cairn_base::memory::{self, NoMemory};

/// What one page table maps.
const TABLE: usize = 2 << 20;

/// Private memory of a fixed length. It takes memory from the system where it is touched.
pub struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its mapping, and hands out references by the rules of the language.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// The system has no room for them.
    pub fn new(len: usize) -> Result<Self, NoMemory> {
        let mapped = len.next_multiple_of(TABLE);
        let start = memory::fallibly("requests", mapped as u64, || map(mapped))?;
        Ok(Self { start, len })
    }

    fn mapped(&self) -> usize {
        self.len.next_multiple_of(TABLE)
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Moves the pages of `self` to `empty`, and those of `spare` here. Returns the pages of `self`
    /// and an area with no pages. `None` if the system refuses it; then nothing is moved, and the
    /// other areas are gone.
    ///
    /// A limit of the address space can make the second of two moves fail: not to be used with one.
    pub(super) fn exchange(&mut self, spare: Self, empty: Self) -> Option<(Self, Self)> {
        if self.mapped() != spare.mapped() || self.mapped() != empty.mapped() {
            return None;
        }
        if !self.move_to(&empty) {
            // The system may have removed what was there.
            std::mem::forget(empty);
            return None;
        }
        let mark = (self.start.addr().get() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self[..8].copy_from_slice(&mark.to_ne_bytes());
        if !spare.move_to(self) && !self.map_again() && self[..8] != mark.to_ne_bytes() {
            // What another thread has mapped here in between would be overwritten by the kernel.
            std::process::abort();
        }
        Some((empty, spare))
    }

    /// Moves its pages to another area, in place of what is there. Nobody may refer to either.
    fn move_to(&self, to: &Self) -> bool {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both areas own their mappings, of the same length, and the caller has both for
        // itself alone. What was at the target is gone, and zeros are here.
        let moved = unsafe {
            libc::mremap(
                self.start.as_ptr().cast(),
                self.mapped(),
                self.mapped(),
                flags,
                to.start.as_ptr(),
            )
        };
        moved != libc::MAP_FAILED
    }

    /// Maps new memory here, if nothing is.
    fn map_again(&self) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: it replaces no mapping.
        let mapped =
            unsafe { libc::mmap(self.start.as_ptr().cast(), self.mapped(), access, flags, -1, 0) };
        mapped != libc::MAP_FAILED
    }
}

impl Deref for Area {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is that long, initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Area {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        unmap(self.start.as_ptr(), self.mapped());
    }
}

/// New memory that begins at a multiple of [`TABLE`].
fn map(len: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, to which nothing refers.
    let all = unsafe { libc::mmap(null_mut(), len + TABLE, access, flags, -1, 0) };
    if all == libc::MAP_FAILED {
        return None;
    }
    let all = all.cast::<u8>();
    let before = all.align_offset(TABLE);
    unmap(all, before);
    let start = all.wrapping_add(before);
    unmap(start.wrapping_add(len), TABLE - before);
    // SAFETY: it is mapped here. Huge pages would take memory that no request uses; it is only
    // advice.
    unsafe { libc::madvise(start.cast(), len, libc::MADV_NOHUGEPAGE) };
    NonNull::new(start)
}

/// Removes a mapping to which nothing refers.
fn unmap(start: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller owns these addresses. Refused, they stay mapped, which harms nobody.
        unsafe { libc::munmap(start.cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1 << 20;

    fn filled(byte: u8) -> Area {
        let mut area = Area::new(LEN).unwrap();
        area.fill(byte);
        area
    }

    #[test]
    fn pages_change_places_and_addresses_stay() {
        let (mut area, mut spare, mut empty) = (filled(1), filled(2), Area::new(LEN).unwrap());
        let address = area.address();
        for round in 0..100_u8 {
            area.fill(round);
            spare.fill(round + 100);
            let (taken, left) = area.exchange(spare, empty).unwrap();
            assert_eq!(area.address(), address);
            assert!(taken.iter().all(|byte| *byte == round));
            assert!(area.iter().all(|byte| *byte == round + 100));
            assert!(left.iter().all(|byte| *byte == 0));
            (spare, empty) = (taken, left);
        }
    }

    #[test]
    fn areas_of_other_lengths_are_not_exchanged() {
        let mut area = filled(1);
        assert!(area.exchange(Area::new(4 * LEN).unwrap(), Area::new(LEN).unwrap()).is_none());
        assert!(area.iter().all(|byte| *byte == 1));
    }
}
