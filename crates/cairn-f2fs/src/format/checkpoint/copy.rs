//! The two blocks that a pack has of a checkpoint: is one of them a damaged copy of the other?
//!
//! A power cut may leave an older last block, or one of which only some sectors were written. Such
//! a block differs in its version and its checksum, which are in different sectors or differ in
//! most of their bytes.

use cairn_base::units::as_index;

use super::raw::{RawCheckpoint, verify};

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
}
