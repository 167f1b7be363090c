//! The name of an inode for roll-forward, after a link or rename.
//!
//! Roll-forward restores one name of an inode, and cannot remove one. So a link or rename marks the
//! inode (`LOST_PINO`), and its fsyncs write checkpoints. When a checkpoint has all its names and
//! there is only one, that name is looked up and the mark is removed: later nodes have the right
//! parent.
//!
//! Locking: the parent's `namespace`, shared, so that the name stays while the record is changed.

use std::sync::Arc;

use cairn_cache::durability::Part;
use cairn_vfs::{FileKind, Name};

use crate::dir::lookup;
use crate::error::Result;
use crate::format::Nid;
use crate::format::inode::{Advise, Inode as Record};
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::op::Op;
use crate::store::Store;

/// Names that an inode is known to have had, besides the one in its record.
const REMEMBERED: usize = 4;

/// Records that this operation changes the names of an inode.
pub(super) fn changed(op: &Op<'_>, inode: &Inode) {
    inode.ledger.changed(Part::Names, op.store.checkpoints.version());
}

/// Remembers a name that the inode has or had: it may be the only one left.
pub(super) fn remember(inode: &Inode, parent: Nid, name: &[u8]) {
    let mut known = inode.known_names.lock();
    known.retain(|(other, others)| (*other, &**others) != (parent, name));
    known.push((parent, name.to_vec()));
    if known.len() > REMEMBERED {
        known.remove(0);
    }
}

/// True if roll-forward does not know the inode's name, but could.
pub(super) fn is_lost(inode: &Inode) -> bool {
    let state = inode.state.read();
    state.record.advise.contains(Advise::LOST_PINO)
        && inode.kind == FileKind::Regular
        && state.record.links == 1
}

/// Sets the parent and the name by which roll-forward finds an inode, and fsck a directory.
pub(super) fn named(record: &mut Record, parent: Nid, name: Name<'_>) {
    record.pino = parent;
    record.name = name.bytes().into();
}

/// Finds the inode's name and stores it for roll-forward, if possible. Call it with no lock held.
///
/// # Errors
/// The volume has stopped. It is not an error if no name is found.
pub(crate) fn fix_pino(inodes: &Inodes, store: &Store, inode: &Arc<Inode>) -> Result<()> {
    if !is_lost(inode) {
        return Ok(());
    }
    let last = store.checkpoints.last().version;
    if inode.ledger.last_change(Part::Names).is_some_and(|changed| changed >= last) {
        return Ok(());
    }
    let recorded = {
        let state = inode.state.read();
        (state.record.pino, state.record.name.to_vec())
    };
    let mut candidates = vec![recorded];
    candidates.extend(inode.known_names.lock().iter().rev().cloned());
    for (parent, name) in &candidates {
        if fix_pino_by(inodes, store, inode, *parent, name)? {
            break;
        }
    }
    Ok(())
}

fn fix_pino_by(
    inodes: &Inodes,
    store: &Store,
    inode: &Arc<Inode>,
    parent: Nid,
    name: &[u8],
) -> Result<bool> {
    // The stored name may be impossible, and the parent may be gone or be another inode now.
    let Ok(name) = Name::check(name) else { return Ok(false) };
    let Ok(directory) = inodes.inode(parent.ino()) else { return Ok(false) };
    let _names = directory.namespace.read();
    let leads_here = matches!(lookup::find(&inodes.disk, &directory, name.bytes()),
        Ok(Some((nid, _))) if nid == inode.nid);
    if !leads_here {
        return Ok(false);
    }
    let _inside = store.operation_lock.lock_op()?;
    let mut state = inode.state.write();
    let last = store.checkpoints.last().version;
    let settled = inode.ledger.last_change(Part::Names).is_none_or(|changed| changed < last);
    if state.record.links == 1 && settled && !state.deleted {
        named(&mut state.record, parent, name);
        state.record.advise.remove(Advise::LOST_PINO);
        inode.mark_dirty(inodes, &mut state);
    }
    Ok(true)
}
