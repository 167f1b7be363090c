//! A new journal: its size, its superblock, and its copy in the volume's superblock.

use cairn_base::units::as_index;
use zerocopy::little_endian::U32;

use crate::error::{Error, Result};
use crate::format::inode::Inode;
use crate::format::superblock::Superblock;

/// Default sizes: upper bound of the volume in blocks, blocks of the journal.
const SIZES: &[(u64, u32)] = &[
    (2048, 0),
    (32_768, 1024),
    (256 << 10, 4096),
    (512 << 10, 8192),
    (4096 << 10, 16_384),
    (8192 << 10, 32_768),
    (16_384 << 10, 65_536),
    (32_768 << 10, 131_072),
];
const LARGEST: u32 = 262_144;
const SMALLEST: u64 = 1024;
/// The largest that Linux makes use of.
const MOST: u64 = 10_240_000;

/// The size that mke2fs gives a volume of this many blocks; 0 if it is too small for a journal.
pub(super) fn default_blocks(volume: u64) -> u32 {
    SIZES.iter().find(|row| volume < row.0).map_or(LARGEST, |row| row.1)
}

/// Blocks of a journal of `bytes`, or of the default size.
///
/// # Errors
/// A volume of `volume` blocks cannot have it.
pub(crate) fn blocks(volume: u64, block_size: u32, bytes: Option<u64>) -> Result<u32> {
    let Some(bytes) = bytes else {
        return match default_blocks(volume) {
            0 => Err(Error::Option(
                "the volume is too small for a journal: it needs 2048 blocks".into(),
            )),
            blocks => Ok(blocks),
        };
    };
    let blocks = bytes / u64::from(block_size);
    let most = (volume / 2).min(MOST);
    match u32::try_from(blocks) {
        Ok(number) if (SMALLEST..=most).contains(&blocks) => Ok(number),
        _ => Err(Error::Option(format!(
            "a journal of {blocks} blocks is not possible: give {SMALLEST} to {most} blocks of \
             {block_size} bytes"
        ))),
    }
}

/// The superblock of an empty log. Source: "Journal (jbd2)" in the kernel's ext4 documentation.
pub(crate) fn superblock(block_size: u32, blocks: u32) -> Vec<u8> {
    const MAGIC: u32 = 0xc03b_3998;
    const SUPERBLOCK_V2: u32 = 4;
    let mut block = Vec::with_capacity(as_index(block_size));
    // Header (magic, kind, sequence), block size, length, first block, first sequence, start (0:
    // empty), error, the three feature sets, UUID, number of users.
    let (head, users) = ([MAGIC, SUPERBLOCK_V2, 0, block_size, blocks, 1, 1, 0, 0, 0, 0, 0], 1_u32);
    head.iter().for_each(|word| block.extend(word.to_be_bytes()));
    block.extend([0; 16]);
    block.extend(users.to_be_bytes());
    block.resize(as_index(block_size), 0);
    block
}

/// Copies the journal's map and size to the superblock.
pub(crate) fn back_up(superblock: &mut Superblock, inode: &Inode) {
    let raw = &mut superblock.raw;
    raw.s_journal_inum = U32::new(8);
    raw.s_jnl_backup_type = 1;
    let words = inode.block.as_chunks::<4>().0.iter().map(|bytes| U32::from_bytes(*bytes));
    let [a, b, c, d, e, f, g, h] = inode.size.to_le_bytes();
    let sizes = [U32::from_bytes([e, f, g, h]), U32::from_bytes([a, b, c, d])];
    for (place, word) in raw.s_jnl_blocks.iter_mut().zip(words.chain(sizes)) {
        *place = word;
    }
}
