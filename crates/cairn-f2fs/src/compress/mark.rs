//! Clusters whose mark is lost: what follows it is packed, and the pointers say that it is not.
//!
//! The data shows it: its header fits the blocks, and it can be unpacked. Other contents may look
//! like that, too, so the count of saved blocks is asked: it misses the cluster. Blocks that were
//! given back are not counted. Then the first pointer must be empty besides: no program writes what
//! is packed behind a hole.

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

use cairn_base::units::{as_index, as_u64};
use cairn_block::BlockDevice;

use super::packed::{packed_blocks, unpacked};
use crate::corrupt::Corrupt;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::inode::{InlineFlags, Inode as Record};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid};
use crate::inode::Inode;
use crate::node::tree::{self, Leaf};

/// Is a cluster without a mark packed, as its data shows? `second` has the bytes of its second
/// block.
///
/// # Errors
/// The device failed.
pub(crate) fn looks_packed(
    device: &dyn BlockDevice,
    (ino, record): (Nid, &Record),
    (start, list): (u64, &[BlockAddr]),
    second: &[u8],
) -> Result<bool> {
    let behind = || list.iter().skip(1);
    let packed = behind().take_while(|addr| addr.is_address()).count();
    let is_run = packed == behind().filter(|addr| addr.is_address()).count();
    if packed == 0 || !is_run || packed_blocks(second) != Some(as_u64(packed)) {
        return Ok(false);
    }
    match unpacked(device, ino, record, start, list) {
        Ok(_) => Ok(true),
        Err(Error::Corrupt(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// May a cluster with this first pointer have lost its mark, if no count tells?
pub(crate) fn may_lack_mark(first: BlockAddr) -> bool {
    !first.is_address() && first != BlockAddr::COMPRESS
}

/// Checks that a cluster without a mark, with these contents, has not lost it.
///
/// # Errors
/// It has; or the device failed.
pub(super) fn check(
    disk: &Disk,
    inode: &Inode,
    record: &Record,
    (start, list): (u64, &[BlockAddr]),
    contents: &[u8],
) -> Result<()> {
    let second = contents.get(BLOCK_SIZE..BLOCK_SIZE.strict_mul(2)).unwrap_or_default();
    let counted = record.extra.map_or(0, |extra| extra.compr_blocks);
    let first = list.first().copied().unwrap_or_default();
    let is_released = record.inline.contains(InlineFlags::COMPRESS_RELEASED);
    let may_lack = if is_released { may_lack_mark(first) } else { counted > 0 };
    if !may_lack || !looks_packed(&*disk.device, (inode.nid, record), (start, list), second)? {
        return Ok(());
    }
    let error = || {
        let what = "the mark of a packed cluster is missing";
        Corrupt::Cluster { ino: inode.nid, block: start, what, value: first.get().into() }
    };
    if is_released {
        return Err(error().into());
    }
    match saved(disk, inode, record) {
        Ok(saved) if counted > saved => Err(error().into()),
        // What is damaged itself proves nothing.
        Ok(_) | Err(Error::Corrupt(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The blocks that the clusters with marks save.
fn saved(disk: &Disk, inode: &Inode, record: &Record) -> Result<u64> {
    let cluster = record.cluster_blocks().unwrap_or(1);
    let end = record.size.div_ceil(BLOCK_BYTES);
    let (mut saved, mut start) = (0_u64, 0_u64);
    while start < end {
        let pointers = match tree::find(&disk.nodes, inode.nid, record, start)? {
            Leaf::Hole(len) => {
                start = start.saturating_add(len.max(cluster.into()));
                continue;
            }
            Leaf::Node(pointers) => pointers,
        };
        for first in (0..pointers.len()).step_by(as_index(cluster)) {
            if pointers.get(record, first) == BlockAddr::COMPRESS {
                let rest = first.saturating_add(1)..first.saturating_add(cluster);
                let rest = rest.filter(|index| *index < pointers.len());
                let used = rest.filter(|index| pointers.get(record, *index).is_address());
                saved = saved.saturating_add(cluster.into()).saturating_sub(as_u64(used.count()));
            }
        }
        start = start.saturating_add(pointers.len().max(1).into());
    }
    Ok(saved)
}
