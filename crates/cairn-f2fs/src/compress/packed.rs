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

use cairn_base::units::{as_index, as_u64};
use cairn_block::{Batch, BlockDevice, Durability, IoBuf, Request};

use super::unpack;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::block::is_zero;
use crate::format::checksum::{MAGIC, crc32};
use crate::format::inode::Inode as Record;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BlockAddr, Nid};

/// Bytes before the packed data: length, checksum, 16 reserved.
pub(super) const HEADER: usize = 24;
/// The checksum in the header.
const CHECKSUM: std::ops::Range<usize> = 4..8;
/// Reserved bytes of the header of packed data: zeros.
const RESERVED: std::ops::Range<usize> = 8..HEADER;
/// Bit of `i_compress_flag`: clusters have a checksum.
const HAS_CHECKSUM: u16 = 1;

/// Do the clusters of a file with this `i_compress_flag` have checksums?
pub(crate) const fn has_checksum(flag: u16) -> bool {
    flag & HAS_CHECKSUM != 0
}

/// `i_compress_flag` of a file whose clusters have none.
pub(crate) const fn without_checksum(flag: u16) -> u16 {
    flag & !HAS_CHECKSUM
}

/// Has the packed data that begins with this block no checksum?
pub(crate) fn lacks_checksum(first: &[u8]) -> bool {
    first.get(CHECKSUM).is_some_and(is_zero) && packed_blocks(first).is_some()
}

/// How many blocks the packed data that begins with this block has; `None` if it is none.
pub(crate) fn packed_blocks(first: &[u8]) -> Option<u64> {
    let len = u32::from_le_bytes(*first.first_chunk()?);
    let is_header = len > 0 && first.get(RESERVED).is_some_and(is_zero);
    let bytes = u64::from(len).saturating_add(as_u64(HEADER));
    is_header.then(|| bytes.div_ceil(BLOCK_BYTES))
}

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
    if has_checksum(extra.compress_flag) && stored != computed {
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
