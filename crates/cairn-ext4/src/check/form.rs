//! [`flags`]: the flags that say of which form an inode's contents are, as the contents prove them.
//!
//! An extent tree has a header, and contents in the inode have an attribute. Block pointers lie
//! inside the volume, and are as many as the inode says. Where nothing of this decides, the flags
//! stay as they are.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::{Ino, Pba};

use super::map;
use super::state::State;
use super::visitor::{Fault, Run, Visitor};
use crate::format::extent::{NodeView, Site};
use crate::format::features::Incompat;
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;
use crate::format::xattr::{self, XattrLocation};

/// The flags of the form.
const FORM: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
/// Prefix index and name of the attribute with inline contents.
const INLINE: (u8, &[u8]) = (7, b"data");
/// A target in an inode is shorter.
const FAST_SYMLINK: u64 = 60;
/// Blocks of pointers that are read at most.
const MOST_NODES: u32 = 64;

/// The flags of an inode, with those of the form as its contents prove them.
pub(super) fn flags(state: &State, ino: Ino, record: &Record) -> InodeFlags {
    let stored = record.flags;
    let is_left = state.is_reserved(ino) && ino != inodes::ROOT;
    if is_left || stored.contains(InodeFlags::EA_INODE) {
        return stored;
    }
    let (is_tree, others) = (is_tree(ino, record), stored.difference(FORM));
    note(state, ino, record, is_tree);
    if is_tree && stored.intersection(FORM) == InodeFlags::EXTENTS {
        return stored;
    }
    let features = &state.layout.features;
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
            if is_target(record) || has_pointers(state, ino, record) { others } else { possible }
        }
        _ => stored,
    }
}

/// Counts inodes that prove that the volume has a feature which is missing.
fn note(state: &State, ino: Ino, record: &Record, is_tree: bool) {
    let lacks =
        |flag, feature| record.flags.contains(flag) && !state.layout.features.incompat(feature);
    if is_tree && lacks(InodeFlags::EXTENTS, Incompat::EXTENTS) {
        state.totals.trees.fetch_add(1, Relaxed);
    }
    if lacks(InodeFlags::INLINE_DATA, Incompat::INLINE_DATA) && has_attribute(ino, record) {
        state.totals.inline.fetch_add(1, Relaxed);
    }
}

/// `i_block` is the root of an extent tree.
fn is_tree(ino: Ino, record: &Record) -> bool {
    NodeView::parse(&record.block, None, Site { ino, pba: Pba(0) }).is_ok()
}

fn has_attribute(ino: Ino, record: &Record) -> bool {
    xattr::decode(&record.extra, XattrLocation::Inode, ino)
        .is_ok_and(|all| all.iter().any(|attribute| (attribute.index, attribute.name) == INLINE))
}

/// `i_block` is the target of a symbolic link.
fn is_target(record: &Record) -> bool {
    let len = record.block.iter().take_while(|byte| **byte != 0).count();
    let is_short = record.size > 0 && record.size < FAST_SYMLINK;
    record.is_symlink() && is_short && u64::try_from(len) == Ok(record.size)
}

/// `i_block` has pointers to as many blocks as the inode has.
fn has_pointers(state: &State, ino: Ino, record: &Record) -> bool {
    let slots = indirect::decode_inode(&record.block);
    let is_possible = |slot: &u32| *slot == 0 || state.layout.contains(Pba((*slot).into()), 1);
    if state.layout.cluster_bits != 0 || !slots.iter().all(is_possible) {
        return false;
    }
    let mut plain = record.clone();
    plain.flags.remove(FORM);
    let mut count = Count { state, blocks: 0, left: MOST_NODES, is_sound: true };
    map::walk(state, ino, &plain, &mut count);
    let blocks = count.blocks.saturating_add(u64::from(record.file_acl != Pba(0)));
    count.is_sound && count.blocks > 0 && record.blocks_512 == blocks << state.units()
}

/// Counts the blocks of a map.
struct Count<'a> {
    state: &'a State,
    blocks: u64,
    /// Blocks of pointers that may still be read.
    left: u32,
    is_sound: bool,
}

impl Count<'_> {
    fn add(&mut self, pba: Pba, len: u64) {
        self.is_sound &= self.state.system.count_range(pba.get(), len) == 0;
        self.blocks = self.blocks.saturating_add(len);
    }
}

impl Visitor for Count<'_> {
    fn data(&mut self, run: Run) {
        self.add(run.pba, run.len);
    }

    fn node(&mut self, _: u64, pba: Pba) -> bool {
        let left = self.left.checked_sub(1);
        self.is_sound &= left.is_some();
        self.left = left.unwrap_or(0);
        self.add(pba, 1);
        self.is_sound
    }

    fn fault(&mut self, _: Fault) {
        self.is_sound = false;
    }
}
