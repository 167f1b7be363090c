//! Blocks of a directory in memory, on a volume that is written.
//!
//! A block that an operation changes stays here until a checkpoint has given it a new place and written it there; clean ones
//! stay as long as there is room for them. They are found by their place in the directory, not on the volume: that changes.
//!
//! Locking: a leaf lock, held for the copying of one block at most. Contents change only under the directory's `namespace`,
//! alone, inside the gate.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::ranked_lock::{Mutex, Rank};

/// Clean blocks that one directory keeps.
const MOST_CLEAN: usize = 1024;

struct Block {
    image: Arc<[u8]>,
    dirty: bool,
    /// It has its place, and is not on the device yet.
    placed: bool,
}

impl Block {
    const fn clean(image: Arc<[u8]>) -> Self {
        Self { image, dirty: false, placed: false }
    }
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<u64, Block>,
    dirty: usize,
}

/// See the module.
pub struct DirCache(Mutex<State>);

impl Default for DirCache {
    fn default() -> Self {
        Self(Mutex::new(Rank::LEAF, State::default()))
    }
}

impl DirCache {
    /// A block, if it is here.
    #[must_use]
    pub fn get(&self, block: u64) -> Option<Arc<[u8]>> {
        self.0.lock().blocks.get(&block).map(|found| found.image.clone())
    }

    /// The blocks of a range that are here.
    #[must_use]
    pub fn in_range(&self, range: Range<u64>) -> Vec<u64> {
        self.0.lock().blocks.range(range).map(|(block, _)| *block).collect()
    }

    /// Keeps a block that was read.
    pub fn keep(&self, block: u64, image: Arc<[u8]>) {
        let mut state = self.0.lock();
        if state.blocks.len() - state.dirty >= MOST_CLEAN {
            state.blocks.retain(|_, block| block.dirty || block.placed);
        }
        state.blocks.entry(block).or_insert(Block::clean(image));
    }

    /// Changes a block; `image` is what it is where it is not here. `count` counts dirty blocks of all directories.
    pub fn change<R>(&self, block: u64, image: Arc<[u8]>, count: &AtomicU64, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut state = self.0.lock();
        let State { blocks, dirty } = &mut *state;
        let entry = blocks.entry(block).or_insert(Block::clean(image));
        if !std::mem::replace(&mut entry.dirty, true) {
            *dirty += 1;
            count.fetch_add(1, Relaxed);
        }
        change(Arc::make_mut(&mut entry.image))
    }

    /// Has any block changed since it got its place?
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.lock().dirty > 0
    }

    /// Blocks that have changed since they got their places, in order.
    #[must_use]
    pub fn dirty(&self) -> Vec<(u64, Arc<[u8]>)> {
        let state = self.0.lock();
        let dirty = state.blocks.iter().filter(|(_, block)| block.dirty);
        dirty.map(|(index, block)| (*index, block.image.clone())).collect()
    }

    /// A block has got its place as it is, and stays here until [`DirCache::written`]. Called with the gate closed.
    pub fn placed(&self, block: u64, count: &AtomicU64) {
        let mut state = self.0.lock();
        let Some(found) = state.blocks.get_mut(&block) else { return };
        found.placed = true;
        if std::mem::take(&mut found.dirty) {
            state.dirty -= 1;
            count.fetch_sub(1, Relaxed);
        }
    }

    /// All blocks that had their places are on the device.
    pub fn written(&self) {
        self.0.lock().blocks.values_mut().for_each(|block| block.placed = false);
    }

    /// A block is no more.
    pub fn remove(&self, block: u64, count: &AtomicU64) {
        let mut state = self.0.lock();
        if state.blocks.remove(&block).is_some_and(|block| block.dirty) {
            state.dirty -= 1;
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Forgets everything: the directory is no more.
    pub fn clear(&self, count: &AtomicU64) {
        let mut state = self.0.lock();
        count.fetch_sub(state.dirty as u64, Relaxed);
        *state = State::default();
    }
}
