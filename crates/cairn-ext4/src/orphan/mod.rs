//! Orphan records: inodes that recovery deletes or truncates, because they are unlinked but open,
//! or being truncated.
//!
//! The records are in the orphan file if the volume has one with a free slot, otherwise on the list
//! that begins in the superblock and continues in each inode's deletion time. The links of the list
//! are here and not in the inodes: an inode gets its link when it is written, so a change of its
//! neighbour needs no other inode in memory.
//!
//! Locking: one lock (rank Allocator), taken before buffers, with or without an inode's `state`
//! lock.

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

pub(crate) mod cleanup;
mod file;
mod list;

pub(crate) use file::{OrphanFile, Slot};
pub(crate) use list::OrphanList;

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::sabotage::Safeguard;

use crate::error::Result;
use crate::store::Store;
use crate::txn::Handle;

/// The place of an orphan record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrphanRecord {
    /// A slot of the orphan file.
    Slot(file::Slot),
    /// The list.
    List,
}

struct Inner {
    records: HashMap<Ino, OrphanRecord>,
    list: OrphanList,
    file: Option<OrphanFile>,
}

/// Orphans that the mount has found, with their slots.
pub(crate) type FoundSlots = Vec<(Ino, Slot)>;

/// All orphans of a volume.
pub(crate) struct Orphans(Mutex<Inner>);

impl Orphans {
    /// No orphans. `file` is the volume's orphan file.
    #[must_use]
    pub(crate) fn new(file: Option<OrphanFile>) -> Self {
        Self(Mutex::new(
            Rank::Allocator,
            Inner { records: HashMap::new(), list: OrphanList::default(), file },
        ))
    }

    /// Adds a record in `handle`. True if the caller must write the inode, whose link has changed.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub(crate) fn add(&self, store: &Store, handle: &Handle, ino: Ino) -> Result<bool> {
        let mut inner = self.0.lock();
        if inner.records.contains_key(&ino) || Safeguard::Orphan.is_off() {
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

    /// Removes a record in `handle`. True if the inode's deletion time holds a link, which is now
    /// invalid.
    ///
    /// # Errors
    /// A block cannot be read, or the journal was aborted.
    pub(crate) fn remove(&self, store: &Store, handle: &Handle, ino: Ino) -> Result<bool> {
        let mut inner = self.0.lock();
        match inner.records.get(&ino).copied() {
            None => Ok(false),
            Some(OrphanRecord::Slot(slot)) => {
                inner
                    .file
                    .as_mut()
                    .unwrap_or_else(|| panic!("a slot belongs to the orphan file"))
                    .release(store, handle, slot)?;
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

    /// Calls `store` with the inode's link, if it is on the list. The link does not change
    /// meanwhile.
    pub(crate) fn with_link<R>(&self, ino: Ino, store: impl FnOnce(Option<u32>) -> R) -> R {
        let inner = self.0.lock();
        match inner.list.next_of(ino) {
            Some(next) => store(Some(next)),
            None => {
                drop(inner);
                store(None)
            }
        }
    }

    /// True if the inode has an orphan record.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.0.lock().records.contains_key(&ino)
    }

    /// True if there is no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().records.is_empty()
    }

    /// Adds the records that the mount has found: slots of the file, and the list from its head.
    pub(crate) fn adopt(&self, slots: Vec<(Ino, file::Slot)>, list: Vec<Ino>) {
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
