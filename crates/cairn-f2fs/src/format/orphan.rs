//! Orphan blocks of a checkpoint pack: inodes without links that were still open.

use cairn_base::units::as_index;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::view;
use super::layout::Layout;
use super::units::{BLOCK_SIZE, Nid, ORPHANS_PER_BLOCK, stored};
use crate::corrupt::Corrupt;

/// Inode numbers per block.
pub(crate) const INOS_PER_BLOCK: usize = as_index(ORPHANS_PER_BLOCK);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOrphanBlock {
    ino: [U32; INOS_PER_BLOCK],
    reserved: U32,
    blk_addr: U16,
    blk_count: U16,
    entry_count: U32,
    check_sum: U32,
}

const _: () = assert!(size_of::<RawOrphanBlock>() == BLOCK_SIZE);

/// The inodes named by one orphan block.
///
/// # Errors
/// Its count or a number is impossible.
pub(crate) fn decode(block: &[u8], layout: &Layout) -> Result<Vec<Nid>, Corrupt> {
    let raw: &RawOrphanBlock = view(block);
    let count = raw.entry_count.get();
    let Some(inos) = raw.ino.get(..as_index(count)) else {
        return Err(Corrupt::Orphan { what: "entry_count is beyond 1020", value: count.into() });
    };
    let inos: Vec<Nid> = inos.iter().map(|ino| Nid(ino.get())).collect();
    match inos.iter().find(|ino| !layout.is_nid(**ino)) {
        Some(ino) => Err(Corrupt::Orphan { what: "no such inode number", value: ino.get().into() }),
        None => Ok(inos),
    }
}

/// The blocks that name these inodes: `INOS_PER_BLOCK` each.
#[must_use]
pub(crate) fn encode(inos: &[Nid]) -> Vec<Vec<u8>> {
    let blocks: u16 = stored(inos.len().div_ceil(INOS_PER_BLOCK));
    let encode_one = |(number, part): (u16, &[Nid])| {
        let mut raw = RawOrphanBlock::new_zeroed();
        raw.ino.iter_mut().zip(part).for_each(|(to, ino)| *to = ino.get().into());
        raw.blk_addr = number.into();
        raw.blk_count = blocks.into();
        raw.entry_count = stored::<_, u32>(part.len()).into();
        raw.as_bytes().to_vec()
    };
    (1..).zip(inos.chunks(INOS_PER_BLOCK)).map(encode_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::tests::superblock;

    #[test]
    fn blocks_hold_1020_each() {
        let layout = Layout::new(&superblock(), 512 << 20).unwrap();
        let inos: Vec<Nid> = (4..4 + 1021).map(Nid).collect();
        let blocks = encode(&inos);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[1][4084..4092], [2, 0, 2, 0, 1, 0, 0, 0]);
        let back: Vec<Nid> =
            blocks.iter().flat_map(|block| decode(block, &layout).unwrap()).collect();
        assert_eq!(back, inos);
        let mut bad = blocks[1].clone();
        bad[4089] = 8;
        assert!(decode(&bad, &layout).is_err());
        assert!(decode(&encode(&[Nid(0)])[0], &layout).is_err());
    }
}
