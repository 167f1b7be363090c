//! Packed clusters: the header of the data, its checksum, and what it is unpacked to.

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

use cairn_base::units::as_index;
use cairn_block::{Batch, BlockDevice, Durability, IoBuf, Request};

use super::unpack;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checksum::{MAGIC, crc32};
use crate::format::inode::Inode as Record;
use crate::format::units::{BLOCK_SIZE, BlockAddr, Nid};

/// Bytes before the packed data: length, checksum, 16 reserved.
pub(super) const HEADER: usize = 24;
/// Bit of `i_compress_flag`: clusters have a checksum.
const HAS_CHECKSUM: u16 = 1;

pub(super) fn read_blocks(device: &dyn BlockDevice, list: &[BlockAddr]) -> Result<Vec<u8>> {
    let read =
        |addr: &BlockAddr| Request::Read { offset: addr.bytes(), buf: IoBuf::zeroed(BLOCK_SIZE) };
    let requests = list.iter().map(read).collect();
    let blocks = device.submit(Batch { requests, durability: Durability::default() }).wait()?;
    Ok(blocks.iter().flat_map(|block| block.iter().copied()).collect())
}

/// The contents of a packed cluster, by its pointers.
///
/// # Errors
/// The cluster is damaged, or the device failed.
pub(super) fn unpacked(
    device: &dyn BlockDevice,
    ino: Nid,
    record: &Record,
    start: u64,
    list: &[BlockAddr],
) -> Result<Vec<u8>> {
    let bad = |what, value: u64| Corrupt::Cluster { ino, block: start, what, value };
    let packed: Vec<BlockAddr> =
        list.iter().copied().skip(1).take_while(|addr| addr.is_address()).collect();
    let bytes = read_blocks(device, &packed)?;
    let word =
        |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let (Some(len), Some(stored)) = (word(0), word(4)) else {
        return Err(bad("the cluster has no block of data", 0).into());
    };
    let data = bytes.get(HEADER..HEADER.saturating_add(as_index(len)));
    let data = data.ok_or_else(|| bad("the packed data is longer than its blocks", len.into()))?;
    let extra = record.extra.unwrap_or_default();
    let computed = crc32(MAGIC, data);
    if extra.compress_flag & HAS_CHECKSUM != 0 && stored != computed {
        let place = ino.get().into();
        return Err(Corrupt::Checksum {
            what: "compressed cluster of inode",
            place,
            stored,
            computed,
        }
        .into());
    }
    let size = list.len().strict_mul(BLOCK_SIZE);
    let mut contents = unpack::unpack(extra.compress_algorithm, data, size)
        .map_err(|what| bad(what, len.into()))?;
    // The last cluster of a file may have been packed without the part after the end.
    contents.resize(size, 0);
    Ok(contents)
}
