//! Space promised ahead of sequential writers, so that one question serves many small writes.
//!
//! Who writes in a row is promised as much again as it has written in that row, up to [`MOST`]; what is left of it is
//! kept here with what was there before, and the next write takes its part without asking. What is not used goes back
//! with every write-back, change of shape and question about space, and as soon as anybody finds no space.
//!
//! Invariant: blocks kept here hold no cached data that is dirty or being written, and are not asked for by anybody else.
//! Locking: rank PROMISES, held while the mapper promises or takes back; so whoever finds nothing kept may ask for the
//! same blocks. A writer has inode.data alone besides; giving back needs no other lock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::{FileBlock, Pba};

use super::index::FileState;
use super::mapping::{BufferedMode, Via};
use super::{CacheError, FileCache, PageCache};
use crate::mapper::{FileMapper, Mapping, Place, Run};

/// Bytes promised ahead at most.
const MOST: u64 = 4 << 20;
/// How long nobody is promised more than it asks for after space was short.
const SHORTAGE: Duration = Duration::from_secs(1);

/// What one file may write without asking.
pub(crate) struct Promised {
    blocks: Range<u64>,
    /// What was at the first of them.
    place: Place,
    /// Where the last write ended, and how many blocks were written in a row before it.
    next: u64,
    row: u64,
}

impl Promised {
    pub(crate) fn new() -> Self {
        Self { blocks: 0..0, place: Place::Hole, next: 0, row: 0 }
    }

    /// The head of what is kept, if that is asked for.
    fn take(&mut self, first: u64, asked: u64) -> Option<Mapping> {
        if self.blocks.is_empty() || first != self.blocks.start {
            return None;
        }
        let len = asked.min(self.blocks.end - first);
        let place = advanced(&self.place, len);
        let place = std::mem::replace(&mut self.place, place);
        self.blocks.start += len;
        Some(Mapping { run: Run { start: FileBlock(first), len }, place })
    }

    /// Keeps what was promised beyond `asked` blocks. What others have been promised is not kept: it is not ours to give.
    fn keep(&mut self, mapping: &mut Mapping, asked: u64) {
        let Run { start, len } = mapping.run;
        mapping.run.len = len.min(asked);
        if len > asked && !matches!(mapping.place, Place::Delayed | Place::Inline(_)) {
            self.blocks = start.get() + asked..start.get() + len;
            self.place = advanced(&mapping.place, asked);
        }
    }

    /// Blocks that a write which goes on at `first` is worth having promised beside its own.
    fn follow(&mut self, first: u64, asked: u64) -> u64 {
        let goes_on = first == self.next || first + 1 == self.next;
        let more = if goes_on { self.row } else { 0 };
        self.row = more + asked;
        self.next = first + asked;
        more
    }

    /// Fewer blocks were there to be had at once: who asks for the rest goes on with the row.
    fn shortened(&mut self, asked: u64, len: u64) {
        let short = asked.saturating_sub(len);
        self.next -= short;
        self.row -= short;
    }
}

fn advanced(place: &Place, by: u64) -> Place {
    match place {
        Place::Mapped(pba) => Place::Mapped(Pba(pba.get() + by)),
        Place::Unwritten(pba) => Place::Unwritten(Pba(pba.get() + by)),
        other => other.clone(),
    }
}

/// The files of a volume with promises beyond their data.
pub(crate) struct Promising {
    files: Mutex<BTreeMap<usize, Weak<FileState>>>,
    /// In milliseconds of the runtime's clock: until then, space is short.
    short_until: AtomicU64,
}

impl Promising {
    pub(crate) fn new() -> Self {
        Self { files: Mutex::new(Rank::CACHE, BTreeMap::new()), short_until: AtomicU64::new(0) }
    }
}

impl PageCache {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.runtime.monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// Has all files give back what was promised beyond their data; true if any had something. Call it without a lock
    /// beyond inode.data.
    pub fn give_back_promises(&self) -> bool {
        let files: Vec<_> = self.promising.files.lock().values().filter_map(Weak::upgrade).collect();
        let mut any = false;
        for file in files {
            if let Some(owner) = file.owner.get().and_then(Weak::upgrade) {
                owner.give_back();
                any = true;
            }
        }
        any
    }

    /// As [`PageCache::give_back_promises`], because somebody found no space: for a while nobody is promised more than it
    /// asks for.
    pub fn space_is_short(&self) -> bool {
        let until = self.now_ms().saturating_add(SHORTAGE.as_millis() as u64);
        self.promising.short_until.store(until, Ordering::SeqCst);
        self.give_back_promises()
    }

    fn is_space_short(&self) -> bool {
        let until = self.promising.short_until.load(Ordering::SeqCst);
        until > 0 && self.now_ms() < until
    }
}

impl FileCache {
    /// Has the head of a write promised, or finds that it is.
    pub(super) fn promise(&self, mapper: &dyn FileMapper, first: u64, asked: u64) -> Result<Mapping, CacheError> {
        let file = &self.state;
        if !mapper.promises_ahead() {
            return self.reserve(Via::Cache, mapper, first, asked);
        }
        let mut promised = file.promised.lock();
        let more = promised.follow(first, asked);
        if let Some(mapping) = promised.take(first, asked) {
            promised.shortened(asked, mapping.run.len);
            return Ok(mapping);
        }
        if !promised.blocks.is_empty() && first + 1 == promised.blocks.start {
            // The last block of the write before, written back meanwhile and gone on with.
            return self.reserve(Via::Cache, mapper, first, 1);
        }
        file.give_back(&mut promised, mapper);
        // Listed first: who looks for space finds this file, or this file sees that space is short.
        file.list();
        let more = if file.may_have_more() { more.min(file.most_ahead()) } else { 0 };
        let reserved = self.reserve(Via::Cache, mapper, first, asked + more);
        let kept = reserved.map(|mut mapping| {
            promised.keep(&mut mapping, asked);
            promised.shortened(asked, mapping.run.len);
            mapping
        });
        if promised.blocks.is_empty() {
            file.unlist();
        }
        kept
    }

    /// Gives back what was promised beyond the data. Concurrent writers of the file keep what they have begun to write.
    pub fn give_back(&self, mapper: &dyn FileMapper) {
        let mut promised = self.state.promised.lock();
        self.state.give_back(&mut promised, mapper);
    }

    /// As [`FileCache::give_back`]; the next writes must earn their promises anew.
    pub(crate) fn end_row(&self, mapper: &dyn FileMapper) {
        let mut promised = self.state.promised.lock();
        self.state.give_back(&mut promised, mapper);
        promised.row = 0;
    }
}

impl FileState {
    fn give_back(self: &Arc<Self>, promised: &mut Promised, mapper: &dyn FileMapper) {
        let blocks = std::mem::replace(&mut promised.blocks, 0..0);
        if blocks.is_empty() {
            return;
        }
        if promised.place == Place::Hole {
            mapper.release(Run { start: FileBlock(blocks.start), len: blocks.end - blocks.start });
        }
        self.unlist();
    }

    fn may_have_more(&self) -> bool {
        self.cache.mode() == BufferedMode::Extents && self.owner.get().is_some() && !self.cache.is_space_short()
    }

    fn most_ahead(&self) -> u64 {
        MOST.min(self.cache.budget().limit() / 8) >> self.shift
    }

    fn list(self: &Arc<Self>) {
        self.cache.promising.files.lock().insert(Arc::as_ptr(self).addr(), Arc::downgrade(self));
    }

    fn unlist(self: &Arc<Self>) {
        self.cache.promising.files.lock().remove(&Arc::as_ptr(self).addr());
    }
}
