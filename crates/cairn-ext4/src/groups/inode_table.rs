//! The inode tables of groups: which records are initialised, and which hold an inode in use.

use cairn_base::Pba;

use super::{GroupState, GroupTable};
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::inode::is_record_in_use;
use crate::txn::Handle;

impl GroupTable {
    /// Does the record at `index` hold an inode in use, whatever the bitmap says?
    ///
    /// # Errors
    /// The block cannot be read.
    pub(crate) fn has_inode(&self, state: &GroupState, index: u32) -> Result<bool> {
        if index >= self.opened(&state.desc) {
            return Ok(false);
        }
        let place = self.layout.inode_location(index, state.desc.inode_table);
        let image = self.buffers.get(place.pba)?.image();
        Ok(image.get(place.offset..).is_some_and(is_record_in_use))
    }

    /// Records that are initialised, from the first one on.
    fn opened(&self, desc: &GroupDesc) -> u32 {
        let inodes = self.layout.inodes_per_group;
        if !self.layout.features.has_group_checksums() {
            return inodes;
        }
        let untouched = desc.flags.contains(GroupFlags::INODE_UNINIT);
        if untouched { 0 } else { inodes.saturating_sub(desc.itable_unused) }
    }

    /// Makes the records of inodes up to `index` usable: zeroes blocks of the table that were never
    /// used.
    pub(crate) fn open_inode_table(
        &self,
        handle: &Handle,
        number: u32,
        state: &mut GroupState,
        index: u32,
    ) -> Result<()> {
        if !self.layout.features.has_group_checksums() {
            return Ok(());
        }
        let opened = self.opened(&state.desc);
        if index < opened {
            return Ok(());
        }
        let (desc, inodes) = (&mut state.desc, self.layout.inodes_per_group);
        let per_block = self.layout.block_size.checked_div(self.layout.inode_size).unwrap_or(1);
        let last = index.checked_div(per_block).unwrap_or(0);
        let unused = opened.div_ceil(per_block);
        // A zeroed table needs no other block, and this one need not be read: no inode of it is in
        // use.
        let zeroed = desc.flags.contains(GroupFlags::INODE_ZEROED);
        for block in if zeroed { unused.max(last) } else { unused }..=last {
            let buffer = handle.create(Pba(desc.inode_table.get().saturating_add(block.into())))?;
            handle.write(&buffer)?.fill(0);
        }
        desc.itable_unused = inodes.saturating_sub(index).saturating_sub(1);
        self.store(handle, number, desc)
    }
}
