//! Inline data: contents in the inode's own node, of short files and symbolic links.

use std::sync::Arc;

use cairn_block::BlockDeviceExt;
use cairn_cache::block::Image;
use cairn_vfs::{Error as VfsError, FileKind, IoFlags};

use super::attributes::{modified, written};
use super::{Inode, tree};
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::inode::InlineFlags;
use crate::format::units::BLOCK_SIZE;
use crate::format::{BlockAddr, Log};
use crate::op::Operations;
use crate::segment;

/// Copies from `offset` on; returns the bytes copied.
pub(crate) fn copy_from(contents: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let from =
        usize::try_from(offset).ok().and_then(|offset| contents.get(offset..)).unwrap_or_default();
    let len = from.len().min(buf.len());
    buf[..len].copy_from_slice(&from[..len]);
    len
}

/// All contents of a file or link that lives in its inode.
///
/// # Errors
/// The inode is damaged, or the device failed.
pub(crate) fn contents(disk: &Disk, inode: &Inode) -> Result<Vec<u8>> {
    let image = image(disk, inode)?;
    let (range, size) = inode.with_record(|record| (record.inline_data_range(), record.size));
    let room = image.get(range).unwrap_or_default();
    let len = usize::try_from(size).unwrap_or(usize::MAX).min(room.len());
    Ok(room[..len].to_vec())
}

/// The node. If the contents show that the size is wrong, who read to the end, or cleared what is
/// behind it, would lose the rest.
fn image(disk: &Disk, inode: &Inode) -> Result<Image> {
    let image = disk.nodes.inode(inode.nid)?.ok_or(VfsError::Stale)?;
    let (end, size) = inode.with_record(|record| (record.inline_size(&image), record.size));
    // The target of a link has its own check.
    if inode.kind != FileKind::Regular || end <= size {
        return Ok(image);
    }
    let expected = "the contents in the inode go on behind it";
    Err(Corrupt::Inode { ino: inode.nid, field: "i_size", value: size, expected }.into())
}

/// Writes into the inode itself, if the contents still fit there.
pub(super) fn write(
    ops: &Operations,
    inode: &Arc<Inode>,
    offset: u64,
    data: &[u8],
    flags: IoFlags,
) -> Result<bool> {
    let (room, old) = {
        let state = inode.state.read();
        (state.record.inline_data_range(), state.record.size)
    };
    let end = offset.saturating_add(data.len() as u64);
    if end > room.len() as u64 {
        return Ok(false);
    }
    image(&ops.disk, inode)?;
    let at = |byte: u64| room.start + usize::try_from(byte).expect("within a block");
    ops.change(0, |op| {
        let node = tree::own_node(op.store, inode)?;
        let mut image = node.modify();
        if old < offset {
            image[at(old)..at(offset)].fill(0);
        }
        image[at(offset)..at(end)].copy_from_slice(data);
        drop(image);
        let mut state = inode.state.write();
        state.record.inline.insert(InlineFlags::DATA_EXIST);
        state.record.size = old.max(end);
        written(&ops.inodes, inode, &mut state, flags);
        Ok(())
    })?;
    Ok(true)
}

/// Changes the size of contents that fit into the inode before and after.
pub(super) fn resize(ops: &Operations, inode: &Arc<Inode>, size: u64) -> Result<()> {
    if size > inode.size() {
        image(&ops.disk, inode)?;
    }
    ops.change(0, |op| {
        let node = tree::own_node(op.store, inode)?;
        let mut state = inode.state.write();
        let room = state.record.inline_data_range();
        let keep = usize::try_from(size.min(state.record.size)).expect("within a block");
        node.modify()[room.start + keep..room.end].fill(0);
        if size == 0 {
            state.record.inline.remove(InlineFlags::DATA_EXIST);
        }
        state.record.size = size;
        modified(&ops.inodes, inode, &mut state);
        Ok(())
    })
}

/// Moves contents from the inode into a block. The block is written before the inode points to it,
/// so a crash finds the contents in one place or the other. Call with inode.data alone.
pub(super) fn spill(ops: &Operations, inode: &Arc<Inode>) -> Result<()> {
    let mut contents = self::contents(&ops.disk, inode)?;
    let empty = contents.iter().all(|byte| *byte == 0);
    contents.resize(BLOCK_SIZE, 0);
    let room = inode.state.read().record.inline_data_range();
    ops.change(u64::from(!empty), |op| {
        let node = tree::own_node(op.store, inode)?;
        let mut first = BlockAddr::NULL;
        if !empty {
            let owner = segment::Owner { nid: node.nid(), version: node.version(), ofs_in_node: 0 };
            first = op.store.segments.place(Log::WarmData, &[owner])?.address;
            op.reservation.take(1);
            op.store.device.write_at(first.bytes(), contents)?;
            inode.ledger.wrote();
        }
        inode.drop_hint(&ops.inodes);
        inode.map.forget_from(0);
        let mut state = inode.state.write();
        state.record.inline.remove(InlineFlags::DATA | InlineFlags::DATA_EXIST);
        state.record.blocks += u64::from(!empty);
        inode.mark_dirty(&ops.inodes, &mut state);
        let mut image = node.modify();
        // This includes the reserved word before the contents.
        image[room.start - 4..room.end].fill(0);
        state.record.encode_inline(&mut image);
        if !empty {
            state.record.set_data_pointer(&mut image, 0, first);
        }
        Ok(())
    })
}
