//! Refcounts of 1 to 64 bits in a block. Those of less than a byte begin with the lowest bits.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the header's order is at most 6, and an index is one of a block of 2 MiB at most"
)]

/// The largest refcount of `1 << order` bits.
pub(in crate::qcow2) fn most(order: u32) -> u64 {
    match 1_u32.checked_shl(order) {
        Some(bits @ 1..=63) => !(u64::MAX << bits),
        _ => u64::MAX,
    }
}

/// The refcount number `index`; 0 beyond the block.
pub(in crate::qcow2) fn get(block: &[u8], order: u32, index: usize) -> u64 {
    let bits = 1_usize << order;
    if bits < 8 {
        let per_byte = 8 / bits;
        let byte = block.get(index / per_byte).copied().unwrap_or(0);
        return u64::from(byte) >> (index % per_byte * bits) & most(order);
    }
    let width = bits / 8;
    let bytes = block.get(index * width..(index + 1) * width).unwrap_or_default();
    bytes.iter().fold(0, |count, byte| count << 8 | u64::from(*byte))
}

/// Sets the refcount number `index` to a count that fits; nothing beyond the block.
pub(in crate::qcow2) fn set(block: &mut [u8], order: u32, index: usize, count: u64) {
    let bits = 1_usize << order;
    if bits < 8 {
        let per_byte = 8 / bits;
        let shift = index % per_byte * bits;
        if let Some(byte) = block.get_mut(index / per_byte) {
            let mask = most(order) << shift;
            let bits = u64::from(*byte) & !mask | count << shift & mask;
            *byte = u8::try_from(bits).unwrap_or(*byte);
        }
        return;
    }
    let width = bits / 8;
    let to = block.get_mut(index * width..(index + 1) * width).unwrap_or_default();
    to.iter_mut().rev().zip(count.to_le_bytes()).for_each(|(to, byte)| *to = byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_keeps_its_neighbours() {
        for order in 0..=6 {
            let mut block = [0; 64];
            let entries = (64 * 8) >> order;
            let value = |index: usize| (index as u64 * 7 + 1) & most(order);
            (0..entries).for_each(|index| set(&mut block, order, index, value(index)));
            for index in 0..entries {
                assert_eq!(get(&block, order, index), value(index), "{order} {index}");
            }
            assert_eq!(get(&block, order, entries), 0);
        }
        assert_eq!((most(0), most(4), most(6)), (1, 65_535, u64::MAX));
    }

    #[test]
    fn small_ones_begin_with_the_lowest_bits_and_large_ones_are_big_endian() {
        let mut block = [0; 2];
        set(&mut block, 1, 1, 3);
        assert_eq!(block, [0b1100, 0]);
        set(&mut block, 4, 0, 0x102);
        assert_eq!(block, [1, 2]);
    }
}
