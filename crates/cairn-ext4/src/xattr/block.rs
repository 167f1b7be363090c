//! The attribute block: reads it, writes it, copies a shared one, and drops it.

use std::sync::Arc;

use cairn_base::{Ino, Pba};
use cairn_cache::block::Buffer;

use super::{XattrEdit, XattrStore};
use crate::error::Result;
use crate::format::xattr::{self, OwnedAttribute, OwnedValue};
use crate::space::Freed;
use crate::txn::Handle;

/// Result of storing a block.
pub(super) struct Stored {
    /// Change of the inode's space, in 512-byte units.
    pub(super) change: i64,
    /// Other inodes still use the old block and everything that it refers to.
    pub(super) left_to_others: bool,
}

impl XattrStore<'_> {
    /// Reads and checks an attribute block.
    pub(super) fn load_block(&self, ino: Ino, pba: Pba) -> Result<Arc<Buffer>> {
        let buffer = self.buffers.get(pba)?;
        if !buffer.is_verified() {
            xattr::verify_block(&buffer.image(), pba, self.checksum, ino)?;
            buffer.set_verified();
        }
        Ok(buffer)
    }

    fn block_units(&self) -> i64 {
        (self.block_size / 512).cast_signed().into()
    }

    /// Stores `attributes` as the inode's block: in place, in a new block, or by dropping the
    /// block. `removed` is the attribute that was in the block before.
    pub(super) fn store_block(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        attributes: &mut [OwnedAttribute],
        removed: Option<&OwnedAttribute>,
    ) -> Result<Stored> {
        let old = *edit.file_acl;
        let refcount = if old == Pba(0) {
            0
        } else {
            xattr::refcount(&self.load_block(edit.ino, old)?.image())
        };
        let left_to_others = refcount > 1;
        if attributes.is_empty() {
            let change = if old == Pba(0) { 0 } else { self.leave_block(handle, edit, &[])? };
            return Ok(Stored { change, left_to_others });
        }
        if refcount == 1 {
            let buffer = self.load_block(edit.ino, old)?;
            self.write_block(handle, &buffer, attributes)?;
            return Ok(Stored { change: 0, left_to_others });
        }
        let pba = self.source.allocate_block(handle, edit.goal)?;
        let buffer = handle.create(pba)?;
        self.write_block(handle, &buffer, attributes)?;
        if left_to_others {
            self.retain_copied(handle, edit, old, attributes, removed)?;
            self.drop_reference(handle, edit.ino, old)?;
        }
        *edit.file_acl = pba;
        Ok(Stored { change: if old == Pba(0) { self.block_units() } else { 0 }, left_to_others })
    }

    fn write_block(
        &self,
        handle: &Handle,
        buffer: &Arc<Buffer>,
        attributes: &mut [OwnedAttribute],
    ) -> Result<()> {
        let mut bytes = handle.write(buffer)?;
        xattr::encode_block(&mut bytes, attributes);
        xattr::seal_block(&mut bytes, buffer.pba(), self.checksum);
        Ok(())
    }

    /// Adds references of the copied block to every value inode that the shared block refers to.
    fn retain_copied(
        &self,
        handle: &Handle,
        edit: &XattrEdit<'_>,
        old: Pba,
        copied: &[OwnedAttribute],
        removed: Option<&OwnedAttribute>,
    ) -> Result<()> {
        let Some(values) = self.values else { return Ok(()) };
        let buffer = self.load_block(edit.ino, old)?;
        let image = buffer.image();
        let before = xattr::decode(&image, xattr::XattrLocation::Block, edit.ino)?;
        for attribute in
            before.iter().map(OwnedAttribute::from).filter(|attribute| Some(attribute) != removed)
        {
            if let (OwnedValue::Inode { ino, .. }, true) =
                (&attribute.value, copied.contains(&attribute))
            {
                values.retain(handle, *ino)?;
            }
        }
        Ok(())
    }

    /// Drops the inode's block. The last user frees it together with the value inodes of
    /// `attributes`.
    pub(super) fn leave_block(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        attributes: &[OwnedAttribute],
    ) -> Result<i64> {
        let pba = std::mem::take(edit.file_acl);
        let refcount = xattr::refcount(&self.load_block(edit.ino, pba)?.image());
        if refcount > 1 {
            self.drop_reference(handle, edit.ino, pba)?;
        } else {
            for attribute in attributes {
                // The caller has counted its space.
                self.release_value(handle, attribute)?;
            }
            self.source.free(handle, pba, 1, Freed::Metadata)?;
        }
        Ok(self.block_units().saturating_neg())
    }

    fn drop_reference(&self, handle: &Handle, ino: Ino, pba: Pba) -> Result<()> {
        let buffer = self.load_block(ino, pba)?;
        let mut bytes = handle.write(&buffer)?;
        let count = xattr::refcount(&bytes);
        assert!(count > 1, "the last reference to block {pba} frees it");
        xattr::set_refcount(&mut bytes, count.saturating_sub(1));
        xattr::seal_block(&mut bytes, pba, self.checksum);
        Ok(())
    }
}
