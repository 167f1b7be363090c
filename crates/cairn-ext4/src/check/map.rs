//! [`walk`]: visits the block map of an inode, whatever its bytes are.
//!
//! A walk descends from a block of the map only if its visitor agrees. A visitor that agrees once
//! for each block of the volume bounds all walks together.

use cairn_base::Ino;

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
