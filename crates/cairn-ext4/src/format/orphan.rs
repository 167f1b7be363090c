//! Blocks of the orphan file. Source: "Orphan file" in the kernel's ext4 documentation.

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_u64, stored};
use cairn_base::{Ino, Pba};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::buffer;
use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

/// `ob_magic`.
const MAGIC: u32 = 0x0b10_ca04;

/// `struct ext4_orphan_block_tail`: the last eight bytes of each block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawOrphanTail {
    ob_magic: U32,
    ob_checksum: U32,
}

const TAIL: usize = size_of::<RawOrphanTail>();
const _: () = assert!(TAIL == 8);

/// Number of inode slots in a block.
#[must_use]
pub(crate) const fn slots(block_size: usize) -> usize {
    block_size.strict_sub(TAIL) / 4
}

/// Checksum of a block. Its seed includes the block's address, so that a misplaced block is
/// detected.
fn checksum(seed: InodeSeed, pba: Pba, entries: &[u8]) -> Option<u32> {
    seed.0.map(|seed| crc32c(crc32c(seed, &pba.get().to_le_bytes()), entries))
}

/// Does a block say that it is one of an orphan file?
pub(crate) fn has_magic(block: &[u8]) -> bool {
    RawOrphanTail::read_from_suffix(block).is_ok_and(|(_, tail)| tail.ob_magic.get() == MAGIC)
}

/// The inode numbers of a block; 0 is an empty slot.
///
/// # Errors
/// The magic or the checksum is wrong.
pub(crate) fn decode(block: &[u8], pba: Pba, seed: InodeSeed) -> Result<Vec<Ino>, Corrupt> {
    let (entries, tail) = RawOrphanTail::read_from_suffix(block)
        .map_err(|_| Corrupt::Orphan { what: "block too small", value: as_u64(block.len()) })?;
    if tail.ob_magic.get() != MAGIC {
        return Err(Corrupt::Orphan {
            what: "orphan file block has a wrong magic",
            value: u64::from(tail.ob_magic.get()),
        });
    }
    if let Some(computed) = checksum(seed, pba, entries)
        && computed != tail.ob_checksum.get()
    {
        return Err(Corrupt::Checksum {
            what: "orphan file block",
            place: pba.get(),
            stored: tail.ob_checksum.get(),
            computed,
        });
    }
    let (words, _) = entries.as_chunks::<4>();
    Ok(words.iter().map(|word| Ino(u64::from(u32::from_le_bytes(*word)))).collect())
}

/// Does a block have a checksum, although the volume has none? e2fsck takes it for damage.
pub(crate) fn has_needless_checksum(block: &[u8], seed: InodeSeed) -> bool {
    let tail = RawOrphanTail::read_from_suffix(block);
    seed.0.is_none() && tail.is_ok_and(|(_, tail)| tail.ob_checksum.get() != 0)
}

/// Formats an empty block.
pub(crate) fn init(block: &mut [u8], pba: Pba, seed: InodeSeed) {
    block.fill(0);
    seal(block, pba, seed);
}

/// Sets one slot and updates the checksum.
///
/// # Panics
/// If `slot` is not below [`slots`].
pub(crate) fn set(block: &mut [u8], pba: Pba, seed: InodeSeed, slot: usize, ino: Ino) {
    assert!(slot < slots(block.len()), "slot {slot} of an orphan block of {} bytes", block.len());
    *buffer::structure(block, slot.strict_mul(4)) = U32::new(stored(ino.get()));
    seal(block, pba, seed);
}

fn seal(block: &mut [u8], pba: Pba, seed: InodeSeed) {
    let (entries, tail) = block.split_at_mut(block.len().strict_sub(TAIL));
    let sum = checksum(seed, pba, entries).unwrap_or(0);
    *buffer::structure(tail, 0) = RawOrphanTail { ob_magic: MAGIC.into(), ob_checksum: sum.into() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_survive_and_damage_is_seen() {
        let seed = InodeSeed(Some(7));
        let mut block = vec![0xff; 1024];
        init(&mut block, Pba(99), seed);
        set(&mut block, Pba(99), seed, 253, Ino(12));
        let inos = decode(&block, Pba(99), seed).unwrap();
        assert_eq!((inos.len(), inos[253], inos[0]), (254, Ino(12), Ino(0)));
        assert!(matches!(decode(&block, Pba(98), seed), Err(Corrupt::Checksum { .. })));
        block[3] ^= 1;
        assert!(matches!(decode(&block, Pba(99), seed), Err(Corrupt::Checksum { .. })));
        block[1016] ^= 1;
        assert!(matches!(decode(&block, Pba(99), seed), Err(Corrupt::Orphan { .. })));
        assert!(matches!(decode(&[0; 4], Pba(99), seed), Err(Corrupt::Orphan { .. })));
    }
}
