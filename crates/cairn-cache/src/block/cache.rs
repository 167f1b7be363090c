//! [`BufferCache`]: all metadata buffers of a volume.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use cairn_base::Pba;
use cairn_base::ranked_lock::{Condvar, Mutex, Rank};
use cairn_block::{Batch, BlockDevice, BlockDeviceExt, Durability, IoBuf, Request, Result};

use super::image::image_bytes;
use super::{Buffer, Image};
use crate::budget::{Budget, Reclaim, Use};

const SHARDS: usize = 64;
/// Longest single request, in blocks.
const MAX_RUN: usize = 256;

enum Slot {
    /// A thread reads the block.
    Loading,
    Ready(Arc<Buffer>),
}

#[derive(Default)]
struct Shard {
    slots: HashMap<u64, Slot>,
    /// Blocks in the order in which the clock's hand visits them.
    clock: std::collections::VecDeque<u64>,
}

struct LockedShard {
    shard: Mutex<Shard>,
    loaded: Condvar,
}

/// The metadata buffers of a volume.
pub struct BufferCache {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    budget: Arc<Budget>,
    shards: Vec<LockedShard>,
    overlay: HashMap<u64, Image>,
    /// Next shard to evict from.
    hand: AtomicUsize,
    /// Held while buffers are written. Two writes of one buffer that are in flight together could
    /// reach the device in either order. A buffer that is clean must be on the device.
    write_back_lock: Mutex<()>,
}

impl BufferCache {
    /// Creates an empty cache over `device`.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, budget: Arc<Budget>) -> Arc<Self> {
        Self::with_overlay(device, block_size, budget, HashMap::new())
    }

    /// Creates a cache in which the blocks of `overlay` replace those of the device: the journal
    /// was replayed in memory only.
    #[must_use]
    pub fn with_overlay(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
        budget: Arc<Budget>,
        overlay: HashMap<Pba, Image>,
    ) -> Arc<Self> {
        let shard = || LockedShard {
            shard: Mutex::new(Rank::Cache, Shard::default()),
            loaded: Condvar::new(),
        };
        let cache = Arc::new(Self {
            device,
            block_size,
            budget: budget.clone(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            overlay: overlay.into_iter().map(|(pba, image)| (pba.get(), image)).collect(),
            hand: AtomicUsize::new(0),
            write_back_lock: Mutex::new(Rank::BufferWriteback, ()),
        });
        let weak: Weak<dyn Reclaim> = Arc::downgrade(&(cache.clone() as Arc<dyn Reclaim>));
        budget.add_reclaim(weak);
        cache
    }

    /// The device under the cache.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Memory that a buffer takes.
    fn buffer_bytes(&self) -> u64 {
        image_bytes(u64::from(self.block_size))
    }

    fn shard(&self, pba: u64) -> &LockedShard {
        // Metadata blocks are often consecutive: neighbours go to different shards.
        &self.shards[usize::try_from(pba % SHARDS as u64).expect("a remainder of 64 fits")]
    }

    fn offset(&self, pba: u64) -> u64 {
        pba.saturating_mul(u64::from(self.block_size))
    }

    /// The buffer of a block. The block is read if it is not in memory, and only once for
    /// concurrent callers.
    ///
    /// # Errors
    /// The device failed, or the block lies beyond its end.
    pub fn get(&self, pba: Pba) -> Result<Arc<Buffer>> {
        let shard = self.shard(pba.get());
        {
            let mut locked = shard.shard.lock();
            loop {
                match locked.slots.get(&pba.get()) {
                    Some(Slot::Ready(buffer)) => {
                        buffer.used.store(true, Ordering::Relaxed);
                        return Ok(buffer.clone());
                    }
                    Some(Slot::Loading) => shard.loaded.wait(&mut locked),
                    None => {
                        locked.slots.insert(pba.get(), Slot::Loading);
                        break;
                    }
                }
            }
        }
        let image = self.read_image(pba.get());
        self.make_room();
        let mut locked = shard.shard.lock();
        let outcome = match image {
            Ok(image) => Ok(self.insert(&mut locked, pba, image)),
            Err(error) => {
                locked.slots.remove(&pba.get());
                Err(error)
            }
        };
        drop(locked);
        shard.loaded.notify_all();
        outcome
    }

    fn read_image(&self, pba: u64) -> Result<Image> {
        match self.overlay.get(&pba) {
            Some(image) => Ok(image.clone()),
            None => Ok(self.device.read_block(self.offset(pba), self.block_size as usize)?.into()),
        }
    }

    fn insert(&self, shard: &mut Shard, pba: Pba, image: Image) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new(pba, image));
        shard.slots.insert(pba.get(), Slot::Ready(buffer.clone()));
        shard.clock.push_back(pba.get());
        if shard.clock.len() > 2 * shard.slots.len() + SHARDS {
            // A block that was forgotten and read again is in the queue twice.
            let Shard { slots, clock } = shard;
            let mut seen = std::collections::HashSet::new();
            clock.retain(|pba| slots.contains_key(pba) && seen.insert(*pba));
        }
        self.budget.charge(Use::Metadata, self.buffer_bytes());
        buffer
    }

    /// The buffer of a block that was just allocated. It holds zeros; the block is not read.
    #[must_use]
    pub fn create(&self, pba: Pba) -> Arc<Buffer> {
        self.make_room();
        let shard = self.shard(pba.get());
        let mut locked = shard.shard.lock();
        loop {
            match locked.slots.get(&pba.get()) {
                Some(Slot::Ready(buffer)) => {
                    let buffer = buffer.clone();
                    drop(locked);
                    buffer.clear();
                    return buffer;
                }
                Some(Slot::Loading) => shard.loaded.wait(&mut locked),
                None => {
                    let zeros = Image::zeroed(self.block_size as usize);
                    let buffer = self.insert(&mut locked, pba, zeros);
                    buffer.set_verified();
                    return buffer;
                }
            }
        }
    }

    /// The buffer of a block, if it is in memory.
    #[cfg(test)]
    pub(crate) fn peek(&self, pba: Pba) -> Option<Arc<Buffer>> {
        match self.shard(pba.get()).shard.lock().slots.get(&pba.get()) {
            Some(Slot::Ready(buffer)) => Some(buffer.clone()),
            _ => None,
        }
    }

    /// Reads blocks that will be needed soon, in one batch. It is a hint: a later
    /// [`BufferCache::get`] reports an error.
    pub fn prefetch(&self, start: Pba, count: u64) {
        let wanted = (start.get()..start.get().saturating_add(count)).take(MAX_RUN);
        let missing: Vec<u64> =
            wanted.filter(|pba| !self.overlay.contains_key(pba) && self.start_load(*pba)).collect();
        if missing.is_empty() {
            return;
        }
        let request = |pba: &u64| {
            let buf = IoBuf::try_zeroed(self.block_size as usize)?;
            Ok(Request::Read { offset: self.offset(*pba), buf })
        };
        let requests: Result<Vec<Request>> = missing.iter().map(request).collect();
        let read = requests.and_then(|requests| {
            self.device.submit(Batch { requests, durability: Durability::default() }).wait()
        });
        let mut images = read.unwrap_or_default().into_iter();
        for pba in &missing {
            self.make_room();
            let shard = self.shard(*pba);
            let mut locked = shard.shard.lock();
            match images.next() {
                Some(image) => drop(self.insert(&mut locked, Pba(*pba), image.into())),
                None => drop(locked.slots.remove(pba)),
            }
            drop(locked);
            shard.loaded.notify_all();
        }
    }

    fn start_load(&self, pba: u64) -> bool {
        let mut locked = self.shard(pba).shard.lock();
        if locked.slots.contains_key(&pba) {
            return false;
        }
        locked.slots.insert(pba, Slot::Loading);
        true
    }

    /// Drops the buffer of a block that was freed. Its changes are not written.
    pub fn forget(&self, pba: Pba) {
        let mut locked = self.shard(pba.get()).shard.lock();
        if let Some(Slot::Ready(buffer)) = locked.slots.get(&pba.get()) {
            buffer.dirty.store(false, Ordering::Release);
            if Arc::strong_count(buffer) == 1 {
                self.remove(&mut locked, pba.get());
            }
        }
    }

    fn remove(&self, shard: &mut Shard, pba: u64) {
        shard.slots.remove(&pba);
        self.budget.uncharge(Use::Metadata, self.buffer_bytes());
    }

    /// The buffers that [`Buffer::modify_direct`] made dirty, in order of address.
    #[must_use]
    pub fn dirty(&self) -> Vec<Arc<Buffer>> {
        let mut dirty: Vec<Arc<Buffer>> = Vec::new();
        for shard in &self.shards {
            let locked = shard.shard.lock();
            dirty.extend(locked.slots.values().filter_map(|slot| match slot {
                Slot::Ready(buffer) if buffer.dirty.load(Ordering::Acquire) => Some(buffer.clone()),
                _ => None,
            }));
        }
        dirty.sort_by_key(|buffer| buffer.pba());
        dirty
    }

    /// Writes all buffers that [`Buffer::modify_direct`] made dirty, in order of address. It does
    /// not flush the device. When it returns, the buffers that other threads were writing are
    /// written, too.
    ///
    /// # Errors
    /// The first write that failed. Its buffers stay dirty.
    pub fn write_back(&self) -> Result<()> {
        let _one_at_a_time = self.write_back_lock.lock();
        let dirty = self.dirty();
        for run in dirty.chunk_by(|a, b| a.pba().get() + 1 == b.pba().get()) {
            for part in run.chunks(MAX_RUN) {
                self.write_run(part)?;
            }
        }
        Ok(())
    }

    fn write_run(&self, run: &[Arc<Buffer>]) -> Result<()> {
        let mut bufs = Vec::with_capacity(run.len());
        for buffer in run {
            // The bit is cleared before the image is taken: a later change makes the buffer dirty
            // again.
            buffer.dirty.store(false, Ordering::Release);
            bufs.push(Bytes::from_owner(buffer.image()));
        }
        let offset = self.offset(run[0].pba().get());
        let batch = Batch {
            requests: vec![Request::Write { offset, bufs }],
            durability: Durability::default(),
        };
        self.device.submit(batch).wait().map(drop).inspect_err(|_| {
            for buffer in run {
                buffer.dirty.store(true, Ordering::Release);
            }
        })
    }

    /// Makes room for one more buffer. The caller holds no lock.
    fn make_room(&self) {
        self.budget.make_room(self.buffer_bytes());
    }

    /// Evicts buffers of one shard by second chance: those without a holder that were not used
    /// since the hand passed them.
    fn evict_from(&self, shard: &LockedShard, want: u64) -> u64 {
        let Some(mut locked) = shard.shard.try_lock() else { return 0 };
        let mut freed = 0;
        for _ in 0..locked.clock.len() {
            if freed >= want {
                break;
            }
            let Some(pba) = locked.clock.pop_front() else { break };
            let Some(Slot::Ready(buffer)) = locked.slots.get(&pba) else { continue };
            let idle = Arc::strong_count(buffer) == 1 && !buffer.dirty.load(Ordering::Acquire);
            if idle && !buffer.used.swap(false, Ordering::Relaxed) {
                self.remove(&mut locked, pba);
                freed += self.buffer_bytes();
            } else {
                locked.clock.push_back(pba);
            }
        }
        freed
    }
}

impl Reclaim for BufferCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        // The first round may only clear the marks of used buffers; the second one evicts.
        for _ in 0..2 * SHARDS {
            if freed >= bytes {
                break;
            }
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            freed += self.evict_from(&self.shards[next], bytes - freed);
        }
        freed
    }
}
