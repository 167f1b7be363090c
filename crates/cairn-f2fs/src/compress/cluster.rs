//! The contents of one cluster.

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

use std::sync::Arc;

use cairn_base::units::as_u64;
use cairn_block::BlockDevice;
use cairn_block::reserve::expect_room;

use super::cache::ClusterCache;
use super::mark;
use super::packed::{read_blocks, unpacked};
use super::pointers::pointers;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::units::{BLOCK_SIZE, BlockAddr};
use crate::inode::Inode;

/// The contents of the cluster that starts at a block: always a whole cluster.
pub(super) fn contents(
    disk: &Disk,
    clusters: &ClusterCache,
    inode: &Inode,
    record: &Record,
    start: u64,
) -> Result<Arc<[u8]>> {
    let key = (inode.nid, start);
    if let Some(contents) = clusters.get(key) {
        return Ok(contents);
    }
    let list = pointers(disk, inode, record, start)?;
    // Memory for the packed cluster, the unpacked one, and the kept copy.
    expect_room("a compressed cluster", as_u64(list.len().strict_mul(BLOCK_SIZE)).strict_mul(4))?;
    let contents: Arc<[u8]> = if list.first() == Some(&BlockAddr::COMPRESS) {
        Arc::from(unpacked(&*disk.device, inode.nid, record, start, &list)?)
    } else {
        let contents = plain(&*disk.device, &list)?;
        mark::check(disk, inode, record, (start, &list), &contents)?;
        Arc::from(contents)
    };
    clusters.put(key, contents.clone());
    Ok(contents)
}

fn plain(device: &dyn BlockDevice, list: &[BlockAddr]) -> Result<Vec<u8>> {
    let mut contents = vec![0; list.len().strict_mul(BLOCK_SIZE)];
    let present: Vec<BlockAddr> = list.iter().copied().filter(|addr| addr.is_address()).collect();
    let read = read_blocks(device, &present)?;
    let places =
        contents.chunks_exact_mut(BLOCK_SIZE).zip(list).filter(|(_, addr)| addr.is_address());
    for ((place, _), block) in places.zip(read.chunks_exact(BLOCK_SIZE)) {
        place.copy_from_slice(block);
    }
    Ok(contents)
}
