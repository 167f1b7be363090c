//! The checksum of an attribute block.

use cairn_base::checksum::crc32c;
use cairn_base::{Ino, Pba};
use zerocopy::little_endian::U32;

use super::super::buffer;
use super::{CHECKSUM_AT, RawBlockHeader, check_header, header};
use crate::checksum::MetadataChecksum;
use crate::corrupt::Corrupt;

fn block_checksum(block: &[u8], pba: Pba, seed: u32) -> u32 {
    let sum = crc32c(seed, &pba.get().to_le_bytes());
    let sum = crc32c(sum, block.get(..CHECKSUM_AT).unwrap_or(&[]));
    let sum = crc32c(sum, &[0; 4]);
    crc32c(sum, block.get(CHECKSUM_AT + 4..).unwrap_or(&[]))
}

/// Writes the checksum of a block. Does nothing without metadata_csum.
///
/// # Panics
/// If the block is shorter than a header.
pub(crate) fn seal_block(block: &mut [u8], pba: Pba, checksum: MetadataChecksum) {
    if let Some(seed) = checksum.seed() {
        let sum = block_checksum(block, pba, seed);
        buffer::structure::<RawBlockHeader>(block, 0).h_checksum = U32::new(sum);
    }
}

/// Verifies header and checksum of a block.
///
/// # Errors
/// The header is invalid or the checksum is wrong.
pub(crate) fn verify_block(
    block: &[u8],
    pba: Pba,
    checksum: MetadataChecksum,
    ino: Ino,
) -> Result<(), Corrupt> {
    check_header(block, ino)?;
    let Some(seed) = checksum.seed() else { return Ok(()) };
    let stored = header(block).map_or(0, |header| header.h_checksum.get());
    let computed = block_checksum(block, pba, seed);
    if stored == computed {
        Ok(())
    } else {
        Err(Corrupt::Checksum { what: "attribute block", place: pba.get(), stored, computed })
    }
}
