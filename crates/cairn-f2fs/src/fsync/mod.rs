//! Makes one file durable: writes its data, then its nodes where roll-forward finds them, and then
//! flushes the device once. It writes a checkpoint only where Linux needs one, too.
//!
//! While a checkpoint is in flight, nodes are written behind it. They are valid only when it is on
//! the medium, so the fsync waits for it. An fsync that finds nothing to write waits as well,
//! because the changes of its file may be part of that checkpoint.

mod chain;

use std::sync::Arc;

use cairn_base::sabotage::Safeguard;
use cairn_cache::durability::Part;
use cairn_cache::writeback::WritebackMode;
use cairn_vfs::FileKind;

use crate::checkpoint::{Announced, Reason};
use crate::error::Result;
use crate::format::inode::{Advise, Inode as Record};
use crate::format::node::Marks;
use crate::format::path::NodeKind;
use crate::inode::{Inode, writeback};
use crate::namespace::parent;
use crate::op::Operations;
use crate::store::Store;

pub(crate) use chain::{FsyncStats, Fsyncs};

/// `fsync` and `fdatasync` of one inode. Does nothing on a volume that was mounted read-only.
///
/// # Errors
/// A write failed, also one in the background since the last fsync; or the volume has stopped.
pub(crate) fn fsync(ops: &Operations, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    let Some(store) = &ops.disk.store else { return Ok(()) };
    store.operation_lock.check_durable()?;
    if ops.mount.is_read_only() {
        return Ok(());
    }
    ops.fsyncs.stats.calls.add(1);
    let announced = store.checkpoints.announce();
    if inode.kind == FileKind::Regular {
        let _data = inode.data.read();
        writeback::write_back(ops, inode, 0..u64::MAX, WritebackMode::Sync)?;
    }
    // While checkpoints are disabled, changes need not survive a crash.
    if inode.state.read().deleted || store.checkpoints.is_disabled() {
        return Ok(());
    }
    parent::fix_pino(&ops.inodes, store, inode)?;
    if must_checkpoint(store, inode)? && !Safeguard::FsyncCheckpoint.is_off() {
        return checkpoint(&ops.fsyncs, store, inode, announced);
    }
    ops.room()?;
    if !recovery_has_room(&ops.fsyncs, store) {
        return checkpoint(&ops.fsyncs, store, inode, announced);
    }
    // No checkpoint is needed.
    drop(announced);
    let written = {
        let _order = inode.sync.order.lock();
        write_nodes(ops, store, inode, data_only)?
    };
    if !written {
        return checkpoint(&ops.fsyncs, store, inode, store.checkpoints.announce());
    }
    ops.fsyncs.flush(inode, inode.ledger.written())?;
    store.checkpoints.wait_for_checkpoint_in_flight()
}

fn checkpoint(
    fsyncs: &Fsyncs,
    store: &Store,
    inode: &Inode,
    announced: Announced<'_>,
) -> Result<()> {
    fsyncs.stats.checkpoints.add(1);
    let written = inode.ledger.written();
    store.checkpoints.request(Reason::Fsync, announced)?;
    // Usually the checkpoint has flushed the device, but not if there was nothing to write.
    fsyncs.flush(inode, written)
}

/// Writes the nodes that roll-forward needs. False if it needs a checkpoint instead.
///
/// Attributes that do not fit into the inode go on in a node of their own. One of the two without
/// the other is damage, so roll-forward must get both or none: only the last node has the mark, and
/// a new inode, which roll-forward finds by its own mark, takes a checkpoint.
fn write_nodes(
    ops: &Operations,
    store: &Store,
    inode: &Arc<Inode>,
    data_only: bool,
) -> Result<bool> {
    let _inside = store.operation_lock.lock_op()?;
    let version = store.checkpoints.version();
    let known = store.nat.is_committed(inode.nid)?;
    let first = !known && !inode.ledger.changed_in(Part::Logged, version);
    if !data_only || first || !only_times_differ(store, inode)? {
        inode.write_inode(&ops.inodes)?;
    }
    let mut nodes = store.nodes.marked(inode.nid, first);
    // The inode comes first, because roll-forward needs it for the other nodes.
    nodes.sort_by_key(|(node, _)| node.nid() != inode.nid);
    if nodes.iter().any(|(node, _)| node.kind() == NodeKind::Xattr) {
        if first {
            return Ok(false);
        }
        if let Some((_, before)) = nodes.split_last_mut() {
            before.iter_mut().for_each(|(_, marks)| marks.remove(Marks::FSYNC));
        }
    }
    if nodes.is_empty() {
        ops.fsyncs.stats.data_only.add(1);
        return Ok(true);
    }
    let outcome = store.nodes.write(&nodes);
    if let Err(error) = &outcome {
        // The NAT names blocks that may not have been written.
        store.operation_lock.stop_for("node blocks could not be written", error);
    }
    outcome?;
    inode.ledger.wrote();
    inode.ledger.changed(Part::Logged, version);
    ops.fsyncs.extend_chain(version, nodes.len() as u64);
    ops.fsyncs.stats.nodes.add(1);
    Ok(true)
}

/// True if only times differ between the inode and its node.
fn only_times_differ(store: &Store, inode: &Arc<Inode>) -> Result<bool> {
    let Some(node) = store.nodes.inode(inode.nid)? else { return Ok(false) };
    let mut stored = Record::decode(&node.image(), inode.nid, store.layout.features)?;
    let state = inode.state.read();
    let record = &state.record;
    (stored.atime, stored.mtime, stored.ctime) = (record.atime, record.mtime, record.ctime);
    if let (Some(stored), Some(record)) = (&mut stored.extra, &record.extra) {
        stored.inode_checksum = record.inode_checksum;
    }
    Ok(stored == *record)
}

/// Linux's list of what roll-forward cannot do.
fn must_checkpoint(store: &Store, inode: &Inode) -> Result<bool> {
    let version = store.checkpoints.version();
    let (links, advise, pino, compressed) = {
        let state = inode.state.read();
        let record = &state.record;
        (record.links, record.advise, record.pino, record.cluster_blocks().is_some())
    };
    if inode.kind != FileKind::Regular
        || links != 1
        || compressed
        || advise.contains(Advise::LOST_PINO)
    {
        return Ok(true);
    }
    // Nodes that have left the tree are still in the checkpoint's tree, and the chain does not
    // record their removal.
    if inode.ledger.changed_in(Part::Data, version) || !has_roll_forward_space(store) {
        return Ok(true);
    }
    Ok(!store.nat.is_committed(pino)?)
}

/// Recovery writes every node of the chain again before any block becomes free, so it needs that
/// many free blocks now.
fn recovery_has_room(fsyncs: &Fsyncs, store: &Store) -> bool {
    let chain = fsyncs.extend_chain(store.checkpoints.version(), 0);
    store.segments.free_sections() >= store.segments.needed_for_recovery(chain)
}

/// Roll-forward adds blocks that came into use to the checkpoint's, before it subtracts any.
fn has_roll_forward_space(store: &Store) -> bool {
    store.checkpoints.valid_blocks() + store.space.taken() <= store.space.user_blocks()
}
