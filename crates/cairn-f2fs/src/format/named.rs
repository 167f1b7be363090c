//! The data pointer that a summary names.

use super::inode::InlineFlags;
use super::{BlockAddr, Features, Inode, NodeFooter, node};
use crate::corrupt::Corrupt;

/// Flags of inodes without pointers.
const INLINE: InlineFlags = InlineFlags::DATA.union(InlineFlags::DENTRY);

/// Where the data pointer of this number leads; `None` if the node has no such pointer.
///
/// # Errors
/// The node is an inode that is impossible.
pub(crate) fn data_pointer(
    image: &[u8],
    footer: &NodeFooter,
    slot: u16,
    features: Features,
) -> Result<Option<BlockAddr>, Corrupt> {
    if !footer.is_inode() {
        let is_slot = usize::from(slot) < node::POINTERS;
        return Ok(is_slot.then(|| node::data_pointer(image, slot.into())));
    }
    let record = Inode::decode(image, footer.nid, features)?;
    let has_none = record.inline.intersects(INLINE) || u32::from(slot) >= record.address_slots();
    Ok((!has_none).then(|| record.data_pointer(image, slot.into())))
}
