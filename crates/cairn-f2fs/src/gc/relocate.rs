//! Moves the valid blocks of a section.
//!
//! Data blocks are copied to the cold data log while operations continue. This is safe for these
//! reasons:
//!
//! 1. The section is marked ([`Segments::begin_cleaning`]): no log fills its holes, and no block of
//!    it is overwritten in place.
//! 2. The operation lock is taken exclusively once, and released. Every write into the section has
//!    then ended, also those of a checkpoint in flight, so every valid block has its pointer and is
//!    on the device.
//! 3. A batch of blocks is moved with [`OperationLock::lock_data`] held, which a checkpoint waits
//!    for. Blocks that still have a pointer are read, placed and written. Only then is the pointer
//!    changed, if it still has the old address: a block that was overwritten or freed meanwhile is
//!    left alone. No checkpoint takes its snapshot in between, so the blocks that were read are
//!    still there.
//! 4. Before the lock is released, all readers by old addresses have ended. So no checkpoint can
//!    free an old block that is being read.
//!
//! After a power cut there is the old or the new pointer, and both blocks: the old one is not
//! overwritten before the checkpoint with the new pointer.
//!
//! Nodes get new addresses with the operation lock held exclusively, because no other thread may
//! write them meanwhile. They are read before.
//!
//! A valid block without a pointer is damage. It is checked again with the operation lock held
//! exclusively before it is reported. So is a block that cannot be read, or whose nodes cannot. It
//! stays where it is, the others move, and the volume asks for a check.
//!
//! [`OperationLock::lock_data`]: crate::operation_lock::OperationLock::lock_data

use std::sync::Arc;

use cairn_block::{Batch, Durability, Request};

use super::cleaner::Cleaner;
use super::unreadable::{Block, Left, is_unreadable, readable};
use crate::blocks::{self, Spare};
use crate::error::{Error, Result};
use crate::format::inode::Inode as Record;
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{BlockAddr, CheckpointFlags, Log, Nid, bits};
use crate::node::Node;
use crate::segment::{LiveBlocks, Owner, SectionInfo, Segments};
use crate::store::Store;
use crate::store::live::{self, Live};

/// Data blocks moved at once. Bounds the memory, and the time that a checkpoint may have to wait.
const PIECE: usize = 1024;
/// Most bytes of buffers kept for the next piece. Their capacity is up to twice the data read into
/// them.
const MOST_SPARE: usize = 4 * PIECE * BLOCK_SIZE;
/// Node logs in the order they are written: indirect nodes, directories, files.
const NODE_LOGS: [Log; 3] = [Log::ColdNode, Log::HotNode, Log::WarmNode];

/// The result for a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// No valid block is left in it.
    pub(super) whole: bool,
    /// Some of its blocks have no owner, or cannot be read: it cannot be cleaned.
    pub(super) stuck: bool,
    /// No log could take more blocks: a checkpoint must come first.
    pub(super) full: bool,
}

/// Sections that are marked as being cleaned until this is dropped.
struct Marked<'a> {
    segments: &'a Segments,
    sections: Vec<u32>,
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.segments.end_cleaning(&self.sections);
    }
}

/// How blocks are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveMode {
    /// As Linux does it: section by section, and nodes are written at once.
    Direct,
    /// Data is sorted by file over all victims; nodes are left to the next checkpoint.
    Sorted,
}

/// Moves all valid blocks out of a section. Called without the operation lock, by one thread at a
/// time.
///
/// # Errors
/// The volume has stopped, or a write failed.
pub(super) fn clean_section(
    cleaner: &Cleaner,
    store: &Store,
    victim: &SectionInfo,
) -> Result<Moved> {
    clean_sections(cleaner, store, std::slice::from_ref(victim), MoveMode::Direct)
}

/// Moves all valid blocks out of sections. Called without the operation lock, by one thread at a
/// time. The memory for the list of blocks grows with the number of victims.
///
/// # Errors
/// As [`clean_section`].
pub(super) fn clean_sections(
    cleaner: &Cleaner,
    store: &Store,
    victims: &[SectionInfo],
    mode: MoveMode,
) -> Result<Moved> {
    let segments: &Segments = &store.segments;
    let marked =
        Marked { segments, sections: victims.iter().map(|victim| victim.section).collect() };
    let live: Vec<LiveBlocks> =
        marked.sections.iter().flat_map(|section| segments.begin_cleaning(*section)).collect();
    drop(store.operation_lock.lock_all_idle());
    store.operation_lock.check()?;
    count_victims(cleaner, victims);
    let (mut left, mut data) = (Left::default(), Vec::new());
    for segment in &live {
        let Some(owned) = readable(blocks_of(store, segment))? else {
            left.unreadable +=
                segment.valid.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            continue;
        };
        match (segment.is_node, mode) {
            (true, MoveMode::Direct) => move_nodes(store, cleaner, &owned, &mut left)?,
            (true, MoveMode::Sorted) => leave_nodes(store, cleaner, &owned, &mut left)?,
            (false, _) => data.extend(owned),
        }
    }
    let pieces = if mode == MoveMode::Sorted { data.len().max(1) } else { PIECE };
    for piece in data.chunks(pieces) {
        if !move_data(cleaner, store, piece, mode, &mut left)? {
            return Ok(Moved { full: true, ..Moved::default() });
        }
    }
    let lost = count_lost(store, &left.suspects)?;
    if lost + left.unreadable > 0 {
        let unreadable = left.unreadable;
        tracing::warn!(sections = ?marked.sections, lost, unreadable, "blocks without an owner, or \
            that cannot be read: check and repair the volume");
        store.checkpoints.raise(CheckpointFlags::FSCK);
    }
    let whole = marked.sections.iter().all(|section| segments.section(*section).valid == 0);
    Ok(Moved { whole, stuck: lost + left.unreadable > 0, full: false })
}

fn count_victims(cleaner: &Cleaner, victims: &[SectionInfo]) {
    for victim in victims {
        match victim.is_node() {
            true => cleaner.stats.node_sections.add(1),
            false => cleaner.stats.data_sections.add(1),
        }
        cleaner.stats.victim_blocks.add(victim.valid.into());
    }
}

fn blocks_of(store: &Store, segment: &LiveBlocks) -> Result<Vec<Block>> {
    let owners = store.segments.owners(segment.segno)?;
    let all = (0..BLOCKS_PER_SEGMENT as u16).map(|block| (block, owners.get(block)));
    let valid = all.filter(|(block, _)| bits::test(&segment.valid, usize::from(*block)));
    let block = |(block, owner): (u16, Option<Owner>)| {
        Some(Block { addr: store.layout.address(segment.segno, block), owner: owner? })
    };
    Ok(valid.filter_map(block).collect())
}

/// Moves nodes to new addresses.
fn move_nodes(store: &Store, cleaner: &Cleaner, owned: &[Block], left: &mut Left) -> Result<()> {
    let loaded = load_nodes(store, owned)?;
    let _guard = store.operation_lock.lock_all_idle();
    store.operation_lock.check()?;
    let nodes = present(store, cleaner, owned, &loaded, left)?;
    for log in NODE_LOGS {
        let some: Vec<_> = nodes.iter().filter(|node| node.log() == log).cloned().collect();
        let outcome = store.nodes.write_plain(&some);
        if let Err(error) = &outcome
            && !matches!(error, Error::Vfs(_))
        {
            store.operation_lock.stop_for("node blocks could not be moved", error);
        }
        outcome?;
    }
    Ok(())
}

/// Makes nodes dirty, so that the next checkpoint writes them together with the other dirty nodes.
fn leave_nodes(store: &Store, cleaner: &Cleaner, owned: &[Block], left: &mut Left) -> Result<()> {
    let loaded = load_nodes(store, owned)?;
    let _inside = store.operation_lock.lock_op()?;
    present(store, cleaner, owned, &loaded, left)?.iter().for_each(Node::redirty);
    Ok(())
}

/// The nodes of these blocks, as far as they exist and can be read.
fn load_nodes(store: &Store, owned: &[Block]) -> Result<Vec<Option<Arc<Node>>>> {
    let peek = |block: &Block| store.nodes.peek(block.owner.nid);
    let mut found: Vec<_> = owned.iter().map(peek).collect();
    let missing = || owned.iter().zip(&found).filter(|(_, node)| node.is_none());
    let mut nids: Vec<Nid> = missing().map(|(block, _)| block.owner.nid).collect();
    if !nids.is_empty() {
        if readable(store.nodes.load_many(&mut nids))?.is_none() {
            // Those beside the unreadable ones.
            nids.into_iter().try_for_each(|nid| readable(store.nodes.get(nid)).map(drop))?;
        }
        for (block, node) in owned.iter().zip(&mut found).filter(|(_, node)| node.is_none()) {
            *node = peek(block);
        }
    }
    Ok(found)
}

/// The nodes that are still at these blocks. The caller holds the operation lock and will write
/// them.
fn present(
    store: &Store,
    cleaner: &Cleaner,
    owned: &[Block],
    loaded: &[Option<Arc<Node>>],
    left: &mut Left,
) -> Result<Vec<Arc<Node>>> {
    let (mut nodes, mut extra) = (Vec::with_capacity(owned.len()), 0);
    for (block, loaded) in owned.iter().zip(loaded) {
        let node = match loaded {
            Some(node) if !node.is_retired() => node.clone(),
            _ if readable(store.nat.address(block.owner.nid))?.flatten() != Some(block.addr) => {
                left.suspects.push(*block);
                continue;
            }
            _ => match readable(store.nodes.get(block.owner.nid))? {
                Some(node) => node,
                None => {
                    left.unreadable += 1;
                    continue;
                }
            },
        };
        if node.address() != block.addr {
            left.suspects.push(*block);
            continue;
        }
        // Nodes that were dirty before are not extra: the next checkpoint would have written them.
        extra += u64::from(!node.is_dirty());
        nodes.push(node);
    }
    cleaner.stats.node_blocks_moved.add(nodes.len() as u64);
    cleaner.stats.node_blocks_extra.add(extra);
    Ok(nodes)
}

/// Copies data blocks to the cold log. False if it has no room.
fn move_data(
    cleaner: &Cleaner,
    store: &Store,
    owned: &[Block],
    mode: MoveMode,
    left: &mut Left,
) -> Result<bool> {
    let mut live = Vec::with_capacity(owned.len());
    for piece in owned.chunks(PIECE) {
        for (block, node) in piece.iter().zip(load_nodes(store, piece)?) {
            let found = match node {
                Some(node) => live::pointer(store, block.addr, block.owner, node),
                None => live::find(store, block.addr, block.owner),
            };
            match readable(found)? {
                Some(Some(found)) => live.push(found),
                Some(None) => left.suspects.push(*block),
                None => left.unreadable += 1,
            }
        }
    }
    if live.is_empty() {
        return Ok(true);
    }
    if mode == MoveMode::Sorted {
        live.sort_unstable_by_key(|block| {
            (block.node.ino(), block.node.offset(), block.owner.ofs_in_node)
        });
    }
    let mut spare = cleaner.take_spare();
    let mut outcome = Ok(true);
    for piece in live.chunks(PIECE) {
        outcome = copy(cleaner, store, piece, &mut spare);
        if outcome.as_ref().is_err_and(is_unreadable) {
            outcome = copy_readable(cleaner, store, piece, left, &mut spare);
        }
        if !matches!(outcome, Ok(true)) {
            break;
        }
    }
    cleaner.keep_spare(store, spare);
    outcome
}

/// As [`copy`], of blocks of which some cannot be read, or have an inode that cannot: its hint of
/// the largest extent could not be removed.
fn copy_readable(
    cleaner: &Cleaner,
    store: &Store,
    live: &[Live],
    left: &mut Left,
    spare: &mut Spare,
) -> Result<bool> {
    for block in live.chunks(1) {
        match readable(copy(cleaner, store, block, spare))? {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => left.unreadable += 1,
        }
    }
    Ok(true)
}

/// Copies blocks (at most [`PIECE`]), as far as they are still pointed to. False if the log had no
/// room for all.
fn copy(cleaner: &Cleaner, store: &Store, live: &[Live], spare: &mut Spare) -> Result<bool> {
    let _inside = store.operation_lock.lock_data()?;
    let live: Vec<&Live> =
        live.iter().filter(|block| block.node.says(block.at, block.addr)).collect();
    if live.is_empty() {
        return Ok(true);
    }
    drop_hints(cleaner, store, &live)?;
    let images = read(store, &live, spare)?;
    let owners: Vec<Owner> = live.iter().map(|block| block.owner).collect();
    let (mut requests, mut targets) = (Vec::new(), Vec::with_capacity(live.len()));
    while targets.len() < live.len() {
        let at = targets.len();
        let placed = match store.segments.place(Log::ColdData, &owners[at..]) {
            Ok(placed) => placed,
            Err(Error::Vfs(cairn_vfs::Error::NoSpace)) => break,
            Err(error) => {
                let _ = store.segments.invalidate_all(&mut targets);
                return Err(error);
            }
        };
        let bufs = images.pieces(live[at..at + placed.count].iter().map(|block| block.addr));
        requests.push(Request::Write { offset: placed.address.bytes(), bufs });
        let first = placed.address.get();
        targets.extend((first..first + placed.count as u32).map(BlockAddr));
    }
    let batch = Batch { requests, durability: Durability::default() };
    if let Err(error) = store.device.submit(batch).wait() {
        let _ = store.segments.invalidate_all(&mut targets);
        return Err(error.into());
    }
    images.recycle(spare, most_spare(store));
    point(cleaner, store, &live[..targets.len()], &targets)?;
    Ok(targets.len() == live.len())
}

/// Reads blocks in the order of their addresses.
fn read(store: &Store, live: &[&Live], spare: &mut Spare) -> Result<blocks::Blocks> {
    let mut addrs: Vec<BlockAddr> = live.iter().map(|block| block.addr).collect();
    addrs.sort_unstable();
    blocks::read_many_into(&*store.device, &addrs, spare)
}

/// Bytes of buffers that are kept for the next read.
fn most_spare(store: &Store) -> usize {
    usize::try_from(store.budget.limit() / 4).unwrap_or(MOST_SPARE).min(MOST_SPARE)
}

/// Sets the pointers to blocks that have been written to their targets. The caller holds
/// [`crate::operation_lock::OperationLock::lock_data`].
fn point(cleaner: &Cleaner, store: &Store, live: &[&Live], targets: &[BlockAddr]) -> Result<()> {
    let mut freed = Vec::with_capacity(targets.len());
    let mut moved = 0;
    for (block, target) in live.iter().zip(targets) {
        let follows = block.node.replace(block.at, block.addr, *target);
        freed.push(if follows { block.addr } else { *target });
        moved += u64::from(follows);
    }
    store.segments.invalidate_all(&mut freed).inspect_err(|error| {
        store.operation_lock.stop(&format!("cleaning found the segment table damaged: {error}"));
    })?;
    cleaner.stats.data_blocks_moved.add(targets.len() as u64);
    cleaner.stats.data_blocks_overtaken.add(targets.len() as u64 - moved);
    store.operation_lock.wait_for_readers();
    Ok(())
}

/// Removes the hint of the largest extent before a pointer of the file changes. The caller holds
/// [`crate::operation_lock::OperationLock::lock_data`].
fn drop_hints(cleaner: &Cleaner, store: &Store, live: &[&Live]) -> Result<()> {
    let mut inos: Vec<Nid> = live.iter().map(|block| block.node.ino()).collect();
    inos.dedup();
    inos.sort_unstable();
    inos.dedup();
    for ino in inos {
        if let Some(inode) = cleaner.inodes.table.get(ino.ino()) {
            inode.drop_hint(&cleaner.inodes);
            continue;
        }
        let Some(node) = store.nodes.inode(ino)? else { continue };
        let record = Record::decode(&node.image(), ino, store.layout.features)?;
        if record.ext.len > 0 {
            cleaner.inodes.inode(ino.ino())?.drop_hint(&cleaner.inodes);
        }
    }
    Ok(())
}

/// The number of these blocks without an owner. No operation may run meanwhile.
fn count_lost(store: &Store, suspects: &[Block]) -> Result<u64> {
    if suspects.is_empty() {
        return Ok(0);
    }
    let _guard = store.operation_lock.lock_all_idle();
    let mut lost = 0;
    for block in suspects.iter().filter(|block| store.segments.is_valid(block.addr)) {
        let is_node = store
            .layout
            .segment_of(block.addr)
            .is_some_and(|(segno, _)| store.segments.log_of(segno).is_node());
        let owned = match is_node {
            true => readable(store.nat.address(block.owner.nid))?.flatten() == Some(block.addr),
            false => readable(live::find(store, block.addr, block.owner))?.flatten().is_some(),
        };
        lost += u64::from(!owned);
    }
    Ok(lost)
}
