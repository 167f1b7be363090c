//! What lies around an inode, for [`crate::form`]; and inodes that prove a missing feature.

use std::sync::atomic::Ordering::Relaxed;

use cairn_base::{Ino, Pba};

use super::map;
use super::state::State;
use super::visitor::{Fault, Run, Runs, Visitor};
use crate::form::{Around, Maps, is_reserved, shape};
use crate::format::features::Incompat;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;

/// Blocks of pointers that are read at most.
const MOST_NODES: u32 = 64;
/// Blocks of a map that are read for the first block of a file.
const MOST_TO_FIRST: u32 = 8;

impl Around for State {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn first_block(&self, ino: Ino, record: &Record) -> Option<Vec<u8>> {
        let mut found = Runs::new(MOST_TO_FIRST);
        map::walk(self, ino, record, &mut found);
        let run = found.runs.first().filter(|run| run.start == 0 && !run.unwritten)?;
        let is_own = self.system.count_range(run.pba.get(), 1) == 0;
        is_own.then(|| self.source.block(run.pba).ok())?.map(|block| block.to_vec())
    }

    fn attribute_block(&self, record: &Record) -> Option<Vec<u8>> {
        let pba = record.file_acl;
        let is_own = self.layout.contains(pba, 1) && self.system.count_range(pba.get(), 1) == 0;
        is_own.then(|| self.source.block(pba).ok())?.map(|block| block.to_vec())
    }
}

impl Maps for State {
    fn pointed(&self, ino: Ino, record: &Record) -> Option<u64> {
        let mut count = Count { state: self, blocks: 0, left: MOST_NODES, is_sound: true };
        map::walk(self, ino, record, &mut count);
        count.is_sound.then_some(count.blocks)
    }
}

/// Counts inodes that prove that the volume has a feature which is missing.
pub(super) fn note(state: &State, ino: Ino, record: &Record) {
    if is_reserved(&state.layout, ino) {
        return;
    }
    let lacks =
        |flag, feature| record.flags.contains(flag) && !state.layout.features.incompat(feature);
    if lacks(InodeFlags::EXTENTS, Incompat::EXTENTS) && shape::is_tree(ino, record) {
        state.totals.trees.fetch_add(1, Relaxed);
    }
    if lacks(InodeFlags::INLINE_DATA, Incompat::INLINE_DATA) && shape::has_attribute(ino, record) {
        state.totals.inline.fetch_add(1, Relaxed);
    }
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
