//! The orphan list: `s_last_orphan` of the superblock, then the deletion time of each inode.

use std::collections::HashMap;

use cairn_base::Ino;
use cairn_base::units::stored;

use crate::error::Result;
use crate::store::Store;
use crate::txn::Handle;

/// The links of the list, in memory. 0 ends it.
#[derive(Default)]
pub(crate) struct OrphanList {
    head: u32,
    /// Next and previous of each member.
    links: HashMap<u32, (u32, u32)>,
}

fn number(ino: Ino) -> u32 {
    stored(ino.get())
}

impl OrphanList {
    /// The list as read from the disk, head first.
    pub(crate) fn adopt(members: Vec<Ino>) -> Self {
        let mut list = Self::default();
        for ino in members.into_iter().rev() {
            list.link(number(ino));
        }
        list
    }

    fn link(&mut self, ino: u32) {
        if let Some((_, previous)) = self.links.get_mut(&self.head) {
            *previous = ino;
        }
        self.links.insert(ino, (self.head, 0));
        self.head = ino;
    }

    /// Adds `ino` as the head. The caller writes the inode, with [`OrphanList::next_of`] as its
    /// link.
    ///
    /// # Errors
    /// The superblock cannot be read, or the journal was aborted.
    pub(crate) fn push(&mut self, store: &Store, handle: &Handle, ino: Ino) -> Result<()> {
        store.superblock.set_last_orphan(store, handle, number(ino))?;
        self.link(number(ino));
        Ok(())
    }

    /// Removes `ino` and rewrites the link of the member before it.
    ///
    /// # Errors
    /// The superblock or a record cannot be read, or the journal was aborted.
    pub(crate) fn remove(&mut self, store: &Store, handle: &Handle, ino: Ino) -> Result<()> {
        let Some((next, previous)) = self.links.get(&number(ino)).copied() else { return Ok(()) };
        if previous == 0 {
            store.superblock.set_last_orphan(store, handle, next)?;
            self.head = next;
        } else {
            store.patch_deletion_time(handle, Ino(u64::from(previous)), next)?;
            if let Some((link, _)) = self.links.get_mut(&previous) {
                *link = next;
            }
        }
        if let Some((_, back)) = self.links.get_mut(&next) {
            *back = previous;
        }
        self.links.remove(&number(ino));
        Ok(())
    }

    /// The member after `ino`; 0 if it is the last. `None` if `ino` is not on the list.
    pub(crate) fn next_of(&self, ino: Ino) -> Option<u32> {
        self.links.get(&number(ino)).map(|(next, _)| *next)
    }
}
