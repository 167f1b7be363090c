//! [`Written`]: the pages of a block device that were written past the page cache.
//!
//! **Why.** Linux drops the cached pages of a range before it writes the range directly. Of a block
//! device it does not drop them a second time when an asynchronous write is done, and after a
//! synchronous one it cannot drop a page whose neighbours in a large folio were changed meanwhile.
//! Readahead for a small read nearby, or a read by any other program, can bring a page in while it
//! is being written, with its old bytes: it would keep them. So what was written directly is read
//! directly, whatever the page cache has.
//!
//! **The rules.** A page that is in the set is neither read through the page cache nor changed in
//! part there (a change of a part needs the rest of the page). Reads and partial writes of it are
//! direct. A page enters before a direct write of all of it begins. It leaves when all of it has
//! been written through the page cache: what is cached is then what was written. The caller of a
//! device does not write the same bytes twice at once, so a page does not enter and leave at once.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of a part that is made when a page of it enters: a page of memory for each.
const PART: u64 = 64 * WORDS as u64;
const WORDS: usize = 512;

type Part = Box<[AtomicU64; WORDS]>;

/// A set of pages.
pub(super) struct Written {
    page: u64,
    parts: Vec<OnceLock<Part>>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Written(pages of {} bytes)", self.page)
    }
}

impl Written {
    /// No page of a device of `size` bytes. `page`: a power of two.
    pub(super) fn new(size: u64, page: u64) -> Self {
        let parts = size.div_ceil(page).div_ceil(PART);
        let parts = usize::try_from(parts).expect("as many parts as memory has");
        Self { page, parts: std::iter::repeat_with(OnceLock::new).take(parts).collect() }
    }

    /// Bytes of a page.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// Is a page in the set that has one of these bytes?
    pub(super) fn has(&self, bytes: Range<u64>) -> bool {
        self.words(bytes.start / self.page..bytes.end.div_ceil(self.page))
            .any(|(word, mask)| word.is_some_and(|word| word.load(Ordering::Acquire) & mask != 0))
    }

    /// Whole pages enter.
    pub(super) fn enter(&self, bytes: Range<u64>) {
        let pages = self.whole(&bytes);
        for part in pages.start / PART..pages.end.div_ceil(PART) {
            self.parts[part as usize]
                .get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
        }
        for (word, mask) in self.words(pages) {
            word.expect("the part is made").fetch_or(mask, Ordering::AcqRel);
        }
    }

    /// Whole pages leave.
    pub(super) fn leave(&self, bytes: Range<u64>) {
        for (word, mask) in self.words(self.whole(&bytes)) {
            // Most are not there.
            if let Some(word) = word.filter(|word| word.load(Ordering::Acquire) & mask != 0) {
                word.fetch_and(!mask, Ordering::AcqRel);
            }
        }
    }

    fn whole(&self, bytes: &Range<u64>) -> Range<u64> {
        debug_assert!(bytes.start.is_multiple_of(self.page) && bytes.end.is_multiple_of(self.page));
        bytes.start / self.page..bytes.end / self.page
    }

    /// The words that have these pages, where they are made, and the pages' bits in them.
    fn words(&self, pages: Range<u64>) -> impl Iterator<Item = (Option<&AtomicU64>, u64)> {
        let words = pages.start / 64..pages.end.div_ceil(64);
        words.map(move |number| {
            let first = pages.start.max(number * 64) - number * 64;
            let end = pages.end.min(number * 64 + 64) - number * 64;
            let mask = (u64::MAX >> (64 - (end - first))) << first;
            let part = self.parts[(number / WORDS as u64) as usize].get();
            (part.map(|part| &part[(number % WORDS as u64) as usize]), mask)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn pages_enter_and_leave_as_in_a_model() {
        let pages = 2 * PART + 100;
        let set = Written::new(pages * PAGE, PAGE);
        let mut model = BTreeSet::new();
        let mut state = 7_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for round in 0..3000 {
            let start = random(pages);
            let end = (start + 1 + random(if round % 50 == 0 { 40_000 } else { 200 })).min(pages);
            let bytes = start * PAGE..end * PAGE;
            match random(3) {
                0 => {
                    set.enter(bytes);
                    model.extend(start..end);
                }
                1 => {
                    set.leave(bytes);
                    model.retain(|page| !(start..end).contains(page));
                }
                _ => assert_eq!(set.has(bytes), model.range(start..end).next().is_some()),
            }
        }
        for page in 0..pages {
            assert_eq!(set.has(page * PAGE + 5..page * PAGE + 6), model.contains(&page), "{page}");
        }
    }

    #[test]
    fn the_end_of_a_device_may_be_no_page() {
        let set = Written::new(10 * PAGE + 512, PAGE);
        set.enter(9 * PAGE..10 * PAGE);
        assert!(set.has(9 * PAGE..10 * PAGE + 512) && !set.has(10 * PAGE..10 * PAGE + 512));
        assert!(!set.has(0..9 * PAGE) && !set.has(0..0));
    }
}
