//! The inodes in memory, by number, with the references that front-ends hold.
//!
//! Invariants: a number has at most one live value; a second loader waits for the first. A value
//! that a thread holds is not evicted. A value with references may be evicted: its count stays, and
//! the next use loads it again. (The kernel keeps a reference to every inode whose name it knows.)
//! Values are dropped outside of the table's locks.
//!
//! Locking: each shard has a mutex, held for map operations and for the `can_evict` callback, never
//! during a load. The callback must not call the table, and should only read atomics or use
//! `try_lock`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_base::Ino;
use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 64;
/// A shard is searched for evictable entries again only when it has grown by this many, or by a
/// quarter of its limit if that is less.
const SCAN_STEP: usize = 16;
/// After a search in vain, so many calls of [`InodeTable::evict`] return at once that each has cost
/// about this many entries.
const LOOKS: usize = 64;

type CanEvict<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

struct Entry<T> {
    /// `None` while it is being loaded.
    value: Option<Arc<T>>,
    references: u64,
    /// It was used since the last search for evictable entries, which then spares it once.
    used: bool,
}

struct Slots<T> {
    /// Sorted, so that a loop over all inodes writes them in the same order in every run.
    entries: BTreeMap<Ino, Entry<T>>,
    /// Numbers of references to evicted values. None is 0.
    evicted: BTreeMap<Ino, u64>,
    /// Number of entries at which the next search is due. It makes a search cost O(1) for each
    /// insertion.
    scan_at: usize,
}

struct Shard<T> {
    slots: Mutex<Slots<T>>,
    loaded: Condvar,
}

/// Result of a search of a shard.
struct Found<T> {
    /// The evicted values, which the caller drops without the lock of the shard.
    victims: Vec<Arc<T>>,
    /// A value was spared because it had been used. Another search may evict it.
    spared: bool,
}

/// The inodes in memory.
pub struct InodeTable<T> {
    shards: Vec<Shard<T>>,
    limit_per_shard: AtomicUsize,
    /// The shard at which [`InodeTable::evict`] continues.
    hand: AtomicUsize,
    /// Calls of [`InodeTable::evict`] that return at once.
    rest: AtomicUsize,
    can_evict: CanEvict<T>,
}

impl<T> InodeTable<T> {
    /// Creates a table that evicts values beyond about `limit`, if `can_evict` allows it: those
    /// without references first.
    pub fn new(limit: usize, can_evict: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        let shard = || {
            let (entries, evicted) = (BTreeMap::new(), BTreeMap::new());
            let slots = Mutex::new(Slots { entries, evicted, scan_at: 0 });
            Shard { slots, loaded: Condvar::new() }
        };
        let table = Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            limit_per_shard: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            rest: AtomicUsize::new(0),
            can_evict: Box::new(can_evict),
        };
        table.set_limit(limit);
        table
    }

    /// Changes the limit. The next loads follow it.
    pub fn set_limit(&self, limit: usize) {
        let limit_per_shard = limit.div_ceil(SHARDS).max(1);
        self.limit_per_shard.store(limit_per_shard, Ordering::Relaxed);
        for shard in &self.shards {
            shard.slots.lock().scan_at = limit_per_shard + 1;
        }
    }

    fn shard(&self, ino: Ino) -> &Shard<T> {
        // Consecutive numbers are often used together: they go to different shards.
        let index = usize::try_from(ino.get() % SHARDS as u64).expect("a remainder of 64 fits");
        &self.shards[index]
    }

    /// The value if it is in memory. Waits for a load in progress.
    pub fn get(&self, ino: Ino) -> Option<Arc<T>> {
        let shard = self.shard(ino);
        let mut slots = shard.slots.lock();
        loop {
            let entry = slots.entries.get_mut(&ino)?;
            entry.used = true;
            if let Some(value) = &entry.value {
                return Some(value.clone());
            }
            shard.loaded.wait(&mut slots);
        }
    }

    /// The value, which is loaded if it is not in memory. One of several concurrent callers loads
    /// it, and the others wait. After a failed load the next caller tries.
    ///
    /// # Errors
    /// The error of `load`.
    pub fn get_or_try_insert<E>(
        &self,
        ino: Ino,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let shard = self.shard(ino);
        {
            let mut slots = shard.slots.lock();
            loop {
                match slots.entries.get_mut(&ino) {
                    None => break,
                    Some(Entry { value: Some(value), used, .. }) => {
                        *used = true;
                        return Ok(value.clone());
                    }
                    Some(_) => shard.loaded.wait(&mut slots),
                }
            }
            let references = slots.evicted.remove(&ino).unwrap_or(0);
            slots.entries.insert(ino, Entry { value: None, references, used: true });
        }
        let mut loading = Loading { shard, ino, value: None };
        let value = Arc::new(load()?);
        loading.value = Some(value.clone());
        drop(loading);
        self.evict_some(shard);
        Ok(value)
    }

    /// Takes a reference and returns the number of references. `None` if the entry was
    /// [removed](InodeTable::remove).
    pub fn acquire(&self, ino: Ino) -> Option<u64> {
        let mut slots = self.shard(ino).slots.lock();
        let entry = slots.entries.get_mut(&ino)?;
        entry.references += 1;
        Some(entry.references)
    }

    /// Drops `count` references and returns the number that remain; 0 for an unknown number.
    pub fn release(&self, ino: Ino, count: u64) -> u64 {
        let mut slots = self.shard(ino).slots.lock();
        if let Some(entry) = slots.entries.get_mut(&ino) {
            entry.references = entry.references.saturating_sub(count);
            return entry.references;
        }
        let Some(references) = slots.evicted.get_mut(&ino) else { return 0 };
        *references = references.saturating_sub(count);
        let left = *references;
        if left == 0 {
            slots.evicted.remove(&ino);
        }
        left
    }

    /// Number of references.
    pub fn references(&self, ino: Ino) -> u64 {
        let slots = self.shard(ino).slots.lock();
        match slots.entries.get(&ino) {
            Some(entry) => entry.references,
            None => slots.evicted.get(&ino).copied().unwrap_or(0),
        }
    }

    /// The inode numbers with references.
    pub fn referenced(&self) -> Vec<Ino> {
        let held = |slots: &Slots<T>| {
            let held = slots.entries.iter().filter(|(_, entry)| entry.references > 0);
            held.map(|(ino, _)| *ino).chain(slots.evicted.keys().copied()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| held(&shard.slots.lock())).collect()
    }

    /// Removes an entry whatever its references, because the inode was deleted. Returns its value
    /// if that is in memory. Waits for a load in progress.
    pub fn remove(&self, ino: Ino) -> Option<Arc<T>> {
        let shard = self.shard(ino);
        let mut slots = shard.slots.lock();
        slots.evicted.remove(&ino);
        while slots.entries.get(&ino)?.value.is_none() {
            shard.loaded.wait(&mut slots);
        }
        slots.entries.remove(&ino).and_then(|entry| entry.value)
    }

    /// Calls `visit` for every loaded value. No lock is held during the call.
    pub fn for_each(&self, mut visit: impl FnMut(Ino, &Arc<T>)) {
        for shard in &self.shards {
            let values: Vec<_> = {
                let slots = shard.slots.lock();
                slots
                    .entries
                    .iter()
                    .filter_map(|(ino, entry)| Some((*ino, entry.value.clone()?)))
                    .collect()
            };
            for (ino, value) in &values {
                visit(*ino, value);
            }
        }
    }

    /// Number of values in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.slots.lock().entries.len()).sum()
    }

    /// True if no value is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Evicts all values that may be evicted (memory pressure, unmount).
    pub fn shrink(&self) {
        for shard in &self.shards {
            // The first round clears the marks of recent use.
            for _ in 0..2 {
                let found = self.collect(&mut shard.slots.lock(), 0);
                drop(found);
            }
        }
    }

    /// Evicts about `count` values that were not used since the last search, and returns how many
    /// were evicted. It passes over shards that other threads use, and does not search each time
    /// while it finds nothing.
    pub fn evict(&self, count: usize) -> usize {
        let rest = self
            .rest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| rest.checked_sub(1));
        if rest.is_ok() {
            return 0;
        }
        let (share, mut evicted, mut spared) = (count.div_ceil(SHARDS), 0, false);
        let mut searched = 0;
        // Two rounds: if all values were used, the first one only clears their marks.
        for round in 0..2 * SHARDS {
            if evicted >= count || (round == SHARDS && !spared) {
                break;
            }
            let next = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(mut slots) = self.shards[next].slots.try_lock() else { continue };
            searched += slots.entries.len();
            let keep = slots.entries.len().saturating_sub(share);
            let found = self.collect(&mut slots, keep);
            drop(slots);
            evicted += found.victims.len();
            spared |= found.spared;
        }
        if evicted == 0 {
            // Files that are open or dirty: the next search would look at all of them again.
            self.rest.store(searched / LOOKS, Ordering::Relaxed);
        }
        evicted
    }

    fn evict_some(&self, shard: &Shard<T>) {
        let limit = self.limit_per_shard.load(Ordering::Relaxed);
        let found = {
            let mut slots = shard.slots.lock();
            if slots.entries.len() < slots.scan_at {
                return;
            }
            let found = self.collect(&mut slots, limit);
            let left = slots.entries.len();
            let step = SCAN_STEP.min((limit / 4).max(1));
            // A large shard whose entries cannot be evicted is searched less often.
            slots.scan_at = left.max(limit) + step + left.saturating_sub(limit) / 4;
            found
        };
        drop(found);
    }

    /// Evicts unused values until `keep` entries remain: those without references, then those with
    /// them. It spares values used since the last search.
    fn collect(&self, slots: &mut Slots<T>, keep: usize) -> Found<T> {
        let Slots { entries, evicted, .. } = slots;
        let (mut victims, mut spared) = (Vec::new(), false);
        for referenced in [false, true] {
            let mut over = entries.len().saturating_sub(keep);
            entries.retain(|ino, entry| {
                let Some(value) = &entry.value else { return true };
                let idle = over > 0
                    && (entry.references > 0) == referenced
                    && Arc::strong_count(value) == 1;
                if idle && std::mem::take(&mut entry.used) {
                    spared = true;
                    return true;
                }
                if !idle || !(self.can_evict)(value) {
                    return true;
                }
                over -= 1;
                if referenced {
                    evicted.insert(*ino, entry.references);
                }
                victims.extend(entry.value.take());
                false
            });
        }
        Found { victims, spared }
    }
}

/// Ends a load, including one that failed or panicked: stores the value or removes the entry, and
/// wakes the waiters.
struct Loading<'a, T> {
    shard: &'a Shard<T>,
    ino: Ino,
    value: Option<Arc<T>>,
}

impl<T> Drop for Loading<'_, T> {
    fn drop(&mut self) {
        let mut slots = self.shard.slots.lock();
        match self.value.take() {
            Some(value) => {
                let entry = slots.entries.get_mut(&self.ino).expect("a slot that loads stays");
                entry.value = Some(value);
            }
            None => {
                let references =
                    slots.entries.remove(&self.ino).map_or(0, |entry| entry.references);
                if references > 0 {
                    slots.evicted.insert(self.ino, references);
                }
            }
        }
        drop(slots);
        self.shard.loaded.notify_all();
    }
}

#[cfg(test)]
mod tests;
