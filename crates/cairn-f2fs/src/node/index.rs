//! Nodes by nid, in shards, and the choice of nodes to evict.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::ranked_lock::{Condvar, Mutex, Rank};

use super::block::Node;
use crate::error::Result;
use crate::format::Nid;

enum Slot {
    /// A thread is reading it.
    Loading,
    Ready(Arc<Node>),
}

#[derive(Default)]
struct Shard {
    slots: HashMap<Nid, Slot>,
    /// Candidates for eviction in the order of the clock's hand, the oldest first.
    clock: VecDeque<Nid>,
}

struct LockedShard {
    shard: Mutex<Shard>,
    loaded: Condvar,
}

pub(super) struct Index(Vec<LockedShard>);

impl Shard {
    fn insert(&mut self, nid: Nid, node: Arc<Node>) {
        self.slots.insert(nid, Slot::Ready(node));
        self.clock.push_back(nid);
        if self.clock.len() > 2 * self.slots.len() + Index::SHARDS {
            // Nodes that were removed and added again are here twice.
            let Self { slots, clock } = self;
            let mut seen = std::collections::HashSet::new();
            clock.retain(|nid| slots.contains_key(nid) && seen.insert(*nid));
        }
    }
}

impl Index {
    pub(super) const SHARDS: usize = 64;

    pub(super) fn new() -> Self {
        let shard = |_| LockedShard {
            shard: Mutex::new(Rank::Cache, Shard::default()),
            loaded: Condvar::new(),
        };
        Self((0..Self::SHARDS).map(shard).collect())
    }

    fn shard(&self, nid: Nid) -> &LockedShard {
        &self.0[nid.index() % Self::SHARDS]
    }

    /// The node. `load` makes it if it is not in memory. Concurrent callers load it once.
    pub(super) fn get_or_load(
        &self,
        nid: Nid,
        load: impl FnOnce() -> Result<Arc<Node>>,
    ) -> Result<Arc<Node>> {
        let shard = self.shard(nid);
        {
            let mut locked = shard.shard.lock();
            loop {
                match locked.slots.get(&nid) {
                    Some(Slot::Ready(node)) => {
                        node.used.store(true, Relaxed);
                        return Ok(node.clone());
                    }
                    Some(Slot::Loading) => shard.loaded.wait(&mut locked),
                    None => break,
                }
            }
            locked.slots.insert(nid, Slot::Loading);
        }
        let loaded = load();
        let mut locked = shard.shard.lock();
        match &loaded {
            Ok(node) => locked.insert(nid, node.clone()),
            Err(_) => drop(locked.slots.remove(&nid)),
        }
        drop(locked);
        shard.loaded.notify_all();
        loaded
    }

    /// Adds a node that was made.
    pub(super) fn insert(&self, nid: Nid, node: Arc<Node>) {
        let shard = self.shard(nid);
        let mut locked = shard.shard.lock();
        // A pointer of a damaged tree may name a free nid: the walk that follows it reports that.
        while matches!(locked.slots.get(&nid), Some(Slot::Loading)) {
            shard.loaded.wait(&mut locked);
        }
        assert!(!locked.slots.contains_key(&nid), "node {nid} is made twice");
        locked.insert(nid, node);
    }

    pub(super) fn peek(&self, nid: Nid) -> Option<Arc<Node>> {
        match self.shard(nid).shard.lock().slots.get(&nid) {
            Some(Slot::Ready(node)) => Some(node.clone()),
            _ => None,
        }
    }

    /// Takes a node out; true if it was there.
    pub(super) fn remove(&self, nid: Nid) -> bool {
        matches!(self.shard(nid).shard.lock().slots.remove(&nid), Some(Slot::Ready(_)))
    }

    /// Evicts up to `most` nodes of one shard by second chance: nodes without references that were
    /// not used since the hand last passed. The dirty list has references to dirty nodes. Subtracts
    /// each examined node from `looks`.
    pub(super) fn evict(&self, shard: usize, most: u64, looks: &mut u64) -> u64 {
        let Some(mut locked) = self.0[shard].shard.try_lock() else { return 0 };
        let mut count = 0;
        for _ in 0..locked.clock.len() {
            if count >= most || *looks == 0 {
                break;
            }
            *looks -= 1;
            let Some(nid) = locked.clock.pop_front() else { break };
            let Some(Slot::Ready(node)) = locked.slots.get(&nid) else { continue };
            if Arc::strong_count(node) == 1 && !node.used.swap(false, Relaxed) {
                locked.slots.remove(&nid);
                count += 1;
            } else {
                locked.clock.push_back(nid);
            }
        }
        count
    }
}
