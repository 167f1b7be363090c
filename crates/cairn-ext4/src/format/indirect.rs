//! Block pointers of ext2 and ext3: the fifteen in the inode, and blocks of pointers.
//!
//! Source: "Direct/Indirect Block Addressing" in the kernel's ext4 documentation. `i_block[0..12]`
//! point to data; the next three point to a block of pointers, with one, two and three levels. Zero
//! is a hole at every level. The blocks have no checksum.

use super::extent::ROOT_BYTES;
use cairn_base::units::{as_index, as_u64};

/// Direct pointers in the inode.
pub(crate) const DIRECT: u64 = 12;
/// Pointers in the inode.
pub(crate) const SLOTS: usize = 15;

/// Pointers in one block.
#[must_use]
pub(crate) const fn pointers_per_block(block_size: u32) -> u64 {
    as_u64(as_index(block_size)) / 4
}

/// File blocks below one pointer of `level`; level 0 is data.
#[must_use]
pub(crate) fn span(level: u32, block_size: u32) -> u64 {
    pointers_per_block(block_size).pow(level)
}

/// File blocks that the fifteen pointers can map.
#[must_use]
pub(crate) fn max_blocks(block_size: u32) -> u64 {
    (1..=3).fold(DIRECT, |blocks, level| blocks.strict_add(span(level, block_size)))
}

/// Levels below a slot of the inode, and the first file block it maps.
#[must_use]
pub(crate) fn slot_range(slot: usize, block_size: u32) -> (u32, u64) {
    match slot {
        12 => (1, DIRECT),
        13 => (2, DIRECT.strict_add(span(1, block_size))),
        14.. => (3, DIRECT.strict_add(span(1, block_size)).strict_add(span(2, block_size))),
        direct => (0, as_u64(direct)),
    }
}

/// All pointers of a block or of `i_block`.
#[must_use]
pub(crate) fn decode(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|bytes: &[u8; 4]| u32::from_le_bytes(*bytes)).collect()
}

/// Encodes pointers into a block or `i_block`.
pub(crate) fn encode(pointers: &[u32], bytes: &mut [u8]) {
    for (slot, pointer) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(pointers) {
        *slot = pointer.to_le_bytes();
    }
}

/// The pointers in the inode.
#[must_use]
pub(crate) fn decode_inode(i_block: &[u8; ROOT_BYTES]) -> [u32; SLOTS] {
    let mut slots = [0; SLOTS];
    for (slot, bytes) in slots.iter_mut().zip(i_block.as_chunks::<4>().0) {
        *slot = u32::from_le_bytes(*bytes);
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_format() {
        assert_eq!(max_blocks(1024), 12 + 256 + 65536 + 16_777_216);
        assert_eq!(slot_range(11, 4096), (0, 11));
        assert_eq!(slot_range(12, 4096), (1, 12));
        assert_eq!(slot_range(13, 4096), (2, 1036));
        assert_eq!(slot_range(14, 4096), (3, 1_049_612));
    }

    #[test]
    fn pointers_round_trip() {
        let mut bytes = [0; ROOT_BYTES];
        let pointers: Vec<u32> = (1..=15).map(|n| n * 0x0101_0101).collect();
        encode(&pointers, &mut bytes);
        assert_eq!(bytes[4..8], [2, 2, 2, 2]);
        assert_eq!(decode(&bytes), pointers);
        assert_eq!(decode_inode(&bytes)[..], pointers[..]);
    }
}
