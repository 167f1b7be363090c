//! `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`: the blocks after a range get other
//! offsets.
//!
//! A block's summary names the slot that points to it, and a summary that the last checkpoint needs
//! may not change. So blocks that get other slots are copied to new addresses, as in Linux. When
//! all copies are on the device, one operation changes all pointers. No checkpoint comes in between
//! ([`crate::operation_lock::OperationLock::lock_data`]), and the next fsync of the file writes
//! one. So after a crash the file is the old one or the new one. (Linux shifts in steps and keeps
//! contents in the page cache: after a crash a file may have parts of both, and zeros.) The price
//! is space for the copies.
//!
//! Locking: exclusive inode.data throughout, then
//! [`crate::operation_lock::OperationLock::lock_data`].

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cairn_base::{FileBlock, Pba};
use cairn_block::Bytes;
use cairn_cache::durability::Part;
use cairn_cache::mapper::{Place, Run};
use cairn_cache::writeback::WritebackMode;
use cairn_vfs::Error as VfsError;

use super::attributes::modified;
use super::mapper::{InodeMapper, data_log};
use super::read_mapper::ReadMapper;
use super::tree::Pointer;
use super::{Inode, tree, truncate_blocks, writeback};
use crate::blocks::{self, Writes};
use crate::checkpoint::Reason;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::BlockAddr;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::op::{Op, Operations};
use crate::store::Store;

/// Blocks copied at once.
const CHUNK: u64 = 256;

/// One shift of a file's blocks.
struct Shift {
    /// Blocks that keep their contents and get other offsets.
    from: Range<u64>,
    /// The new offset of the first of them.
    to: u64,
    /// The first block that changes.
    first: u64,
    /// The size afterwards, in bytes.
    size: u64,
}

/// New slots, with the addresses of the copies, or without an address.
struct Piece {
    to: u64,
    /// Slots, in one node.
    count: u32,
    copy: Option<BlockAddr>,
}

fn check(offset: u64, len: u64) -> Result<()> {
    if !offset.is_multiple_of(BLOCK_BYTES) || !len.is_multiple_of(BLOCK_BYTES) {
        return Err(
            VfsError::Invalid("offset and length must be multiples of the block size").into()
        );
    }
    Ok(())
}

/// Removes a range from a file. The caller holds inode.data exclusively.
///
/// # Errors
/// The range is not a multiple of blocks or reaches the end; no space for the copies, the file is
/// damaged, or the device failed.
pub(super) fn collapse(ops: &Operations, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check(offset, len)?;
    let size = inode.size();
    if offset + len >= size {
        return Err(
            VfsError::Invalid("the range reaches the end of the file: truncate instead").into()
        );
    }
    let (to, end) = (offset / BLOCK_BYTES, size.div_ceil(BLOCK_BYTES));
    let from = (offset + len) / BLOCK_BYTES..end;
    Shift { from, to, first: to, size: size - len }.run(ops, inode)
}

/// Inserts a range into a file. The caller holds inode.data exclusively.
///
/// # Errors
/// As [`collapse`]; or the file would be too large.
pub(super) fn insert(ops: &Operations, inode: &Arc<Inode>, offset: u64, len: u64) -> Result<()> {
    check(offset, len)?;
    let size = inode.size();
    if offset >= size {
        return Err(VfsError::Invalid(
            "the range starts beyond the end of the file: truncate instead",
        )
        .into());
    }
    if size.saturating_add(len) > inode.max_size() {
        return Err(VfsError::TooLarge.into());
    }
    let first = offset / BLOCK_BYTES;
    let from = first..size.div_ceil(BLOCK_BYTES);
    Shift { from, to: first + len / BLOCK_BYTES, first, size: size + len }.run(ops, inode)
}

impl Shift {
    fn run(&self, ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
        writeback::write_back(ops, inode, self.first..u64::MAX, WritebackMode::Sync)?;
        let store = ops.store()?;
        let old = self.old(&ops.disk, inode)?;
        let blocks: u64 = old.iter().map(|(run, _)| run.len).sum();
        let mut reservation = store.space.reserve(blocks + self.nodes(inode, &old))?;
        make_room(ops, store, blocks)?;
        let inside = store.operation_lock.lock_data()?;
        inode.cache.discard(&InodeMapper::new(ops, inode, &inside), self.first..u64::MAX);
        let nodes = reservation.split(reservation.left() - blocks);
        let mut op = ops.begin_reserved(nodes)?;
        let made = self.make_nodes(&mut op, inode, &old);
        ops.mount.stop_after(&made);
        made?;
        drop(op);
        let pieces = self.copy(ops, inode)?;
        let mut op = ops.begin_reserved(reservation).inspect_err(|_| give_back(store, &pieces))?;
        let done = self.turn_over(&mut op, inode, &pieces);
        ops.mount.stop_after(&done);
        done
    }

    /// The runs that move, without holes. Cleaning may move them meanwhile, so only their number of
    /// blocks is used.
    fn old(&self, disk: &Disk, inode: &Inode) -> Result<Vec<(Run, Place)>> {
        let mapper = ReadMapper::new(disk, inode);
        let (mut runs, mut at) = (Vec::new(), self.from.start);
        while at < self.from.end {
            let found = mapper.find(Run { start: FileBlock(at), len: self.from.end - at })?;
            let run = Run { start: found.run.start, len: found.run.len.min(self.from.end - at) };
            at += run.len;
            if found.place != Place::Hole {
                runs.push((run, found.place));
            }
        }
        Ok(runs)
    }

    fn moved(&self, block: u64) -> u64 {
        block - self.from.start + self.to
    }

    /// The number of nodes that lead to the new offsets, whether they exist or not.
    fn nodes(&self, inode: &Inode, old: &[(Run, Place)]) -> u64 {
        let shape = inode.state.read().record.shape();
        let mut nodes: BTreeSet<u32> = BTreeSet::new();
        for (run, _) in old {
            let (mut at, end) =
                (self.moved(run.start.get()), self.moved(run.start.get() + run.len));
            while let Some(path) = shape.locate(at).filter(|_| at < end) {
                nodes.extend(&path.offsets[1..=path.depth]);
                at += u64::from(path.rest);
            }
        }
        nodes.len() as u64
    }

    /// Makes the nodes that will point to the new offsets. Empty nodes do not change the contents.
    fn make_nodes(&self, op: &mut Op<'_>, inode: &Arc<Inode>, old: &[(Run, Place)]) -> Result<()> {
        for (run, _) in old {
            let (mut at, end) =
                (self.moved(run.start.get()), self.moved(run.start.get() + run.len));
            while at < end {
                at += u64::from(tree::make(op, inode, at)?.rest);
            }
        }
        Ok(())
    }

    /// Copies the moved blocks to new addresses, to which nothing points yet.
    fn copy(&self, ops: &Operations, inode: &Arc<Inode>) -> Result<Vec<Piece>> {
        let store = ops.store()?;
        let mut pieces = Vec::new();
        let copied = self.old(&ops.disk, inode)?.into_iter().try_for_each(|(run, place)| {
            let (mut at, end) = (run.start.get(), run.start.get() + run.len);
            while at < end {
                let to = self.moved(at);
                let found = tree::find(store, inode, to)?;
                let pointer = found.expect("the nodes were made");
                let count = (end - at).min(pointer.rest.into()).min(CHUNK) as u32;
                match place {
                    Place::Mapped(pba) => {
                        let from = Pba(pba.get() + (at - run.start.get()));
                        copy_blocks(store, inode, from, &pointer, to, count, &mut pieces)?;
                    }
                    _ => pieces.push(Piece { to, count, copy: None }),
                }
                at += u64::from(count);
            }
            Ok(())
        });
        if copied.is_err() {
            give_back(store, &pieces);
        }
        ops.mount.observe(copied)?;
        Ok(pieces)
    }

    /// The operation that changes the file: old slots are freed, new ones set, and the tree is cut
    /// at the new size.
    fn turn_over(&self, op: &mut Op<'_>, inode: &Arc<Inode>, pieces: &[Piece]) -> Result<()> {
        inode.drop_hint(op.inodes);
        inode.map.forget_from(self.first);
        inode.ledger.changed(Part::Data, op.store.checkpoints.version());
        free_from(op, inode, self.first)?;
        for piece in pieces {
            point(op, inode, piece)?;
        }
        truncate_blocks::truncate_within(op, inode, self.size.div_ceil(BLOCK_BYTES))?;
        let mut state = inode.state.write();
        state.record.size = self.size;
        modified(op.inodes, inode, &mut state);
        Ok(())
    }
}

/// Copies blocks of one node's slots to free addresses.
fn copy_blocks(
    store: &Store,
    inode: &Inode,
    from: Pba,
    pointer: &Pointer,
    to: u64,
    count: u32,
    pieces: &mut Vec<Piece>,
) -> Result<()> {
    let data = Bytes::from_owner(blocks::read(&*store.device, from, count as usize)?);
    let owners: Vec<_> = pointer.owners(count).collect();
    let mut writes = Writes::new();
    let mut done = 0;
    while done < owners.len() {
        let placed = store.segments.place(data_log(inode), &owners[done..])?;
        pieces.push(Piece {
            to: to + done as u64,
            count: placed.count as u32,
            copy: Some(placed.address),
        });
        writes.push(
            placed.address.pba(),
            data.slice(done * BLOCK_SIZE..(done + placed.count) * BLOCK_SIZE),
        );
        done += placed.count;
    }
    // Nothing points there yet, so a failed write concerns only this file.
    writes.write(&*store.device).map_err(|error| match error {
        Error::Device(error) => Error::Data(error),
        other => other,
    })
}

/// Frees copies to which nothing will point.
fn give_back(store: &Store, pieces: &[Piece]) {
    for piece in pieces {
        let Some(first) = piece.copy else { continue };
        for addr in (first.get()..first.get() + piece.count).map(BlockAddr) {
            // They were placed a moment ago.
            let _ = store.segments.invalidate(addr);
        }
    }
}

/// Makes room for this many blocks before the next checkpoint, and for that checkpoint.
fn make_room(ops: &Operations, store: &Store, blocks: u64) -> Result<()> {
    ops.room()?;
    let section = u64::from(store.layout.section_capacity());
    let sections = u32::try_from(blocks / section + 2).unwrap_or(u32::MAX);
    // Each round frees at least one section, or is the last one.
    for _ in 0..=sections {
        let now = ops.cleaner.space_state()?;
        if now.free >= now.upper.saturating_add(sections) {
            return Ok(());
        }
        if now.prefree > 0 {
            store.checkpoints.write(Reason::Cleaning)?;
        } else {
            ops.cleaner.clean_one()?;
        }
        let after = ops.cleaner.space_state()?;
        if (after.free, after.prefree) == (now.free, now.prefree) {
            break;
        }
    }
    let now = ops.cleaner.space_state()?;
    if now.free >= now.upper.saturating_add(sections) { Ok(()) } else { Err(Error::NO_SPACE) }
}

/// Frees all slots from a block on.
fn free_from(op: &Op<'_>, inode: &Arc<Inode>, first: u64) -> Result<()> {
    let end = inode.max_size() / BLOCK_BYTES;
    let mut at = first;
    while at < end {
        match tree::find(op.store, inode, at)? {
            Err(hole) => at = at.saturating_add(hole),
            Ok(pointer) => {
                tree::free_run(op, inode, &pointer, pointer.rest)?;
                at += u64::from(pointer.rest);
            }
        }
    }
    Ok(())
}

/// Writes the addresses of the copies into the slots of a piece.
fn point(op: &mut Op<'_>, inode: &Arc<Inode>, piece: &Piece) -> Result<()> {
    let pointer = tree::make(op, inode, piece.to)?;
    match piece.copy {
        Some(addr) => drop(pointer.set_run(addr, piece.count)),
        None => assert_eq!(pointer.fill_run(piece.count), piece.count, "the slots were free"),
    }
    op.reservation.take(piece.count.into());
    tree::count_blocks(op, inode, i64::from(piece.count));
    Ok(())
}
