//! Shrinks the room for attributes in the inode. Those that no longer fit move to the block.

use cairn_base::units::as_index;

use super::{Content, XattrEdit, XattrStore, XattrView, names};
use crate::error::Result;
use crate::format::xattr::{
    self, OwnedAttribute, XattrLocation, encoded_len, entry_len, fits, padded,
};
use crate::txn::Handle;

/// Which attributes stay in the inode and which move, before the change.
pub(crate) struct Shrunk {
    content: Content,
    len: usize,
}

impl Shrunk {
    /// True if an attribute moves, which changes blocks.
    #[must_use]
    pub(crate) const fn moves(&self) -> bool {
        self.content.block_changed
    }
}

impl XattrStore<'_> {
    /// Plans how the attributes in an inode fit `len` bytes. `None` if they do not, even with the
    /// block.
    ///
    /// # Errors
    /// The attributes are damaged.
    pub(crate) fn plan_shrink(&self, view: XattrView<'_>, len: usize) -> Result<Option<Shrunk>> {
        let mut content = self.content(view)?;
        while !fits(len, XattrLocation::Inode, &content.inode) && !content.inode.is_empty() {
            let missing = encoded_len(XattrLocation::Inode, &content.inode).saturating_sub(len);
            let Some(at) = best_to_move(&content.inode, missing, self.room_in_block(&content))
            else {
                return Ok(None);
            };
            let attribute = content.inode.remove(at);
            content.block.push(attribute);
            content.block_changed = true;
        }
        Ok(Some(Shrunk { content, len }))
    }

    fn room_in_block(&self, content: &Content) -> usize {
        as_index(self.block_size).saturating_sub(encoded_len(XattrLocation::Block, &content.block))
    }

    /// Moves attributes by the plan. Returns the new bytes of the inode and the change of its space
    /// in units of 512 bytes.
    ///
    /// # Errors
    /// No block is free, or a block could not be changed. The inode has not changed.
    pub(crate) fn shrink(
        &self,
        handle: &Handle,
        edit: &mut XattrEdit<'_>,
        plan: Shrunk,
    ) -> Result<(Vec<u8>, i64)> {
        let Shrunk { mut content, len } = plan;
        let change = if content.block_changed {
            self.store_block(handle, edit, &mut content.block, None)?.change
        } else {
            0
        };
        let mut area = vec![0; len];
        xattr::encode_inode(&mut area, &content.inode);
        Ok((area, change))
    }
}

/// The smallest attribute that makes enough room, or the largest that fits the block. Inline
/// contents stay.
fn best_to_move(all: &[OwnedAttribute], missing: usize, room: usize) -> Option<usize> {
    let size = |attribute: &OwnedAttribute| {
        entry_len(attribute.name.len()).saturating_add(padded(attribute.value_here().len()))
    };
    let can =
        |attribute: &OwnedAttribute| attribute.index != names::SYSTEM && size(attribute) <= room;
    let sizes =
        || all.iter().enumerate().filter(|(_, one)| can(one)).map(|(at, one)| (size(one), at));
    let enough = sizes().filter(|(size, _)| *size >= missing).min();
    enough.or_else(|| sizes().max()).map(|(_, at)| at)
}
