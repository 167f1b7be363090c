//! Marks the blocks and inodes of the journal's fast commits in use.

use cairn_base::{Ino, Pba, bitmap};

use super::{Space, no_space};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::txn::Handle;

impl Space {
    /// Marks blocks in use in `handle`. Blocks that are in use stay so.
    ///
    /// # Errors
    /// No file can have the range, a group is damaged, or the device failed.
    pub(crate) fn adopt_blocks(&self, handle: &Handle, start: Pba, count: u64) -> Result<()> {
        let layout = &self.inner.layout;
        if !layout.contains(start, count) || self.inner.groups.is_metadata(start, count) {
            let (what, value) = ("block", start.get());
            let (group, bit) = layout.group_and_offset(start).unwrap_or((u32::MAX, u32::MAX));
            tracing::error!(what, value, count, "not a file's blocks");
            return Err(Corrupt::Bitmap {
                what,
                group,
                bit,
                state: "not a block that a file can have",
            }
            .into());
        }
        let (mut at, end) = (start.get(), start.get() + count);
        while at < end {
            let (group, bit) =
                layout.group_and_offset(Pba(at)).expect("the range lies in the volume");
            let room = u64::from(layout.group_blocks(group) - bit);
            let len = u32::try_from(room.min(end - at)).expect("at most a group");
            self.adopt_in_group(handle, group, bit, len)?;
            at += u64::from(len);
        }
        Ok(())
    }

    fn adopt_in_group(&self, handle: &Handle, number: u32, start: u32, len: u32) -> Result<()> {
        let inner = &self.inner;
        let mut state = inner.groups.group(number).lock();
        if !inner.load(number, &mut state)? {
            return Err(inner.defect.lock().clone().map_or_else(no_space, Error::from));
        }
        let bits = inner.groups.block_bitmap(number, &state)?;
        let (mut at, end) = (start as usize, (start + len) as usize);
        while let Some(from) = bitmap::next_clear(&bits, at, end) {
            at = bitmap::next_set(&bits, from, end).unwrap_or(end);
            // Both lie in a group, whose bits have 32-bit numbers.
            let (first, run) = (from as u32, (at - from) as u32);
            inner.groups.change_blocks(handle, number, &mut state, first, run, true)?;
            if let Some(map) = state.map.as_mut() {
                for bit in (first..first + run).filter(|bit| map.is_free(*bit)).collect::<Vec<_>>()
                {
                    map.take(bit, 1);
                    inner.reservations.remove_free(1);
                }
            }
        }
        Ok(())
    }

    /// Marks an inode's number in use in `handle`, and makes its record usable.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub(crate) fn adopt_inode(&self, handle: &Handle, ino: Ino, directory: bool) -> Result<()> {
        let groups = &self.inner.groups;
        let missing = Corrupt::Inode {
            ino,
            field: "number",
            value: ino.get(),
            problem: "no inode of the volume",
        };
        let (number, index) = self.inner.layout.inode_group(ino).ok_or(missing)?;
        let mut state = groups.group(number).lock();
        let used = bitmap::test(&groups.inode_bitmap(number, &state)?, index as usize);
        if !used {
            groups.change_inode(handle, number, &mut state, index, true, directory)?;
            groups.open_inode_table(handle, number, &mut state, index)?;
        }
        Ok(())
    }
}
