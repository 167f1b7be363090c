//! Who has a file open for writing. This decides whether its mapped pages may use root-reserved
//! blocks.
//!
//! Pages that were changed through a shared mapping come without a sender. But a mapping keeps its
//! handle open, and the kernel writes the pages before it gives the handle back. So one of the
//! handles that are open is the writer's: pages may use root-reserved blocks if all of them belong
//! to users who may.
//!
//! The kernel passes a handle's number back when it is released. Two bits of the number tell how
//! the handle was counted; the volume counts its handles up and never reaches them.
//!
//! Locking: one leaf lock.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The handle writes, and who opened it may use root-reserved blocks.
const ADMITTED: u64 = 1 << 63;
/// The handle writes, and who opened it may not.
const OTHER: u64 = 1 << 62;

#[derive(Default)]
struct Open {
    admitted: u32,
    others: u32,
}

/// The open handles that may write, by node.
#[derive(Default)]
pub(crate) struct Writers {
    open: Mutex<HashMap<u64, Open>>,
}

/// The volume's number of a handle that was counted.
pub(crate) fn plain(handle: u64) -> u64 {
    handle & !(ADMITTED | OTHER)
}

impl Writers {
    /// Counts a handle that writes. Returns the number for the kernel.
    pub(crate) fn opened(&self, node: u64, handle: u64, admitted: bool) -> u64 {
        let mut open = self.open.lock();
        let open = open.entry(node).or_default();
        *(if admitted { &mut open.admitted } else { &mut open.others }) += 1;
        handle | if admitted { ADMITTED } else { OTHER }
    }

    /// A handle is gone. Returns the volume's number of it, and whether it was the last that
    /// writes.
    pub(crate) fn released(&self, node: u64, handle: u64) -> (u64, bool) {
        let mut last = false;
        if handle & (ADMITTED | OTHER) != 0 {
            let mut all = self.open.lock();
            if let Some(open) = all.get_mut(&node) {
                open.admitted -= u32::from(handle & ADMITTED != 0);
                open.others -= u32::from(handle & OTHER != 0);
                last = open.admitted + open.others == 0;
                if last {
                    all.remove(&node);
                }
            }
        }
        (plain(handle), last)
    }

    /// True if this file is open for writing.
    pub(crate) fn has(&self, node: u64) -> bool {
        self.open.lock().contains_key(&node)
    }

    /// True if this file is open for writing, only by users who may use root-reserved blocks.
    pub(crate) fn are_admitted(&self, node: u64) -> bool {
        self.open.lock().get(&node).is_some_and(|open| open.admitted > 0 && open.others == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_without_the_right_is_enough_to_refuse_it() {
        let writers = Writers::default();
        assert!(!writers.are_admitted(7), "no writer is known");
        let root = writers.opened(7, 41, true);
        assert!(writers.are_admitted(7) && !writers.are_admitted(8));
        let user = writers.opened(7, 42, false);
        assert!(!writers.are_admitted(7));
        assert_eq!((plain(root), plain(user)), (41, 42));
        assert_eq!(writers.released(7, user), (42, false));
        assert!(writers.are_admitted(7) && writers.has(7));
        assert_eq!(writers.released(7, 43), (43, false), "a handle that only reads");
        assert_eq!(writers.released(7, root), (41, true));
        assert!(!writers.are_admitted(7) && !writers.has(7));
    }
}
