//! Compressed files: clusters of 4 to 256 blocks, each packed by itself.
//!
//! The first pointer of a packed cluster is the mark `COMPRESS`; the blocks of the packed data
//! follow it, the rest is holes. Packed data begins with its length, a checksum (used if the inode
//! says so) and 16 bytes that are reserved. A cluster that did not get smaller has ordinary
//! pointers.
//!
//! Compressed files do not go through the page cache: whole clusters are unpacked and the last few
//! of the volume are kept.

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

mod cache;
mod cluster;
mod lzo;
mod mark;
mod packed;
mod pointers;
mod unpack;

use cairn_base::Pba;
use cairn_base::units::as_u64;
use cairn_block::BlockDevice;

pub(crate) use cache::ClusterCache;
pub(crate) use mark::{looks_packed, may_lack_mark};
pub(crate) use packed::{has_checksum, lacks_checksum, packed_blocks, without_checksum};

use pointers::pointers;

use crate::disk::Disk;
use crate::error::Result;
use crate::format::inode::Inode as Record;
use crate::format::units::{BLOCK_BYTES, BlockAddr, Nid};
use crate::inode::{Inode, inline};

/// Reads from a compressed file of `size` bytes; `offset` is before its end.
///
/// # Errors
/// A cluster or the node tree is damaged, or the device failed.
pub(crate) fn read(
    disk: &Disk,
    clusters: &ClusterCache,
    inode: &Inode,
    size: u64,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let record = inode.record();
    let blocks = u64::from(record.cluster_blocks().unwrap_or(1));
    let cluster_bytes = blocks.strict_mul(BLOCK_BYTES);
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let buf_len = buf.len().min(left);
    let mut done = 0;
    while done < buf_len {
        let at = offset.saturating_add(as_u64(done));
        let contents = cluster::contents(
            disk,
            clusters,
            inode,
            &record,
            at.strict_div(cluster_bytes).saturating_mul(blocks),
        )?;
        let from = usize::try_from(at.strict_rem(cluster_bytes)).unwrap_or(0);
        let copied = inline::copy_from(
            &contents,
            as_u64(from),
            buf.get_mut(done..buf_len).unwrap_or_default(),
        );
        // Clusters are never shorter than they must be.
        assert!(copied > 0, "a cluster of {} bytes has none at {from}", contents.len());
        done = done.saturating_add(copied);
    }
    Ok(done)
}

/// The contents of a packed cluster of a volume that is not mounted, by its pointers: the mark, and
/// then the addresses of the packed data.
///
/// # Errors
/// The cluster is damaged, or the device failed.
pub(crate) fn unpack_cluster(
    device: &dyn BlockDevice,
    ino: Nid,
    record: &Record,
    start: u64,
    pointers: &[BlockAddr],
) -> Result<Vec<u8>> {
    packed::unpacked(device, ino, record, start, pointers)
}

/// True if the cluster that starts at this block is compressed.
///
/// # Errors
/// The node tree is damaged, or the device failed.
pub(crate) fn is_compressed(disk: &Disk, inode: &Inode, start: u64) -> Result<bool> {
    Ok(pointers(disk, inode, &inode.record(), start)?.first() == Some(&BlockAddr::COMPRESS))
}

/// The first block of the packed data of a cluster.
///
/// # Errors
/// As [`is_compressed`].
pub(crate) fn first_address(disk: &Disk, inode: &Inode, start: u64) -> Result<Option<Pba>> {
    let pointers = pointers(disk, inode, &inode.record(), start)?;
    Ok(pointers.iter().find(|addr| addr.is_address()).map(|addr| addr.pba()))
}
