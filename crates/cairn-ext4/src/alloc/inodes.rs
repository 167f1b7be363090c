//! The inode allocator.
//!
//! An inode that was freed by a transaction that is not durable is not allocated again, because
//! recovery could restore the old inode.

use std::sync::atomic::Ordering;

use cairn_base::sabotage::Safeguard;
use cairn_base::told::TOLD;
use cairn_base::{Ino, bitmap};

use super::{Space, no_space, orlov};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::layout::inodes::ROOT;
use crate::groups::GroupState;
use crate::txn::Handle;

impl Space {
    /// Allocates an inode in `handle`: a directory by Orlov's rules, other inodes near their
    /// parent. The caller writes the record. The handle changes the inode bitmap, the descriptor,
    /// and sometimes a block of the inode table.
    ///
    /// # Errors
    /// No free inode; see [`Space::pending_free`].
    pub(crate) fn allocate_inode(
        &self,
        handle: &Handle,
        parent: Ino,
        directory: bool,
    ) -> Result<Ino> {
        let inner = &self.inner;
        let near = inner.layout.inode_group(parent).map_or(0, |(group, _)| group);
        let first = if directory {
            orlov::directory_group(&inner.groups, near, parent == ROOT, inner.runtime.random())
        } else {
            near
        };
        for number in orlov::candidates(&inner.layout, first) {
            if let Some(ino) = self.allocate_in_group(handle, number, directory)? {
                return Ok(ino);
            }
        }
        Err(inner.defect.lock().clone().map_or_else(no_space, Error::from))
    }

    fn allocate_in_group(
        &self,
        handle: &Handle,
        number: u32,
        directory: bool,
    ) -> Result<Option<Ino>> {
        let inner = &self.inner;
        let group = inner.groups.group(number);
        if group.free_inodes.load(Ordering::Relaxed) == 0 || inner.is_closed(number) {
            return Ok(None);
        }
        let mut state = group.lock();
        let index = match self.free_index(number, &state) {
            Ok(index) => index,
            Err(Error::Corrupt(defect)) => {
                let what = "no inodes are allocated in this group any more";
                tracing::error!(target: TOLD, %defect, "{what}");
                group.free_inodes.store(0, Ordering::Relaxed);
                inner.note(defect);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(index) = index else { return Ok(None) };
        inner.groups.change_inode(handle, number, &mut state, index, true, directory)?;
        inner.groups.open_inode_table(handle, number, &mut state, index)?;
        Ok(Some(inner.layout.ino(number, index)))
    }

    /// The first index that is neither in use nor pending. The bitmap has no checksum on many
    /// volumes, so the record is asked, too.
    fn free_index(&self, number: u32, state: &GroupState) -> Result<Option<u32>> {
        let layout = &self.inner.layout;
        let used = self.inner.groups.inode_bitmap(number, state)?;
        let from = if number == 0 { layout.first_ino as usize - 1 } else { 0 };
        let end = layout.inodes_per_group as usize;
        let index = match &*state.pending_inodes {
            [] => bitmap::next_clear(&used, from, end),
            pending => bitmap::next_clear_in_both(&used, pending, from, end),
        };
        let index = index.and_then(|index| u32::try_from(index).ok());
        if let Some(bit) = index
            && self.inner.groups.has_inode(state, bit)?
        {
            let state = "is free, but its inode is in use";
            return Err(Corrupt::Bitmap { what: "inode", group: number, bit, state }.into());
        }
        Ok(index)
    }

    /// Frees an inode's number in `handle`. It can be allocated again after the commit.
    ///
    /// # Errors
    /// The number is reserved or already free, or the device or the journal failed.
    pub(crate) fn free_inode(&self, handle: &Handle, ino: Ino, was_directory: bool) -> Result<()> {
        let inner = &self.inner;
        let wrong = |problem| Corrupt::Inode { ino, field: "number", value: ino.get(), problem };
        let (number, index) =
            inner.layout.inode_group(ino).ok_or_else(|| wrong("no inode of the volume"))?;
        if ino.get() < u64::from(inner.layout.first_ino) {
            return Err(wrong("reserved, and cannot be freed").into());
        }
        {
            let mut state = inner.groups.group(number).lock();
            // The checksum is verified before the change, which computes a new one.
            inner.groups.inode_bitmap(number, &state)?;
            inner.groups.change_inode(handle, number, &mut state, index, false, was_directory)?;
            if state.pending_inodes.is_empty() {
                state.pending_inodes = vec![0; inner.layout.inodes_per_group.div_ceil(8) as usize];
            }
            bitmap::set(&mut state.pending_inodes, index as usize);
        }
        inner.pending_inodes.fetch_add(1, Ordering::Relaxed);
        let inner = inner.clone();
        let release = move |durable| {
            if durable {
                let mut state = inner.groups.group(number).lock();
                bitmap::clear(&mut state.pending_inodes, index as usize);
            }
            inner.pending_inodes.fetch_sub(1, Ordering::Relaxed);
        };
        if Safeguard::FreedInodes.is_off() {
            release(true);
        } else {
            handle.on_commit(Box::new(release));
        }
        Ok(())
    }
}
