//! The map of a file as a list of runs: read, and made anew from such a list.

use cairn_base::{Ino, Pba};

use super::super::map;
use super::super::state::State;
use super::super::visitor::{Fault, Run, Visitor};
use super::mender::Mender;
use crate::error::Result;
use crate::format::extent::{
    Entries, Extent, Index, MAX_WRITTEN, Node, ROOT_BYTES, ROOT_CAPACITY, block_capacity,
};
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags};

/// Blocks of a map that are descended from at most.
const MOST_NODES: u64 = 1 << 20;

/// The runs of a file.
pub(super) struct Found {
    pub(super) runs: Vec<Run>,
    /// No part of the map is damaged.
    pub(super) is_sound: bool,
    nodes: u64,
}

impl Visitor for Found {
    fn data(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn node(&mut self, _: u64, _: Pba) -> bool {
        self.nodes = self.nodes.saturating_add(1);
        self.nodes <= MOST_NODES
    }

    fn fault(&mut self, _: Fault) {
        self.is_sound = false;
    }
}

/// Reads the map of an inode.
pub(super) fn collect(state: &State, ino: Ino, record: &Record) -> Found {
    let mut found = Found { runs: Vec::new(), is_sound: true, nodes: 0 };
    map::walk(state, ino, record, &mut found);
    let system = |run: &Run| state.system.count_range(run.pba.get(), run.len) > 0;
    found.is_sound &= found.nodes <= MOST_NODES && !found.runs.iter().any(system);
    found
}

/// Gives an inode a map with these runs, which are in order. The blocks of its old map are no
/// longer in use. False if there is no room for the new one; then the inode is as before.
pub(super) fn store(
    mender: &Mender<'_>,
    ino: Ino,
    record: &mut Record,
    runs: &[Run],
) -> Result<bool> {
    let mut block = [0; ROOT_BYTES];
    let is_stored = match record.flags.contains(InodeFlags::EXTENTS) {
        true => extents(mender, ino, record, runs, &mut block)?,
        false => pointers(mender, runs, &mut block)?,
    };
    if is_stored {
        record.block = block;
    }
    Ok(is_stored)
}

fn extents(
    mender: &Mender<'_>,
    ino: Ino,
    record: &Record,
    runs: &[Run],
    root: &mut [u8; ROOT_BYTES],
) -> Result<bool> {
    let seed = record.seed(ino, &mender.state.layout);
    let mut list = Vec::new();
    for run in runs {
        let mut at = 0;
        while at < run.len {
            // An unwritten extent can have one block less.
            let most = MAX_WRITTEN.saturating_sub(u64::from(run.unwritten));
            let len = run.len.saturating_sub(at).min(most);
            let start = run.start.saturating_add(at);
            let pba = Pba(run.pba.get().saturating_add(at));
            list.push(Extent { start, len, pba, unwritten: run.unwritten });
            at = at.saturating_add(len);
        }
    }
    let mut entries = Entries::Leaf(list);
    let mut depth = 0_u16;
    let capacity = block_capacity(mender.state.layout.block_size);
    while entries.len() > ROOT_CAPACITY {
        let mut indexes = Vec::new();
        while entries.len() > 0 {
            let rest = entries.split_off(entries.len().min(capacity));
            let Some(pba) = mender.allocate_block() else { return Ok(false) };
            let start = entries.first_key().unwrap_or(0);
            let mut block = mender.empty_block();
            Node { depth, entries }.encode_block(&mut block, seed);
            mender.write(pba, block)?;
            indexes.push(Index { start, child: pba });
            entries = rest;
        }
        entries = Entries::Inner(indexes);
        depth = depth.saturating_add(1);
    }
    Node { depth, entries }.encode_root(root);
    Ok(true)
}

fn pointers(mender: &Mender<'_>, runs: &[Run], root: &mut [u8; ROOT_BYTES]) -> Result<bool> {
    let size = mender.state.layout.block_size;
    let mut blocks: Vec<(u64, u32)> = Vec::new();
    for run in runs {
        for at in 0..run.len {
            let Ok(pointer) = u32::try_from(run.pba.get().saturating_add(at)) else {
                return Ok(false);
            };
            blocks.push((run.start.saturating_add(at), pointer));
        }
    }
    let mut slots = indirect::decode_inode(&[0; ROOT_BYTES]);
    for (number, slot) in slots.iter_mut().enumerate() {
        let (level, first) = indirect::slot_range(number, size);
        match subtree(mender, &blocks, level, first)? {
            Some(pointer) => *slot = pointer,
            None => return Ok(false),
        }
    }
    indirect::encode(&slots, root);
    Ok(true)
}

/// The pointer to a tree of so many levels for the blocks from `first` on; 0 if there are none.
/// `None` if there is no room.
fn subtree(
    mender: &Mender<'_>,
    blocks: &[(u64, u32)],
    level: u32,
    first: u64,
) -> Result<Option<u32>> {
    let size = mender.state.layout.block_size;
    let end = first.saturating_add(indirect::span(level, size));
    let from = blocks.partition_point(|(at, _)| *at < first);
    let to = blocks.partition_point(|(at, _)| *at < end);
    let inside = blocks.get(from..to).unwrap_or_default();
    let Some((_, pointer)) = inside.first() else { return Ok(Some(0)) };
    let Some(below) = level.checked_sub(1) else { return Ok(Some(*pointer)) };
    let Some(pba) = mender.allocate_block() else { return Ok(None) };
    let Ok(place) = u32::try_from(pba.get()) else { return Ok(None) };
    let mut pointers = Vec::new();
    let mut at = first;
    while at < end {
        let Some(pointer) = subtree(mender, inside, below, at)? else { return Ok(None) };
        pointers.push(pointer);
        at = at.saturating_add(indirect::span(below, size));
    }
    let mut block = mender.empty_block();
    indirect::encode(&pointers, &mut block);
    mender.write(pba, block)?;
    Ok(Some(place))
}
