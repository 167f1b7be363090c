//! [`walk`]: visits the block map of an inode, whatever its bytes are.
//!
//! A walk descends from a block of the map only if its visitor agrees. A visitor that agrees once
//! for each block of the volume bounds all walks together.

use cairn_base::Ino;
use cairn_vfs::FileKind;

use super::extents;
use super::indirect;
use super::state::State;
use super::visitor::Visitor;
use crate::format::inode::{Inode as Record, InodeFlags};

/// Visits the map of an inode, in the order of the file.
pub(super) fn walk(state: &State, ino: Ino, record: &Record, visitor: &mut dyn Visitor) {
    if record.flags.contains(InodeFlags::EXTENTS) {
        extents::walk(state, ino, record, visitor);
    } else {
        indirect::walk(state, &record.block, visitor);
    }
}

/// Has the inode a block map?
pub(super) fn has_map(record: &Record) -> bool {
    let is_fast = record.size < 60 && !record.flags.contains(InodeFlags::EXTENTS);
    let has_blocks = match FileKind::from_mode(record.mode.into()) {
        Some(FileKind::Regular | FileKind::Directory) => true,
        Some(FileKind::Symlink) => !is_fast,
        Some(_) => false,
        None => record.mode == 0,
    };
    has_blocks && !record.flags.contains(InodeFlags::INLINE_DATA)
}
