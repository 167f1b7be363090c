//! Whether the block to which a pointer leads is another's: its summary names a pointer, and that
//! one leads to it, too. A summary alone proves nothing.

use crate::format::inode::InlineFlags;
use crate::format::units::BlockAddr;
use crate::format::{Inode, NodeFooter, Summary, node};
use crate::raw::RawVolume;
use crate::raw::tree::Pointer;

/// What is wrong with the block of a pointer.
pub(super) fn fault(volume: &RawVolume, pointer: Pointer) -> Option<String> {
    // What is newer than the checkpoint has no summaries yet.
    if !pointer.addr.is_address() || volume.newer.contains_key(&pointer.holder) {
        return None;
    }
    let is_anothers = match volume.owner(pointer.addr)? {
        (true, _) => is_node(volume, pointer.addr),
        (false, owner) => {
            let is_own =
                owner.nid == pointer.holder && u32::from(owner.ofs_in_node) == pointer.slot;
            !is_own && leads_to(volume, owner, pointer.addr)
        }
    };
    let block = pointer.block;
    is_anothers.then(|| format!("block {block} is a block of another owner, and was copied"))
}

/// The block of a pointer that is reserved but has no block, as `fallocate` leaves it: it lies at
/// this address, beside that of the next pointer, is in use, and its summary names the pointer.
pub(super) fn lost(volume: &RawVolume, pointer: Pointer, addr: Option<u32>) -> Option<BlockAddr> {
    let addr = BlockAddr(addr?);
    let is_newer = volume.newer.contains_key(&pointer.holder);
    if is_newer || !volume.layout.in_main(addr) || volume.is_valid(addr) != Some(true) {
        return None;
    }
    let (is_node, owner) = volume.owner(addr)?;
    let is_current =
        volume.nat(pointer.holder).is_ok_and(|(_, entry)| entry.version == owner.version);
    let is_own = owner.nid == pointer.holder && u32::from(owner.ofs_in_node) == pointer.slot;
    (!is_node && is_current && is_own).then_some(addr)
}

/// Is the block a node that the NAT leads to?
fn is_node(volume: &RawVolume, addr: BlockAddr) -> bool {
    let Ok(image) = volume.block(addr.pba()) else { return false };
    let footer = NodeFooter::read(&image);
    footer.is_possible(&volume.layout) && volume.node_address(footer.nid) == Ok(addr)
}

/// Does the pointer that a summary names lead to the block?
fn leads_to(volume: &RawVolume, owner: Summary, addr: BlockAddr) -> bool {
    let is_current = volume.nat(owner.nid).is_ok_and(|(_, entry)| {
        !entry.is_free() && entry.version == owner.version && !volume.newer.contains_key(&entry.ino)
    });
    let Some((_, image)) = volume.node(owner.nid).ok().filter(|_| is_current) else {
        return false;
    };
    let footer = NodeFooter::read(&image);
    if !footer.is_inode() {
        let mut pointers = node::data_pointers(&image).skip(owner.ofs_in_node.into());
        return pointers.next() == Some(addr);
    }
    let Ok(record) = Inode::decode(&image, owner.nid, volume.layout.features) else {
        return false;
    };
    let mut pointers = record.data_pointers(&image).skip(owner.ofs_in_node.into());
    let is_inline = record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY);
    !is_inline && pointers.next() == Some(addr)
}
