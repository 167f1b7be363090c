//! Fields of a superblock that follow from the others: constants, and the geometry, in which each
//! area begins where the one before it ends.

use super::{EXTENSION_LEN, Superblock};
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT, BlockAddr, Nid};

/// Segments of the two checkpoint packs.
const PACKS: u32 = 2;
/// The logarithms of the sizes of a sector, of a block, and of a segment in blocks.
const LOG_SECTOR: u32 = 9;
const LOG_BLOCK: u32 = 12;
const LOG_SEGMENT: u32 = 9;

/// Copies of a superblock with one field computed; only those that differ from it.
pub(crate) fn fields(copy: &Superblock, device_bytes: u64) -> Vec<Superblock> {
    let Superblock { segment_count_sit: sit, segment_count_nat: nat, .. } = *copy;
    let Superblock { segment_count_ssa: ssa, segment_count_main: main, .. } = *copy;
    let after = |at: BlockAddr, segments: u32| {
        BlockAddr(at.get().saturating_add(segments.saturating_mul(BLOCKS_PER_SEGMENT)))
    };
    let between = |at: BlockAddr, end: BlockAddr| {
        let blocks = end.get().saturating_sub(at.get());
        blocks.checked_div(BLOCKS_PER_SEGMENT).unwrap_or(0)
    };
    let areas = [PACKS, sit, nat, ssa].iter().fold(0_u32, |all, area| all.saturating_add(*area));
    let changes: [&dyn Fn(&mut Superblock); 22] = [
        &|sb| {
            sb.log_sectorsize = LOG_SECTOR;
            sb.log_sectors_per_block = LOG_BLOCK.saturating_sub(LOG_SECTOR);
        },
        &|sb| sb.log_blocksize = LOG_BLOCK,
        &|sb| sb.log_blocks_per_seg = LOG_SEGMENT,
        &|sb| sb.root_ino = Nid::ROOT,
        &|sb| sb.node_ino = Nid::NODE_INO,
        &|sb| sb.meta_ino = Nid::META_INO,
        &set_extensions,
        // Any number is possible: it only spreads what is written.
        &|sb| sb.secs_per_zone = 1,
        &|sb| sb.segment_count_ckpt = PACKS,
        &|sb| sb.segment0_blkaddr = sb.cp_blkaddr,
        &|sb| sb.cp_blkaddr = sb.segment0_blkaddr,
        &|sb| sb.sit_blkaddr = after(sb.cp_blkaddr, PACKS),
        &|sb| sb.nat_blkaddr = after(sb.sit_blkaddr, sit),
        &|sb| sb.ssa_blkaddr = after(sb.nat_blkaddr, nat),
        &|sb| sb.main_blkaddr = after(sb.ssa_blkaddr, ssa),
        &|sb| sb.segment_count_sit = between(sb.sit_blkaddr, sb.nat_blkaddr),
        &|sb| sb.segment_count_nat = between(sb.nat_blkaddr, sb.ssa_blkaddr),
        &|sb| sb.segment_count_ssa = between(sb.ssa_blkaddr, sb.main_blkaddr),
        &|sb| sb.segment_count_main = sb.segment_count.saturating_sub(areas),
        &|sb| sb.section_count = main.checked_div(sb.segs_per_sec).unwrap_or(0),
        // Sections of one segment are usual: then the number of sections is what is wrong.
        &|sb| {
            if sb.segs_per_sec != 1 {
                sb.segs_per_sec = main.checked_div(sb.section_count).unwrap_or(0);
            }
        },
        &|sb| {
            sb.segment_count = areas.saturating_add(main);
            sb.block_count = sb.block_count.max(device_bytes.checked_div(BLOCK_BYTES).unwrap_or(0));
        },
    ];
    let mut found = Vec::new();
    for change in changes {
        let mut right = copy.clone();
        change(&mut right);
        if right != *copy {
            found.push(right);
        }
    }
    found
}

/// The list of extensions says how many there are: those of hot files follow those of cold ones.
/// Of the two numbers, the one that is alone too large is wrong, or else that of hot files.
fn set_extensions(superblock: &mut Superblock) {
    let is_used = |name: &&[u8; EXTENSION_LEN]| name.iter().any(|byte| *byte != 0);
    let all = superblock.extension_list.iter().take_while(is_used).count();
    let all = u32::try_from(all).unwrap_or(0);
    let hot = u32::from(superblock.hot_ext_count);
    match all.checked_sub(superblock.extension_count) {
        Some(hot) => superblock.hot_ext_count = u8::try_from(hot).unwrap_or(0),
        None => superblock.extension_count = all.saturating_sub(hot),
    }
}
