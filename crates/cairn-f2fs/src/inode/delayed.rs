//! Delayed blocks: the space that a write reserves, and the slots that write-back gives them.

use std::sync::Arc;

use cairn_cache::mapper::Run;

use super::{Inode, tree};
use crate::error::Result;
use crate::op::Operations;
use crate::store::Store;

/// Reserves space for a hole that begins at `start`, `len` blocks at most: under pressure fewer,
/// but at least one. Returns how many. The caller holds
/// [`crate::operation_lock::OperationLock::lock_data`] and inode.data exclusively.
///
/// # Errors
/// No space for a single one, a node on the way is damaged, or the device failed.
pub(crate) fn reserve(store: &Store, inode: &Inode, start: u64, len: u64) -> Result<u64> {
    let shape = inode.shape();
    let (mut missing, mut at) = (Vec::new(), start);
    while at < start + len {
        let path = shape.locate(at).ok_or(cairn_vfs::Error::TooLarge)?;
        let lacking = tree::missing(store, inode, &path)?;
        if !lacking.is_empty() {
            missing.push((at, lacking));
        }
        at += u64::from(path.rest);
    }
    inode.map.reserve(&store.space, start, len, &missing)
}

/// Gives the delayed blocks of a run their slots. The caller holds
/// [`crate::operation_lock::OperationLock::lock_data`] and inode.data.
///
/// # Errors
/// A node on the way is damaged, no nid is free, or the device failed: blocks without a slot stay
/// delayed.
pub(crate) fn allocate_slots(ops: &Operations, inode: &Arc<Inode>, run: Run) -> Result<()> {
    let (mut at, end) = (run.start.get(), run.start.get().saturating_add(run.len));
    if inode.map.next_delayed(at, end).is_none() {
        return Ok(());
    }
    let _allocating = inode.map.allocating_slots.lock();
    while let Some(delayed) = inode.map.next_delayed(at, end) {
        let done = allocate_first_slots(ops, inode, delayed)?;
        at = delayed.start.get() + done;
    }
    Ok(())
}

/// Does so for the blocks of one node. Returns how many these are.
fn allocate_first_slots(ops: &Operations, inode: &Arc<Inode>, run: Run) -> Result<u64> {
    let store = ops.store()?;
    let shape = inode.shape();
    let path = shape.locate(run.start.get()).ok_or(cairn_vfs::Error::TooLarge)?;
    let run = Run { start: run.start, len: run.len.min(path.rest.into()) };
    let path_nodes = &path.offsets[1..=path.depth];
    let lacking = tree::missing(store, inode, &path)?;
    let mut reservation = match inode.map.take(run, path_nodes) {
        Some(reservation) => reservation,
        None => store.space.reserve(0)?,
    };
    // A truncation may have removed a node of the path since the reservation.
    let short = (run.len + lacking.len() as u64).saturating_sub(reservation.left());
    if short > 0 {
        match store.space.reserve(short) {
            Ok(more) => reservation = reservation.join(more),
            Err(error) => {
                inode.map.put_back(reservation, shape);
                return Err(error);
            }
        }
    }
    inode.drop_hint(&ops.inodes);
    let mut op = ops.begin_reserved(reservation)?;
    let made = tree::make(&mut op, inode, run.start.get());
    match made {
        Ok(pointer) => {
            let count = u32::try_from(run.len).expect("within a node");
            let filled = u64::from(pointer.fill_run(count));
            op.reservation.take(filled);
            if filled > 0 {
                tree::count_blocks(&op, inode, filled.cast_signed());
            }
            inode.map.slots_allocated(run, path_nodes);
            Ok(run.len)
        }
        Err(error) => {
            let left = op.reservation.left();
            inode.map.put_back(op.reservation.split(left), shape);
            Err(error)
        }
    }
}
