//! What a summary names: a data pointer, as it is in its node; and which blocks are nodes.

use cairn_vfs::FileKind;

use super::context::{Context, Scratch};
use crate::error::Result;
use crate::format::inode::{Advise, InlineFlags};
use crate::format::node;
use crate::format::path::NodeKind;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};
use crate::format::{Features, Inode, NodeFooter, Summary};

/// A data pointer that a summary names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) pointer: BlockAddr,
    /// The inode that the NAT gives the node with the pointer to.
    pub(super) ino: Nid,
    /// The node's offset in the tree.
    pub(super) offset: u32,
}

/// The pointer that a summary names. None if there is no such pointer, or if it is the mark of a
/// cluster.
///
/// # Errors
/// The device's.
pub(super) fn named(
    context: &Context,
    scratch: &mut Scratch,
    owner: Summary,
) -> Result<Option<Named>> {
    let holder = context.nodes.get(owner.nid);
    let Some(holder) = holder.filter(|holder| holder.version() == owner.version) else {
        return Ok(None);
    };
    let found = context.with_block(scratch, holder.addr(), |image| {
        let pointer = pointer(context.layout.features, image, owner)?;
        let offset = NodeFooter::read(image).offset;
        Some(Named { pointer, ino: holder.ino(), offset })
    })?;
    Ok(found.flatten())
}

/// The inode of an empty pointer that a block was moved from: the block's summary names that one,
/// and the block lies beside the blocks of its neighbours, not of those of the pointer of the same
/// node that leads there now.
///
/// # Errors
/// The device's.
pub(super) fn moved_from(
    context: &Context,
    scratch: &mut Scratch,
    (addr, entry): (BlockAddr, Summary),
    now: Summary,
) -> Result<Option<Nid>> {
    if entry.nid != now.nid {
        return Ok(None);
    }
    let Some(named) = named(context, scratch, entry)? else { return Ok(None) };
    let is_moved = named.pointer == BlockAddr::NULL
        && is_between(context, scratch, addr, entry)?
        && !is_between(context, scratch, addr, now)?
        && !is_cut_off(context, scratch, (named.ino, named.offset, entry.ofs_in_node))?;
    Ok(is_moved.then_some(named.ino))
}

/// Does a block lie beside that of the pointer before this one, or after it?
fn is_between(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
    owner: Summary,
) -> Result<bool> {
    let slot = owner.ofs_in_node;
    let beside = [
        (slot.checked_sub(1), addr.get().checked_sub(1)),
        (slot.checked_add(1), addr.get().checked_add(1)),
    ];
    for (slot, beside) in beside {
        let Some((ofs_in_node, beside)) = slot.zip(beside) else { continue };
        let found = named(context, scratch, Summary { ofs_in_node, ..owner })?;
        if found.is_some_and(|found| found.pointer.get() == beside) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lies a file block behind the end? When that was cut off, its pointer led elsewhere.
///
/// # Errors
/// The device's.
pub(super) fn is_cut_off(
    context: &Context,
    scratch: &mut Scratch,
    (ino, offset, slot): (Nid, u32, u16),
) -> Result<bool> {
    let Some(inode) = context.nodes.inode(ino) else { return Ok(false) };
    let decode = |image: &[u8]| Inode::decode(image, ino, context.layout.features);
    let record = context.with_block(scratch, inode.addr(), decode)?;
    let Some(Ok(record)) = record else { return Ok(false) };
    let first = record.shape().first_block(offset).unwrap_or(u64::MAX);
    let block = first.saturating_add(slot.into());
    let has_end = record.kind == FileKind::Regular && !record.advise.contains(Advise::KEEP_SIZE);
    Ok(has_end && block >= record.size.div_ceil(BLOCK_BYTES))
}

/// As [`named`], in the block of the node.
pub(super) fn pointer(features: Features, image: &[u8], owner: Summary) -> Option<BlockAddr> {
    let footer = NodeFooter::read(image);
    if footer.nid != owner.nid {
        return None;
    }
    let slot = usize::from(owner.ofs_in_node);
    let pointer = match NodeKind::at(footer.offset)? {
        NodeKind::Inode => {
            let record = Inode::decode(image, footer.nid, features).ok()?;
            has_pointers(&record).then(|| record.data_pointers(image).nth(slot))??
        }
        NodeKind::Direct => (slot < node::POINTERS).then(|| node::data_pointer(image, slot))?,
        // What is there are nids, or attributes.
        NodeKind::Indirect | NodeKind::DoubleIndirect | NodeKind::Xattr => return None,
    };
    (pointer != BlockAddr::COMPRESS).then_some(pointer)
}

/// Inline contents and device numbers are in place of pointers.
pub(super) fn has_pointers(record: &Inode) -> bool {
    !record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY)
        && matches!(record.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

/// Is the block a node, as the NAT and its footer say?
///
/// # Errors
/// The device's.
pub(super) fn is_node(context: &Context, scratch: &mut Scratch, addr: BlockAddr) -> Result<bool> {
    if !context.nodes.has_block(addr) {
        return Ok(false);
    }
    let footer = footer(context, scratch, addr)?;
    let node = footer.and_then(|footer| context.nodes.get(footer.nid));
    Ok(node.is_some_and(|node| node.addr() == addr))
}

/// The footer of a block that is a node, or was one. Other blocks rarely look like one.
///
/// # Errors
/// The device's.
pub(super) fn footer(
    context: &Context,
    scratch: &mut Scratch,
    addr: BlockAddr,
) -> Result<Option<NodeFooter>> {
    let footer = context.with_block(scratch, addr, NodeFooter::read)?;
    Ok(footer.filter(|footer| {
        let node = context.nodes.get(footer.nid);
        footer.is_possible(&context.layout) && node.is_some_and(|node| node.ino() == footer.ino)
    }))
}
