//! [`flags`]: the flags that say of which form an inode's contents are, as the contents prove them.
//!
//! An extent tree has a header, and contents in the inode have an attribute. Block pointers lie
//! inside the volume, and are as many as the inode says. Where nothing of this decides, the flags
//! stay as they are.

use cairn_base::{Ino, Pba};

use super::{Maps, context, is_reserved};
use crate::format::extent::{NodeView, Site};
use crate::format::features::Incompat;
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::format::xattr::{self, Value, XattrLocation};

/// The flags of the form.
const FORM: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
/// Prefix index and name of the attribute with inline contents.
const INLINE: (u8, &[u8]) = (7, b"data");
/// A target in an inode is shorter.
pub(super) const FAST_SYMLINK: u64 = 60;

/// The flags of an inode, with those of the form as its contents prove them.
pub(crate) fn flags(around: &dyn Maps, ino: Ino, record: &Record) -> InodeFlags {
    let layout = around.layout();
    if is_reserved(layout, ino) {
        return record.flags;
    }
    let mut stored = allowed(layout, context::proved(around, ino, record));
    if stored.contains(InodeFlags::EA_INODE) {
        // No value lies in its inode.
        if !(stored.contains(InodeFlags::INLINE_DATA) && has_attribute(ino, record)) {
            return stored;
        }
        stored.remove(InodeFlags::EA_INODE);
    }
    let (is_tree, others) = (is_tree(ino, record), stored.difference(FORM));
    if is_tree && stored.intersection(FORM) == InodeFlags::EXTENTS {
        return stored;
    }
    let features = &layout.features;
    let has_inline = features.incompat(Incompat::INLINE_DATA);
    let mut possible = stored;
    for (flag, has) in [
        (InodeFlags::INLINE_DATA, has_inline || has_attribute(ino, record)),
        (InodeFlags::EXTENTS, is_tree || features.incompat(Incompat::EXTENTS)),
    ] {
        possible.set(flag, has && stored.contains(flag));
    }
    match (is_tree, has_inline && has_attribute(ino, record)) {
        (true, false) => others | InodeFlags::EXTENTS,
        (false, true) => others | InodeFlags::INLINE_DATA,
        (false, false) if stored.intersects(FORM) => {
            if is_target(record) || has_pointers(around, ino, record) { others } else { possible }
        }
        _ => stored,
    }
}

/// The flags without those that say how contents and names are read, and that the features of the
/// volume do not know: nothing is encrypted without the feature.
fn allowed(layout: &Layout, flags: InodeFlags) -> InodeFlags {
    let needs = [
        (InodeFlags::ENCRYPT, Incompat::ENCRYPT),
        (InodeFlags::CASEFOLD, Incompat::CASEFOLD),
        (InodeFlags::EA_INODE, Incompat::EA_INODE),
    ];
    let missing = needs.into_iter().filter(|(_, feature)| !layout.features.incompat(*feature));
    missing.fold(flags, |flags, (flag, _)| flags.difference(flag))
}

/// `i_block` is the root of an extent tree.
pub(crate) fn is_tree(ino: Ino, record: &Record) -> bool {
    NodeView::parse(&record.block, None, Site { ino, pba: Pba(0) }).is_ok()
}

/// The record has the attribute with contents in the inode.
pub(crate) fn has_attribute(ino: Ino, record: &Record) -> bool {
    xattr::decode(&record.extra, XattrLocation::Inode, ino)
        .is_ok_and(|all| all.iter().any(|attribute| (attribute.index, attribute.name) == INLINE))
}

/// The contents that the record holds.
pub(super) fn inline_contents(ino: Ino, record: &Record) -> Vec<u8> {
    let attributes = xattr::decode(&record.extra, XattrLocation::Inode, ino).unwrap_or_default();
    let tail = attributes.iter().find_map(|attribute| match attribute.value {
        Value::Here(value) if (attribute.index, attribute.name) == INLINE => Some(value),
        _ => None,
    });
    [record.block.as_slice(), tail.unwrap_or_default()].concat()
}

/// `i_block` is the target of a symbolic link.
fn is_target(record: &Record) -> bool {
    let len = record.block.iter().take_while(|byte| **byte != 0).count();
    let is_short = record.size > 0 && record.size < FAST_SYMLINK;
    record.is_symlink() && is_short && u64::try_from(len) == Ok(record.size)
}

/// `i_block` has pointers to as many blocks as the inode has.
fn has_pointers(around: &dyn Maps, ino: Ino, record: &Record) -> bool {
    let layout = around.layout();
    let slots = indirect::decode_inode(&record.block);
    if layout.cluster_bits != 0 || !slots.iter().all(|slot| is_possible(layout, *slot)) {
        return false;
    }
    let mut plain = record.clone();
    plain.flags.remove(FORM);
    let Some(blocks) = around.pointed(ino, &plain) else { return false };
    let blocks = blocks.saturating_add(u64::from(record.file_acl != Pba(0)));
    let units = layout.block_bits.saturating_sub(9);
    blocks > 0 && record.blocks_512 == blocks << units
}

fn is_possible(layout: &Layout, slot: u32) -> bool {
    slot == 0 || layout.contains(Pba(slot.into()), 1)
}
