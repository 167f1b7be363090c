//! The data pointer that a summary names.

use std::ops::Deref;

use cairn_vfs::FileKind;

use super::inode::InlineFlags;
use super::path::NodeKind;
use super::{BlockAddr, Features, Inode, Nid, NodeFooter, node};
use crate::corrupt::Corrupt;

/// Flags of inodes without pointers.
const INLINE: InlineFlags = InlineFlags::DATA.union(InlineFlags::DENTRY);

/// Where the data pointer of this number is in a node of this kind, in bytes; `None` if the node
/// has no such pointer. Of a direct node the image is not needed.
///
/// # Errors
/// The node is an inode that is impossible.
pub(crate) fn place<I: Deref<Target = [u8]>>(
    image: impl FnOnce() -> I,
    (kind, ino): (NodeKind, Nid),
    slot: u16,
    features: Features,
) -> Result<Option<usize>, Corrupt> {
    let index = usize::from(slot);
    match kind {
        NodeKind::Inode => {
            let record = Inode::decode(&image(), ino, features)?;
            let is_slot = has_pointers(&record) && u32::from(slot) < record.address_slots();
            Ok(is_slot.then(|| record.data_pointer_at(slot.into())))
        }
        NodeKind::Direct if index < node::POINTERS => Ok(Some(node::data_pointer_at(index))),
        // The words of an indirect node are nids.
        _ => Ok(None),
    }
}

/// Does the inode have data pointers? In others there are contents or a device number in their
/// place.
fn has_pointers(record: &Inode) -> bool {
    let has_blocks =
        matches!(record.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
    has_blocks && !record.inline.intersects(INLINE)
}

/// Where the data pointer of this number leads; `None` if the node has no such pointer.
///
/// # Errors
/// As [`place`].
pub(crate) fn data_pointer(
    image: &[u8],
    footer: &NodeFooter,
    slot: u16,
    features: Features,
) -> Result<Option<BlockAddr>, Corrupt> {
    let kind = match (footer.is_inode(), NodeKind::at(footer.offset)) {
        (true, _) => NodeKind::Inode,
        (false, Some(NodeKind::Direct)) => NodeKind::Direct,
        (false, _) => return Ok(None),
    };
    let at = place(|| image, (kind, footer.nid), slot, features)?;
    Ok(at.and_then(|at| address_at(image, at)))
}

/// The address at a place that [`place`] has found.
#[must_use]
pub(crate) fn address_at(image: &[u8], at: usize) -> Option<BlockAddr> {
    let word = image.get(at..).and_then(<[u8]>::first_chunk).copied();
    word.map(u32::from_le_bytes).map(BlockAddr)
}

#[cfg(test)]
mod tests {
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
    /// Contents, names and device numbers lie where other inodes have pointers.
    #[test]
    fn an_inode_with_other_contents_has_no_pointers() {
        let (ino, at) = (Nid(9), 3);
        let forms = [
            (FileKind::Regular, InlineFlags::empty(), true),
            (FileKind::Directory, InlineFlags::XATTR, true),
            (FileKind::Symlink, InlineFlags::empty(), true),
            (FileKind::Regular, InlineFlags::DATA, false),
            (FileKind::Regular, InlineFlags::DATA.union(InlineFlags::DATA_EXIST), false),
            (FileKind::Symlink, InlineFlags::DATA, false),
            (FileKind::Directory, InlineFlags::XATTR.union(InlineFlags::DENTRY), false),
            (FileKind::CharDevice, InlineFlags::empty(), false),
            (FileKind::BlockDevice, InlineFlags::empty(), false),
            (FileKind::Fifo, InlineFlags::empty(), false),
            (FileKind::Socket, InlineFlags::empty(), false),
        ];
        for (kind, inline, has_pointers) in forms {
            let mut block = vec![0; BLOCK_SIZE];
            let mut record = Inode::new(kind, 0o644, Features::empty(), 0);
            record.inline = inline;
            record.encode_into(&mut block);
            record.set_data_pointer(&mut block, at.into(), BlockAddr(77));
            let footer = NodeFooter { nid: ino, ino, ..NodeFooter::default() };
            let found = data_pointer(&block, &footer, at, Features::empty()).unwrap();
            let right = has_pointers.then_some(BlockAddr(77));
            assert_eq!(found, right, "{kind:?} {inline:?}");
        }
    }
}
