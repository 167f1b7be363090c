//! Leaf blocks of a directory: the tail with the checksum.

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_u64, stored};
use cairn_base::{FileBlock, Ino};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::super::buffer;
use super::{Defect, DirFormat, RawDirEntryTail, TAIL_FILE_TYPE, TAIL_LEN, pack};
use crate::corrupt::Corrupt;

/// Writes the tail with the block's checksum. Does nothing without metadata_csum.
///
/// # Panics
/// If the block is shorter than the format's block size.
pub(crate) fn seal_leaf(block: &mut [u8], format: &DirFormat) {
    let Some(seed) = format.seed.0 else { return };
    let (entries, tail) = block.split_at_mut(format.leaf_len());
    *buffer::structure(tail, 0) = RawDirEntryTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: U16::new(stored(TAIL_LEN)),
        det_reserved_zero2: 0,
        det_reserved_ft: TAIL_FILE_TYPE,
        det_checksum: U32::new(crc32c(seed, entries)),
    };
}

/// Verifies the tail and the checksum of a leaf. `place` is the block's number for the error.
///
/// # Errors
/// The tail is missing or the checksum is wrong.
pub(crate) fn verify_leaf(
    block: &[u8],
    format: &DirFormat,
    ino: Ino,
    place: FileBlock,
) -> Result<(), Corrupt> {
    if block.len() != format.block_size {
        return Err(Defect { offset: 0, what: "block is too short", value: as_u64(block.len()) }
            .at(ino, place));
    }
    let Some(seed) = format.seed.0 else { return Ok(()) };
    let missing = Defect { offset: format.leaf_len(), what: "checksum tail is missing", value: 0 };
    let (entries, tail) =
        block.split_at_checked(format.leaf_len()).ok_or_else(|| missing.at(ino, place))?;
    let tail = RawDirEntryTail::ref_from_bytes(tail).map_err(|_| missing.at(ino, place))?;
    if tail.det_reserved_zero1.get() != 0
        || usize::from(tail.det_rec_len.get()) != TAIL_LEN
        || tail.det_reserved_zero2 != 0
        || tail.det_reserved_ft != TAIL_FILE_TYPE
    {
        return Err(missing.at(ino, place));
    }
    let (stored, computed) = (tail.det_checksum.get(), crc32c(seed, entries));
    if stored != computed {
        return Err(Corrupt::Checksum {
            what: "directory block",
            place: place.get(),
            stored,
            computed,
        });
    }
    Ok(())
}

/// Does the stored checksum prove the entries of a block whose tail is wrong? It does if it is
/// right, or has one wrong bit: a wrong bit of the entries changes more of it.
pub(crate) fn proves_entries(block: &[u8], format: &DirFormat) -> bool {
    let (Some(seed), Some((entries, tail))) =
        (format.seed.0, block.split_at_checked(format.leaf_len()))
    else {
        return false;
    };
    let stored = tail.last_chunk().map(|sum| u32::from_le_bytes(*sum));
    stored.is_some_and(|stored| (stored ^ crc32c(seed, entries)).count_ones() <= 1)
}

/// Makes the block a leaf with these entries and a checksum.
pub(crate) fn pack_leaf<'n>(
    block: &mut [u8],
    format: &DirFormat,
    entries: impl IntoIterator<Item = (u32, u8, &'n [u8])>,
) {
    block.fill(0);
    pack(block, 0..format.leaf_len(), entries);
    seal_leaf(block, format);
}
