//! Roll-forward on a writable volume: applies the changes of the chain.
//!
//! Everything is applied in memory; meanwhile no block is allocated and no checkpoint is written.
//! Data blocks of the chain are adopted, and its node blocks are protected from being overwritten.
//! Then all logs move to unused blocks, and one checkpoint makes the result durable. Until it has
//! completed, the last checkpoint and the whole chain are unchanged, so a power cut in between
//! loses nothing.
//!
//! As in Linux, nodes get new numbers where they are missing: only an inode keeps the one that the
//! chain names.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};
use cairn_cache::block::Image;
use cairn_vfs::FileKind;

use super::chain::{ChainNode, Recovered};
use crate::checkpoint::Reason;
use crate::corrupt::Corrupt;
use crate::dir::{edit, lookup};
use crate::error::{Error, Result};
use crate::form::names::Names;
use crate::format::inode::{Advise, InlineFlags, Inode as Record, NIDS};
use crate::format::node::{FOOTER_AT, XATTR_OFFSET, data_pointers};
use crate::format::path::NodeKind;
use crate::format::units::BLOCK_BYTES;
use crate::format::{BlockAddr, Log, Nid, block, xattr};
use crate::inode::tree::{self, Pointer};
use crate::inode::{Inode, truncate_blocks};
use crate::node::Owner;
use crate::op::Op;
use crate::op::Operations;
use crate::store::{Store, live};

/// Nodes that may be missing on the way to a block.
const MAX_NODES: u64 = 3;

/// What the chain holds.
pub(crate) struct RollForward {
    /// Its nodes, in order.
    pub(crate) chain: Vec<ChainNode>,
    /// The inodes that it changes.
    pub(crate) selected: HashMap<Nid, Recovered>,
}

/// Makes the chain part of the volume, and writes a checkpoint. The caller has deleted the orphans,
/// and no other thread uses the volume.
///
/// # Errors
/// The chain or what it changes is damaged, there is not enough room, or the device failed.
pub(crate) fn replay(ops: &Operations, roll_forward: &RollForward) -> Result<()> {
    let store = ops.store()?;
    roll_forward.chain.iter().for_each(|entry| store.segments.protect(entry.addr));
    let replay = Replay { ops, store, roll_forward };
    for (ino, recovered) in &roll_forward.selected {
        replay.create(*ino, recovered)?;
    }
    for (index, entry) in roll_forward.chain.iter().enumerate() {
        let selected = roll_forward.selected.get(&entry.footer.ino);
        if let Some(recovered) = selected.filter(|recovered| index <= recovered.last_fsync) {
            replay.apply(index, entry, recovered)?;
        }
    }
    for ino in roll_forward.selected.keys() {
        replay.finish(&ops.inodes.inode(ino.ino())?)?;
    }
    store.segments.resume(roll_forward.chain.len())?;
    store.checkpoints.write(Reason::Recovery)?;
    tracing::info!(
        nodes = roll_forward.chain.len(),
        inodes = roll_forward.selected.len(),
        "replayed fsynced files"
    );
    Ok(())
}

struct Replay<'a> {
    ops: &'a Operations,
    store: &'a Store,
    roll_forward: &'a RollForward,
}

impl Replay<'_> {
    fn op(&self, blocks: u64) -> Result<Op<'_>> {
        self.ops.begin_reserved(self.store.space.reserve_for_recovery(blocks)?)
    }

    fn image(&self, entry: &ChainNode) -> Result<Image> {
        Ok(self.ops.disk.buffers.get(Pba(entry.addr.pba().get()))?.image())
    }

    /// Makes an inode that the checkpoint does not know: empty, with one link.
    fn create(&self, ino: Nid, recovered: &Recovered) -> Result<()> {
        let Some(entry) = recovered.created_by.and_then(|index| self.roll_forward.chain.get(index))
        else {
            return Ok(());
        };
        let mut record = Record::decode(&self.image(entry)?, ino, self.ops.disk.layout.features)?;
        (record.links, record.blocks, record.size) = (1, 1, 0);
        (record.xattr_nid, record.nids, record.ext) =
            (Nid::NONE, [Nid::NONE; NIDS], Default::default());
        record.inline &= InlineFlags::XATTR | InlineFlags::EXTRA_ATTR;
        let mut op = self.op(1)?;
        self.store.nat.allocate_exact(ino)?;
        let node = self.store.nodes.create(ino, ino, 0, Owner::Other, &mut op.reservation)?;
        record.encode_into(&mut node.modify());
        Ok(())
    }

    fn apply(&self, index: usize, entry: &ChainNode, recovered: &Recovered) -> Result<()> {
        let inode = self.ops.inodes.inode(entry.footer.ino.ino())?;
        let image = self.image(entry)?;
        match NodeKind::at(entry.footer.offset) {
            Some(NodeKind::Inode) if entry.footer.is_inode() => {
                let source = Record::decode(&image, inode.nid, self.ops.disk.layout.features)?;
                self.apply_inode(&inode, &source, &image)?;
                if recovered.last_dent == Some(index) {
                    self.apply_entry(&inode, &source)?;
                }
                Ok(())
            }
            Some(NodeKind::Xattr) => self.apply_xattr(&inode, &image),
            Some(NodeKind::Direct) => {
                if inode.is_inline() {
                    self.leave_inode(index, &inode, recovered)?;
                }
                let shape = inode.state.read().record.shape();
                let first = shape.first_block(entry.footer.offset).filter(|_| !inode.is_inline());
                let first = first.ok_or_else(|| {
                    bad(entry, "no direct node has this offset", entry.footer.offset)
                })?;
                let pointers: Vec<_> =
                    data_pointers(&image).take(as_index(shape.node_slots)).collect();
                self.apply_pointers(&inode, first, &pointers)
            }
            _ => Err(bad(entry, "no such node belongs to the chain", entry.footer.offset)),
        }
    }

    /// The first node of a file whose contents have just left the inode may come before the inode's
    /// block in the chain.
    fn leave_inode(&self, index: usize, inode: &Arc<Inode>, recovered: &Recovered) -> Result<()> {
        let rest = self.roll_forward.chain.get(index..=recovered.last_fsync).unwrap_or_default();
        let Some(entry) = rest.iter().find(|entry| entry.footer.nid == inode.nid) else {
            return Ok(());
        };
        let image = self.image(entry)?;
        let source = Record::decode(&image, inode.nid, self.ops.disk.layout.features)?;
        self.apply_inode(inode, &source, &image)
    }

    fn apply_inode(&self, inode: &Arc<Inode>, source: &Record, image: &[u8]) -> Result<()> {
        let was_inline = inode.is_inline();
        let is_inline = source.inline.contains(InlineFlags::DATA);
        if inode.state.read().record.shape() != source.shape() || inode.kind != source.kind {
            let (ino, expected) = (
                inode.nid,
                "roll-forward finds an inode of another type or with other inline flags",
            );
            return Err(Corrupt::Inode {
                ino,
                field: "i_inline",
                value: source.inline.bits().into(),
                expected,
            }
            .into());
        }
        let mut op = self.op(0)?;
        if is_inline && !was_inline {
            truncate_blocks::truncate_within(&mut op, inode, 0)?;
        }
        {
            let node = tree::own_node(self.store, inode)?;
            let mut state = inode.state.write();
            copy_fields(&mut state.record, source);
            let mut own = node.modify();
            state.record.encode_inline(&mut own);
            if was_inline || is_inline {
                let range = source.inline_data_range();
                // This includes the reserved word before the contents.
                block::part_mut(&mut own, range.start.strict_sub(4)..range.end).fill(0);
                if is_inline {
                    block::put(&mut own, range.start, block::part(image, range));
                }
            }
            let attributes = source.inline_xattr_range();
            let attributes_of_image = block::part(image, attributes.clone());
            state.inline_xattrs = !xattr::is_empty(attributes_of_image);
            block::put(&mut own, attributes.start, attributes_of_image);
            inode.mark_dirty(&self.ops.inodes, &mut state);
        }
        drop(op);
        if is_inline || !matches!(source.kind, FileKind::Regular | FileKind::Symlink) {
            return Ok(());
        }
        let pointers: Vec<_> =
            (0..source.address_slots()).map(|slot| source.data_pointer(image, slot)).collect();
        self.apply_pointers(inode, 0, &pointers)
    }

    /// The pointers of one node become those of the chain.
    fn apply_pointers(&self, inode: &Arc<Inode>, first: u64, wanted: &[BlockAddr]) -> Result<()> {
        let found = tree::find(self.store, inode, first)?.ok();
        let nodes = if found.is_some() { 0 } else { MAX_NODES };
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let now = found
            .map_or_else(|| vec![BlockAddr::NULL; wanted.len()], |pointer| pointer.get_run(count));
        let new = now
            .iter()
            .zip(wanted)
            .filter(|(now, wanted)| **now == BlockAddr::NULL && now != wanted)
            .count();
        if now == wanted {
            return self.grow(inode, first, wanted);
        }
        inode.drop_hint(&self.ops.inodes);
        let mut op = self.op(as_u64(new).saturating_add(nodes))?;
        let pointer = tree::make(&mut op, inode, first)?;
        for (index, wanted) in (0..).zip(wanted) {
            self.apply_pointer(&mut op, inode, &pointer.after(index), *wanted)?;
        }
        drop(op);
        self.grow(inode, first, wanted)
    }

    fn apply_pointer(
        &self,
        op: &mut Op<'_>,
        inode: &Arc<Inode>,
        pointer: &Pointer,
        wanted: BlockAddr,
    ) -> Result<()> {
        let now = pointer.get();
        if now == wanted {
            return Ok(());
        }
        if wanted == BlockAddr::NULL {
            return tree::free_run(op, inode, pointer, 1);
        }
        pointer.reserve(op, inode);
        if wanted.is_address() {
            self.take_from_owner(wanted)?;
            let log = if inode.kind == FileKind::Directory { Log::HotData } else { Log::WarmData };
            self.store.segments.adopt(wanted, log, pointer.owner())?;
        }
        pointer.moved(&self.ops.mount, inode, wanted)
    }

    /// Removes the block from its present owner, which had it before the block moved here.
    fn take_from_owner(&self, addr: BlockAddr) -> Result<()> {
        if !self.store.segments.is_in_use(addr) {
            return Ok(());
        }
        let (_, owner) = self.store.segments.owner_of(addr)?;
        let Some(live) = live::find(self.store, addr, owner)? else {
            let what = "roll-forward finds a block in use to which no node points";
            return Err(Corrupt::Nat { nid: owner.nid, what, value: addr.get().into() }.into());
        };
        live.set(BlockAddr::NULL);
        self.store.segments.invalidate(addr)?;
        self.store.space.release(1);
        let inode = self.ops.inodes.inode(live.node.ino().ino())?;
        let mut state = inode.state.write();
        state.record.blocks = state.record.blocks.saturating_sub(1).max(1);
        inode.mark_dirty(&self.ops.inodes, &mut state);
        Ok(())
    }

    /// Extends the file to data after its end, unless the inode's flag says that the data belongs
    /// there.
    fn grow(&self, inode: &Arc<Inode>, first: u64, pointers: &[BlockAddr]) -> Result<()> {
        let Some(last) = pointers.iter().rposition(|addr| *addr != BlockAddr::NULL) else {
            return Ok(());
        };
        let last = first.saturating_add(as_u64(last));
        let _op = self.op(0)?;
        let mut state = inode.state.write();
        if !state.record.advise.contains(Advise::KEEP_SIZE)
            && state.record.size <= last.saturating_mul(BLOCK_BYTES)
        {
            state.record.size = last.saturating_add(1).saturating_mul(BLOCK_BYTES);
            inode.mark_dirty(&self.ops.inodes, &mut state);
        }
        Ok(())
    }

    fn apply_xattr(&self, inode: &Arc<Inode>, image: &[u8]) -> Result<()> {
        let mut op = self.op(1)?;
        let nid = inode.state.read().record.xattr_nid;
        let node = if nid.is_none() {
            let made = tree::new_node(&mut op, inode, XATTR_OFFSET)?;
            let mut state = inode.state.write();
            state.record.xattr_nid = made.nid();
            inode.mark_dirty(&self.ops.inodes, &mut state);
            made
        } else {
            self.store.nodes.child(nid, inode.nid, XATTR_OFFSET)?
        };
        block::put(&mut node.modify(), 0, block::part(image, 0..FOOTER_AT));
        Ok(())
    }

    /// Makes the entry by which the inode was found, in place of another one of the same name.
    fn apply_entry(&self, inode: &Arc<Inode>, source: &Record) -> Result<()> {
        let directory = match self.ops.inodes.inode(source.pino.ino()) {
            Ok(directory) if directory.kind == FileKind::Directory => directory,
            // Cairn's fsync writes a checkpoint if the parent is not in the last one. Other writers
            // may not, so the parent may be missing.
            Ok(_) | Err(Error::Vfs(cairn_vfs::Error::Stale)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let disk = &self.ops.disk;
        let names = directory.with_record(|record| Names::of(record, disk.layout.features));
        if !matches!(names, Names::Encrypted { .. }) {
            source.entry_name(inode.nid)?;
        }
        let name = &*source.name;
        // A mount that cannot know all hashes is read-only.
        let hash = names.hash(name).ok_or(cairn_vfs::Error::Encrypted)?;
        let mut op = self.op(edit::BLOCKS)?;
        let Some(found) = lookup::locate(disk, &directory, name)? else {
            return edit::add_hashed(&mut op, &directory, (name, hash), inode.nid, inode.kind);
        };
        if found.nid == inode.nid {
            return Ok(());
        }
        edit::set_target(&mut op, &directory, &found, inode.nid, inode.kind)?;
        let replaced = self.ops.inodes.inode(found.nid.ino())?;
        let mut state = replaced.state.write();
        state.record.links = state.record.links.saturating_sub(1);
        if state.record.links == 0 {
            self.store.checkpoints.orphans.add(replaced.nid)?;
        }
        replaced.mark_dirty(&self.ops.inodes, &mut state);
        Ok(())
    }

    /// Truncates the blocks that the checkpoint's file had after its new end.
    fn finish(&self, inode: &Arc<Inode>) -> Result<()> {
        let (truncates, size) = {
            let record = &inode.state.read().record;
            let plain =
                record.kind == FileKind::Regular && !record.inline.contains(InlineFlags::DATA);
            (plain && !record.advise.contains(Advise::KEEP_SIZE), record.size)
        };
        if truncates {
            let mut op = self.op(0)?;
            truncate_blocks::truncate_within(&mut op, inode, size.div_ceil(BLOCK_BYTES))?;
        }
        Ok(())
    }
}

/// What roll-forward takes from the chain's inode; links, nodes and counts are the volume's.
fn copy_fields(record: &mut Record, source: &Record) {
    record.permissions = source.permissions;
    (record.uid, record.gid, record.size) = (source.uid, source.gid, source.size);
    (record.atime, record.ctime, record.mtime) = (source.atime, source.ctime, source.mtime);
    (record.advise, record.flags, record.current_depth) =
        (source.advise, source.flags, source.current_depth);
    record.inline = source.inline;
    record.ext = Default::default();
    if let (Some(extra), Some(from)) = (&mut record.extra, &source.extra) {
        extra.projid = from.projid;
    }
}

fn bad(entry: &ChainNode, what: &'static str, value: u32) -> Error {
    Corrupt::Node { nid: entry.footer.nid, addr: entry.addr, what, value: value.into() }.into()
}
