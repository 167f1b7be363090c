//! The reservation that one file keeps ahead of its data, and the list of files that keep one.
//!
//! A sequential writer gets more blocks reserved than it writes, up to [`MAX_AHEAD`] bytes; the
//! rest is kept in [`Reservation`] with the mapping it had before. [`ReservingFiles`] lists these
//! files, so that a writer that finds no space can release their reservations.
//!
//! Locking: a file's reservation has rank Reservations; the list has rank Cache.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::{FileBlock, Pba};

use crate::mapper::{Mapping, Place, Run};
use crate::writeback::Flushable;

/// Most bytes that one file has reserved ahead.
pub(super) const MAX_AHEAD: u64 = 4 << 20;

/// Blocks that a file may write without asking the mapper.
pub(crate) struct Reservation {
    blocks: Range<u64>,
    /// The mapping of the first block, before it was reserved.
    place: Place,
    /// Block after the last write.
    next: u64,
    /// Blocks of consecutive writes up to `next`.
    sequential: u64,
}

impl Reservation {
    pub(crate) fn new() -> Self {
        Self { blocks: 0..0, place: Place::Hole, next: 0, sequential: 0 }
    }

    /// True if no block is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// True if `block` is the last one before the kept blocks.
    pub(super) fn follows(&self, block: u64) -> bool {
        !self.is_empty() && block + 1 == self.blocks.start
    }

    /// Takes up to `asked` blocks off the head, if it begins with `first`.
    pub(super) fn take(&mut self, first: u64, asked: u64) -> Option<Mapping> {
        if self.is_empty() || first != self.blocks.start {
            return None;
        }
        let len = asked.min(self.blocks.end - first);
        let place = advanced(&self.place, len);
        let place = std::mem::replace(&mut self.place, place);
        self.blocks.start += len;
        Some(Mapping { run: Run { start: FileBlock(first), len }, place })
    }

    /// Keeps what was reserved beyond `asked` blocks and shortens the mapping to them. Blocks that
    /// were delayed before are not kept: another write reserved them.
    pub(super) fn keep(&mut self, mapping: &mut Mapping, asked: u64) {
        let Run { start, len } = mapping.run;
        mapping.run.len = len.min(asked);
        if len > asked && !matches!(mapping.place, Place::Delayed | Place::Inline(_)) {
            self.blocks = start.get() + asked..start.get() + len;
            self.place = advanced(&mapping.place, asked);
        }
    }

    /// Records a write and returns the number of blocks to reserve beyond it: 0 unless the write is
    /// sequential.
    pub(super) fn follow(&mut self, first: u64, asked: u64) -> u64 {
        let sequential = first == self.next || first + 1 == self.next;
        let more = if sequential { self.sequential } else { 0 };
        self.sequential = more + asked;
        self.next = first + asked;
        more
    }

    /// Corrects [`Reservation::follow`]: only `len` of the `asked` blocks were reserved. The write
    /// of the rest counts as sequential.
    pub(super) fn shorten(&mut self, asked: u64, len: u64) {
        let short = asked.saturating_sub(len);
        self.next -= short;
        self.sequential -= short;
    }

    /// Forgets the sequence of writes: the next write gets nothing reserved beyond its own blocks.
    pub(super) fn forget_sequence(&mut self) {
        self.sequential = 0;
    }

    /// Empties the reservation. Returns the blocks that it kept, and whether they were a hole
    /// before.
    pub(super) fn clear(&mut self) -> (Range<u64>, bool) {
        (std::mem::replace(&mut self.blocks, 0..0), self.place == Place::Hole)
    }
}

fn advanced(place: &Place, by: u64) -> Place {
    match place {
        Place::Mapped(pba) => Place::Mapped(Pba(pba.get() + by)),
        Place::Unwritten(pba) => Place::Unwritten(Pba(pba.get() + by)),
        other => other.clone(),
    }
}

/// The files of a volume that have blocks reserved ahead of their data.
pub(crate) struct ReservingFiles {
    /// By the address of the file's state.
    files: Mutex<BTreeMap<usize, Weak<dyn Flushable>>>,
    /// End of the shortage of space, in milliseconds of the runtime's clock; 0 if there was none.
    short_until: AtomicU64,
}

impl ReservingFiles {
    pub(crate) fn new() -> Self {
        Self { files: Mutex::new(Rank::Cache, BTreeMap::new()), short_until: AtomicU64::new(0) }
    }

    pub(super) fn insert(&self, file: usize, owner: Weak<dyn Flushable>) {
        self.files.lock().insert(file, owner);
    }

    pub(super) fn remove(&self, file: usize) {
        self.files.lock().remove(&file);
    }

    /// The inodes of these files.
    pub(super) fn owners(&self) -> Vec<Arc<dyn Flushable>> {
        self.files.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Space is short until `until`, in milliseconds of the runtime's clock.
    pub(super) fn set_short_until(&self, until: u64) {
        self.short_until.store(until, Ordering::SeqCst);
    }

    /// End of the shortage of space; 0 if there was none.
    pub(super) fn short_until(&self) -> u64 {
        self.short_until.load(Ordering::SeqCst)
    }
}
