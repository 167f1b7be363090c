//! The two blocks that a pack has of a checkpoint: is one of them a damaged copy of the other? And
//! the place of the checksum, which must be right for a block to be read.
//!
//! A power cut may leave an older last block, or one of which only some sectors were written. Such
//! a block differs in its version and its checksum, which are in different sectors or differ in
//! most of their bytes.

use cairn_base::units::as_index;

use super::flags::CheckpointFlags;
use super::raw::{CHECKSUM_AT, LARGE_CHECKSUM_AT, RawCheckpoint};
use super::raw::{checksum, split_at_checksum, verify};
use crate::format::block::put;

/// Most bytes from the first to the last one that differ: a field.
const FIELD: usize = 8;
/// Most bytes in which the checksum of a damaged copy differs. That of another checkpoint has so
/// few different ones once in 400,000 times.
const CHECKSUM_BYTES: usize = 2;

/// Is one block a damaged copy of the other, whose checksum is right? It differs in one field, and
/// not as a block would that a power cut has left.
///
/// # Panics
/// They are not whole blocks: the caller's bug.
pub(crate) fn is_damaged_copy(right: &[u8], other: &[u8]) -> bool {
    let at = as_index(RawCheckpoint::of(right).checksum_offset.get());
    let is_sum = |place: &usize| (at..at.saturating_add(size_of::<u32>())).contains(place);
    let differ = right.iter().zip(other).enumerate().filter(|(_, (one, other))| one != other);
    let places: Vec<usize> = differ.map(|(place, _)| place).collect();
    let (sum, rest): (Vec<usize>, Vec<usize>) = places.into_iter().partition(is_sum);
    // A field was changed together with the checksum.
    let is_sealed = verify(other, 0).is_ok();
    match (rest.first(), rest.last()) {
        (Some(first), Some(last)) if sum.is_empty() || is_sealed => {
            last.saturating_sub(*first) < FIELD
        }
        (Some(_), _) => false,
        (None, _) => (1..=CHECKSUM_BYTES).contains(&sum.len()),
    }
}

/// The version that a block has, whether its checksum is right or not.
///
/// # Panics
/// It is no whole block: the caller's bug.
pub(crate) fn stored_version(block: &[u8]) -> u64 {
    RawCheckpoint::of(block).checkpoint_ver.get()
}

/// A block with the usual place of its checksum, if it names another one and its checksum is right
/// at the usual place, with or without that field.
///
/// # Panics
/// It is not a whole block: the caller's bug.
pub(crate) fn with_usual_checksum(block: &[u8]) -> Option<Vec<u8>> {
    let raw = RawCheckpoint::of(block);
    let flags = CheckpointFlags::from_bits_retain(raw.ckpt_flags.get());
    let is_large = flags.contains(CheckpointFlags::LARGE_NAT_BITMAP);
    let usual = if is_large { LARGE_CHECKSUM_AT } else { CHECKSUM_AT };
    if raw.checksum_offset.get() == usual {
        return None;
    }
    let mut right = block.to_vec();
    put(&mut right, std::mem::offset_of!(RawCheckpoint, checksum_offset), &usual.to_le_bytes());
    let sum = |block: &[u8]| {
        let (before, stored, after) = split_at_checksum(block, usual)?;
        Some((u32::from_le_bytes(*stored), checksum(before, after)))
    };
    let ((stored, with_field), (_, computed)) = (sum(block)?, sum(&right)?);
    let is_right = stored == with_field || stored == computed;
    put(&mut right, as_index(usual), &computed.to_le_bytes());
    is_right.then_some(right)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{checkpoint, layout};
    use super::*;
    use crate::format::units::BLOCK_SIZE;

    #[test]
    fn damage_is_told_from_a_torn_write() {
        let layout = layout();
        let block = |version| {
            let mut checkpoint = checkpoint(&layout);
            checkpoint.version = version;
            checkpoint.elapsed_time = version;
            checkpoint.encode(&layout)[..BLOCK_SIZE].to_vec()
        };
        let (new, old) = (block(7), block(5));
        let changed = |places: &[usize]| {
            let mut block = new.clone();
            places.iter().for_each(|place| block[*place] ^= 0x10);
            block
        };
        for places in [&[0][..], &[9], &[132], &[200], &[3000], &[4092], &[4093, 4095], &[8, 9, 15]]
        {
            assert!(is_damaged_copy(&new, &changed(places)), "{places:?}");
        }
        for places in [&[][..], &[0, 8], &[0, 4092], &[4092, 4093, 4094, 4095], &[100, 3000]] {
            assert!(!is_damaged_copy(&new, &changed(places)), "{places:?}");
        }
        assert!(!is_damaged_copy(&new, &old) && !is_damaged_copy(&new, &[0; BLOCK_SIZE]));
        for sector in 1..8 {
            let torn = [&new[..sector * 512], &old[sector * 512..]].concat();
            let turned = [&old[..sector * 512], &new[sector * 512..]].concat();
            assert!(!is_damaged_copy(&new, &torn) && !is_damaged_copy(&new, &turned), "{sector}");
        }
        let mut sealed = checkpoint(&layout);
        (sealed.version, sealed.elapsed_time) = (5, 7);
        assert!(is_damaged_copy(&new, &sealed.encode(&layout)[..BLOCK_SIZE]));
    }

    #[test]
    fn a_wrong_place_of_the_checksum_is_told_from_a_wrong_checksum() {
        const OFFSET_AT: usize = 164;
        let layout = layout();
        let right = checkpoint(&layout).encode(&layout)[..BLOCK_SIZE].to_vec();
        assert_eq!(with_usual_checksum(&right), None);
        let mut moved = right.clone();
        moved[OFFSET_AT..OFFSET_AT + 2].copy_from_slice(&2000_u16.to_le_bytes());
        assert_eq!(with_usual_checksum(&moved).as_ref(), Some(&right));
        let sum = checksum(&moved[..4092], &[]).to_le_bytes();
        moved[4092..].copy_from_slice(&sum);
        assert_eq!(with_usual_checksum(&moved), Some(right));
        moved[9] ^= 1;
        assert_eq!(with_usual_checksum(&moved), None);
    }
}
