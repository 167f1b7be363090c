//! Block maps of the files of a new volume: an extent tree of at most one level, or block pointers.

use cairn_base::Pba;
use cairn_base::checksum::crc32c;

use super::output::Output;
use super::plan::Plan;
use crate::checksum::InodeSeed;
use crate::error::{Error, Result};
use crate::format::features::Incompat;
use crate::format::inode::{Inode, InodeFlags};

const EXTENT_MAGIC: u16 = 0xf30a;
const ENTRY: usize = 12;
const IN_INODE: usize = 4;
const LONGEST: u64 = 32_768;
const DIRECT: usize = 12;

/// Stores the map and block count of a file that has `runs` from block 0 on.
pub(super) fn store(
    plan: &mut Plan,
    output: &mut Output,
    inode: &mut Inode,
    seed: InodeSeed,
    runs: &[(Pba, u64)],
) -> Result<()> {
    let data: u64 = runs.iter().map(|(_, len)| len).sum();
    let extra = if plan.layout.features.incompat(Incompat::EXTENTS) {
        inode.flags |= InodeFlags::EXTENTS;
        store_extents(plan, output, &mut inode.block, seed, runs)?
    } else {
        store_indirect(plan, output, &mut inode.block, runs)?
    };
    inode.blocks_512 = (data + extra) << (plan.layout.block_bits - 9);
    Ok(())
}

fn header(entries: usize, max: usize, depth: u16) -> Vec<u8> {
    let mut bytes = EXTENT_MAGIC.to_le_bytes().to_vec();
    for field in [entries, max] {
        bytes.extend(u16::try_from(field).expect("entries of a block fit 16 bits").to_le_bytes());
    }
    bytes.extend(depth.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn store_extents(
    plan: &mut Plan,
    output: &mut Output,
    root: &mut [u8; 60],
    seed: InodeSeed,
    runs: &[(Pba, u64)],
) -> Result<u64> {
    let mut entries: Vec<[u8; ENTRY]> = Vec::new();
    let mut logical = 0_u32;
    for (start, len) in runs {
        for at in (0..*len).step_by(LONGEST as usize) {
            let piece = LONGEST.min(len - at);
            entries.push(extent(logical, start.get() + at, piece));
            logical += u32::try_from(piece).expect("a piece has at most 32768 blocks");
        }
    }
    if entries.len() <= IN_INODE {
        root[..ENTRY].copy_from_slice(&header(entries.len(), IN_INODE, 0));
        root[ENTRY..ENTRY + entries.len() * ENTRY].copy_from_slice(entries.as_flattened());
        return Ok(0);
    }
    let block_size = plan.layout.block_size as usize;
    let max = (block_size - ENTRY) / ENTRY;
    if entries.len() > max {
        return Err(Error::Option("the journal would be too fragmented".into()));
    }
    let leaf = one_block(plan)?;
    let mut block = header(entries.len(), max, 0);
    block.extend_from_slice(entries.as_flattened());
    block.resize(block_size, 0);
    let tail = ENTRY + max * ENTRY;
    if let Some(seed) = seed.0 {
        let sum = crc32c(seed, &block[..tail]);
        block[tail..tail + 4].copy_from_slice(&sum.to_le_bytes());
    }
    output.blocks(leaf, block)?;
    root[..ENTRY].copy_from_slice(&header(1, IN_INODE, 1));
    let [a, b, c, d, e, f, ..] = leaf.get().to_le_bytes();
    root[ENTRY..2 * ENTRY].copy_from_slice(&[0, 0, 0, 0, a, b, c, d, e, f, 0, 0]);
    Ok(1)
}

fn extent(logical: u32, start: u64, len: u64) -> [u8; ENTRY] {
    let [l0, l1, l2, l3] = logical.to_le_bytes();
    let [n0, n1, ..] = len.to_le_bytes();
    let [a, b, c, d, e, f, ..] = start.to_le_bytes();
    [l0, l1, l2, l3, n0, n1, e, f, a, b, c, d]
}

fn one_block(plan: &mut Plan) -> Result<Pba> {
    let runs = plan.take(1, 0)?;
    Ok(runs.first().expect("one block is one run").0)
}

fn store_indirect(
    plan: &mut Plan,
    output: &mut Output,
    root: &mut [u8; 60],
    runs: &[(Pba, u64)],
) -> Result<u64> {
    let blocks: Vec<Pba> =
        runs.iter().flat_map(|(start, len)| (0..*len).map(|n| Pba(start.get() + n))).collect();
    let (direct, mut rest) = blocks.split_at(blocks.len().min(DIRECT));
    let mut slots = direct.to_vec();
    slots.resize(DIRECT, Pba(0));
    let mut extra = 0;
    let per_block = plan.layout.block_size as usize / 4;
    for depth in 1..=3_u32 {
        let (mine, behind) = rest.split_at(rest.len().min(per_block.pow(depth)));
        rest = behind;
        slots.push(if mine.is_empty() {
            Pba(0)
        } else {
            indirect(plan, output, mine, depth, &mut extra)?
        });
    }
    for (place, pba) in root.as_chunks_mut::<4>().0.iter_mut().zip(slots) {
        *place = narrow(pba);
    }
    Ok(extra)
}

/// Writes the tree of pointer blocks of `blocks`. Returns its root.
fn indirect(
    plan: &mut Plan,
    output: &mut Output,
    blocks: &[Pba],
    depth: u32,
    extra: &mut u64,
) -> Result<Pba> {
    let per_block = plan.layout.block_size as usize / 4;
    let own = one_block(plan)?;
    *extra += 1;
    let mut bytes = Vec::with_capacity(per_block * 4);
    if depth == 1 {
        blocks.iter().for_each(|pba| bytes.extend(narrow(*pba)));
    } else {
        for part in blocks.chunks(per_block.pow(depth - 1)) {
            bytes.extend(narrow(indirect(plan, output, part, depth - 1, extra)?));
        }
    }
    bytes.resize(per_block * 4, 0);
    output.blocks(own, bytes)?;
    Ok(own)
}

/// Volumes without extents have 32-bit block numbers.
pub(super) fn narrow(pba: Pba) -> [u8; 4] {
    u32::try_from(pba.get())
        .expect("block maps are made on volumes of less than 2^32 blocks only")
        .to_le_bytes()
}
