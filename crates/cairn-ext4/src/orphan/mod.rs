//! Inodes that must be dealt with after a crash: unlinked but still open, or being truncated.
//!
//! They stand in the orphan file where the volume has one and it has room, else on the list that starts in the
//! superblock and goes on in each inode's deletion time. The list's links are kept here, not in the inodes: an
//! in-memory inode asks for its link when it is stored, so a neighbour's change never meets a stale copy.
//!
//! Locking: one lock (rank ALLOCATOR), taken with or without an inode's `state` lock held, before buffers.

pub(crate) mod cleanup;
mod file;
mod list;

pub use file::{OrphanFile, Slot};
pub use list::OrphanList;

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};

use crate::error::Result;
use crate::store::Store;
use crate::txn::Handle;

/// Where one orphan is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrphanRecord {
    /// Slot of the orphan file.
    Slot(file::Slot),
    /// On the list.
    List,
}

struct Inner {
    records: HashMap<Ino, OrphanRecord>,
    list: OrphanList,
    file: Option<OrphanFile>,
}

/// Orphans that were found at mount, with their slots.
pub(crate) type FoundSlots = Vec<(Ino, Slot)>;

/// All orphans of a volume.
pub struct Orphans(Mutex<Inner>);

impl Orphans {
    /// No orphans yet; `file` where the volume has an orphan file.
    #[must_use]
    pub fn new(file: Option<OrphanFile>) -> Self {
        Self(Mutex::new(Rank::ALLOCATOR, Inner { records: HashMap::new(), list: OrphanList::default(), file }))
    }

    /// Records an orphan as part of `handle`. Returns true if the inode's record must be stored for it (its link changed).
    pub fn add(&self, store: &Store, handle: &Handle, ino: Ino) -> Result<bool> {
        let mut inner = self.0.lock();
        if inner.records.contains_key(&ino) {
            return Ok(false);
        }
        if let Some(file) = &mut inner.file
            && let Some(slot) = file.take_slot(store, handle, ino)?
        {
            inner.records.insert(ino, OrphanRecord::Slot(slot));
            return Ok(false);
        }
        inner.list.push(store, handle, ino)?;
        inner.records.insert(ino, OrphanRecord::List);
        Ok(true)
    }

    /// Takes an orphan off as part of `handle`. Returns true if the inode's deletion time held a link and is now meaningless.
    pub fn remove(&self, store: &Store, handle: &Handle, ino: Ino) -> Result<bool> {
        let mut inner = self.0.lock();
        match inner.records.get(&ino).copied() {
            None => Ok(false),
            Some(OrphanRecord::Slot(slot)) => {
                inner.file.as_mut().expect("a slot belongs to the orphan file").release(store, handle, slot)?;
                inner.records.remove(&ino);
                Ok(false)
            }
            Some(OrphanRecord::List) => {
                inner.list.remove(store, handle, ino)?;
                inner.records.remove(&ino);
                Ok(true)
            }
        }
    }

    /// Calls `store` with the inode's link if it is on the list; the link cannot change meanwhile.
    pub fn with_link<R>(&self, ino: Ino, store: impl FnOnce(Option<u32>) -> R) -> R {
        let inner = self.0.lock();
        match inner.list.next_of(ino) {
            Some(next) => store(Some(next)),
            None => {
                drop(inner);
                store(None)
            }
        }
    }

    /// True if the inode is recorded as an orphan.
    pub fn contains(&self, ino: Ino) -> bool {
        self.0.lock().records.contains_key(&ino)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.lock().records.is_empty()
    }

    /// Takes over what was found on disk at mount: slots of the file, and the list from its head on.
    pub fn adopt(&self, slots: Vec<(Ino, file::Slot)>, list: Vec<Ino>) {
        let mut inner = self.0.lock();
        for (ino, slot) in slots {
            inner.records.insert(ino, OrphanRecord::Slot(slot));
            if let Some(file) = &mut inner.file {
                file.adopt(slot);
            }
        }
        inner.records.extend(list.iter().map(|ino| (*ino, OrphanRecord::List)));
        inner.list = OrphanList::adopt(list);
    }
}
