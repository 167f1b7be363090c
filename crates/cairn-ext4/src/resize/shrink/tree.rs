//! Blocks of maps behind the new end move: nodes of extent trees, and pointer blocks.
//!
//! Their checksums do not follow from their places, so a copy is whole, and only the pointer above
//! it changes. A node moves in one transaction, those above before those below.

use cairn_base::{Ino, Pba};

use super::session::Session;
use crate::error::Result;
use crate::format::extent::{Entries, MAX_DEPTH, Node, NodeView, Site};
use crate::format::indirect;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

/// Levels of pointer blocks.
const LEVELS: u32 = 3;

/// Moves the blocks of an inode's map.
///
/// # Errors
/// There is no room, the map is damaged, or the device failed.
pub(super) fn move_all(session: &Session, ino: Ino, record: &mut Record) -> Result<()> {
    if record.flags.contains(InodeFlags::EXTENTS) {
        let root = NodeView::parse(&record.block, None, Site { ino, pba: Pba(0) })?.decode();
        return nodes(session, ino, record, None, root);
    }
    for slot in as_slots() {
        let level = u32::try_from(slot).unwrap_or(0) - 11;
        let mut pointers = indirect::decode_inode(&record.block).to_vec();
        let Some(pointer) = pointers.get(slot).copied().filter(|pointer| *pointer != 0) else {
            continue;
        };
        let mut at = Pba(pointer.into());
        if let Some((handle, to)) = moved(session, at)? {
            if let Some(place) = pointers.get_mut(slot) {
                *place = u32::try_from(to.get()).unwrap_or(0);
            }
            indirect::encode(&pointers, &mut record.block);
            session.put(&handle, ino, Some(record))?;
            handle.finish();
            at = to;
        }
        pointer_blocks(session, at, level)?;
    }
    Ok(())
}

/// The slots of `i_block` with pointer blocks.
fn as_slots() -> std::ops::Range<usize> {
    12..indirect::SLOTS
}

/// If the block lies behind the end, a handle in which it has moved, and where it is.
fn moved(session: &Session, pba: Pba) -> Result<Option<(Handle, Pba)>> {
    if pba.get() < session.end.get() {
        return Ok(None);
    }
    let found = session.allocate(session.end, 1)?;
    let handle = session.begin(session.credits.map_extent + session.credits.remove_step)?;
    session.space.mark(&handle, &found)?;
    let image = session.buffers().get(pba)?.image();
    let buffer = handle.create(found.start)?;
    handle.write(&buffer)?.copy_from_slice(&image);
    session.space.free(&handle, pba, 1, Freed::Metadata)?;
    Ok(Some((handle, found.start)))
}

/// Moves the children of a node, which is the inode's root or lies in a block.
fn nodes(
    session: &Session,
    ino: Ino,
    record: &mut Record,
    place: Option<Pba>,
    mut node: Node,
) -> Result<()> {
    let Entries::Inner(children) = node.entries.clone() else { return Ok(()) };
    let depth = node.depth.saturating_sub(1);
    for (index, child) in children.iter().enumerate().take(usize::from(u16::MAX)) {
        let mut at = child.child;
        if let Some((handle, to)) = moved(session, at)? {
            if let Entries::Inner(entries) = &mut node.entries
                && let Some(entry) = entries.get_mut(index)
            {
                entry.child = to;
            }
            match place {
                None => {
                    node.encode_root(&mut record.block);
                    session.put(&handle, ino, Some(record))?;
                }
                Some(pba) => {
                    let buffer = session.buffers().get(pba)?;
                    let mut block = handle.write(&buffer)?;
                    node.encode_block(&mut block, record.seed(ino, &session.layout));
                }
            }
            handle.finish();
            at = to;
        }
        if depth > 0 && depth < MAX_DEPTH {
            let image = session.buffers().get(at)?.image();
            let below = NodeView::parse(&image, Some(depth), Site { ino, pba: at })?.decode();
            nodes(session, ino, record, Some(at), below)?;
        }
    }
    Ok(())
}

/// Moves the pointer blocks that a pointer block of this level points to.
fn pointer_blocks(session: &Session, at: Pba, level: u32) -> Result<()> {
    if level <= 1 || level > LEVELS {
        return Ok(());
    }
    let pointers = indirect::decode(&session.buffers().get(at)?.image());
    for (index, pointer) in pointers.iter().enumerate().filter(|(_, pointer)| **pointer != 0) {
        let mut below = Pba((*pointer).into());
        if let Some((handle, to)) = moved(session, below)? {
            let buffer = session.buffers().get(at)?;
            {
                let mut block = handle.write(&buffer)?;
                let word = u32::try_from(to.get()).unwrap_or(0).to_le_bytes();
                if let Some(place) = block.get_mut(index * 4..index * 4 + 4) {
                    place.copy_from_slice(&word);
                }
            }
            handle.finish();
            below = to;
        }
        pointer_blocks(session, below, level - 1)?;
    }
    Ok(())
}
