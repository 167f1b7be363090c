//! The blocks of a directory in memory, on a writable volume.
//!
//! A changed block stays here until a checkpoint has given it a new address and written it. Clean
//! blocks stay while there is memory for them. The key is the block's number in the directory,
//! because its address changes.
//!
//! The blocks count in the volume's budget. If that is short, the least recently used directories
//! lose their clean blocks first ([`DirCaches`]).
//!
//! Locking: a directory's blocks are a leaf lock, held for the copying of one block at most; the
//! queue of directories (rank Cache) comes before it. Contents change only under the directory's
//! `namespace`, alone, under the operation lock.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::units::as_u64;
use cairn_cache::block::{Image, image_bytes};
use cairn_cache::budget::{Budget, Charge, Reclaim, Use};

use crate::format::units::BLOCK_BYTES;

struct Block {
    image: Image,
    dirty: bool,
    /// True if it has its address and is not on the device yet.
    placed: bool,
    #[expect(dead_code, reason = "held, not read")]
    charge: Charge,
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<u64, Block>,
    dirty: usize,
}

/// The blocks of one directory.
struct Blocks {
    state: Mutex<State>,
    /// True if it is in the queue.
    listed: AtomicBool,
    /// True if it was used since memory was last short.
    used: AtomicBool,
}

/// The directories of a volume that have blocks in memory.
pub(crate) struct DirCaches {
    budget: Arc<Budget>,
    queue: Mutex<VecDeque<Weak<Blocks>>>,
}

impl DirCaches {
    /// An empty set. Its blocks are charged to `budget`.
    #[must_use]
    pub(crate) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        let queue = Mutex::new(Rank::Cache, VecDeque::new());
        let caches = Arc::new(Self { budget: budget.clone(), queue });
        let reclaim: Arc<dyn Reclaim> = caches.clone();
        budget.add_reclaim(Arc::downgrade(&reclaim));
        caches
    }

    fn list(&self, blocks: &Arc<Blocks>) {
        if !blocks.listed.swap(true, Relaxed) {
            self.queue.lock().push_back(Arc::downgrade(blocks));
        }
    }
}

impl Reclaim for DirCaches {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        // Two rounds: if all directories were used, the first one only clears their marks.
        let most = self.queue.lock().len().saturating_mul(2);
        for _ in 0..most {
            if freed >= bytes {
                break;
            }
            let Some(oldest) = self.queue.lock().pop_front() else { break };
            let Some(blocks) = oldest.upgrade() else { continue };
            if blocks.used.swap(false, Relaxed) {
                self.queue.lock().push_back(oldest);
                continue;
            }
            blocks.listed.store(false, Relaxed);
            freed = blocks.state.lock().give_up_clean().strict_add(freed);
        }
        freed
    }
}

impl State {
    /// Forgets clean blocks; how many bytes that were.
    fn give_up_clean(&mut self) -> u64 {
        let before = self.blocks.len();
        self.blocks.retain(|_, block| block.dirty || block.placed);
        as_u64(before.strict_sub(self.blocks.len())).strict_mul(image_bytes(BLOCK_BYTES))
    }
}

/// The blocks of one directory that are in memory.
pub(crate) struct DirCache {
    blocks: Arc<Blocks>,
    all: Arc<DirCaches>,
}

impl DirCache {
    /// The empty cache of a directory.
    #[must_use]
    pub(crate) fn new(all: &Arc<DirCaches>) -> Self {
        let state = Mutex::new(Rank::Leaf, State::default());
        let blocks = Blocks { state, listed: AtomicBool::new(false), used: AtomicBool::new(true) };
        Self { blocks: Arc::new(blocks), all: all.clone() }
    }

    fn clean(&self, image: Image) -> Block {
        Block {
            image,
            dirty: false,
            placed: false,
            charge: self.all.budget.hold(Use::Directories, image_bytes(BLOCK_BYTES)),
        }
    }

    /// A block, if it is here.
    #[must_use]
    pub(crate) fn get(&self, block: u64) -> Option<Image> {
        self.blocks.used.store(true, Relaxed);
        self.blocks.state.lock().blocks.get(&block).map(|found| found.image.clone())
    }

    /// The blocks of a range that are here.
    #[must_use]
    pub(crate) fn in_range(&self, range: Range<u64>) -> Vec<u64> {
        self.blocks.state.lock().blocks.range(range).map(|(block, _)| *block).collect()
    }

    /// Keeps a block that was read.
    pub(crate) fn keep(&self, block: u64, image: Image) {
        let kept = self.clean(image);
        self.blocks.state.lock().blocks.entry(block).or_insert(kept);
        self.all.list(&self.blocks);
        if self.all.budget.over() > 0 {
            self.all.budget.make_room(0);
        }
    }

    /// Changes a block. `image` provides it if it is not in memory. `count` counts the dirty blocks
    /// of all directories.
    pub(crate) fn change<R>(
        &self,
        block: u64,
        image: Image,
        count: &AtomicU64,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut state = self.blocks.state.lock();
        let State { blocks, dirty } = &mut *state;
        let entry = blocks.entry(block).or_insert_with(|| self.clean(image));
        if !std::mem::replace(&mut entry.dirty, true) {
            *dirty = dirty.strict_add(1);
            count.fetch_add(1, Relaxed);
        }
        change(entry.image.make_mut())
    }

    /// True if a block has changed since it got its address.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        self.blocks.state.lock().dirty > 0
    }

    /// Blocks that have changed since they got their addresses, in order.
    #[must_use]
    pub(crate) fn dirty(&self) -> Vec<(u64, Image)> {
        let state = self.blocks.state.lock();
        let dirty = state.blocks.iter().filter(|(_, block)| block.dirty);
        dirty.map(|(index, block)| (*index, block.image.clone())).collect()
    }

    /// Marks a block as clean, because it has got its address. It stays in memory until
    /// [`DirCache::written`]. Called with the operation lock held exclusively.
    pub(crate) fn placed(&self, block: u64, count: &AtomicU64) {
        let mut state = self.blocks.state.lock();
        let Some(found) = state.blocks.get_mut(&block) else { return };
        found.placed = true;
        if std::mem::take(&mut found.dirty) {
            state.dirty = state.dirty.strict_sub(1);
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Records that all blocks with addresses are on the device.
    pub(crate) fn written(&self) {
        self.blocks.state.lock().blocks.values_mut().for_each(|block| block.placed = false);
        self.all.list(&self.blocks);
    }

    /// Removes a block that was freed.
    pub(crate) fn remove(&self, block: u64, count: &AtomicU64) {
        let mut state = self.blocks.state.lock();
        if state.blocks.remove(&block).is_some_and(|block| block.dirty) {
            state.dirty = state.dirty.strict_sub(1);
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Forgets all blocks of a deleted directory.
    pub(crate) fn clear(&self, count: &AtomicU64) {
        let mut state = self.blocks.state.lock();
        count.fetch_sub(as_u64(state.dirty), Relaxed);
        *state = State::default();
    }
}
