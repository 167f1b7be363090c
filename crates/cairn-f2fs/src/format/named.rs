//! The data pointer that a summary names.

use super::inode::InlineFlags;
use super::path::NodeKind;
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
        // The words of an indirect node are nids.
        let is_direct = NodeKind::at(footer.offset) == Some(NodeKind::Direct);
        let is_slot = is_direct && usize::from(slot) < node::POINTERS;
        return Ok(is_slot.then(|| node::data_pointer(image, slot.into())));
    }
    let record = Inode::decode(image, footer.nid, features)?;
    let has_none = record.inline.intersects(INLINE) || u32::from(slot) >= record.address_slots();
    Ok((!has_none).then(|| record.data_pointer(image, slot.into())))
}

#[cfg(test)]
mod tests {
    use super::super::Nid;
    use super::super::node::Marks;
    use super::super::units::BLOCK_SIZE;
    use super::*;

    #[test]
    fn only_direct_nodes_have_data_pointers() {
        let mut block = vec![0; BLOCK_SIZE];
        node::set_data_pointer(&mut block, 7, BlockAddr(77));
        let found = |offset, slot| {
            let (nid, ino) = (Nid(9), Nid(4));
            let next_blkaddr = BlockAddr::NULL;
            let marks = Marks::empty();
            let footer = NodeFooter { nid, ino, marks, offset, cp_ver: 1, next_blkaddr };
            data_pointer(&block, &footer, slot, Features::empty()).unwrap()
        };
        assert_eq!(found(1, 7), Some(BlockAddr(77)));
        assert_eq!(found(1, node::POINTERS as u16), None);
        // The first indirect node.
        assert_eq!(found(3, 7), None);
    }
}
