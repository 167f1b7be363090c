//! Both checkpoint packs of a new volume: what an unmount would have written.

use cairn_base::Pba;

use super::geometry::Geometry;
use super::identity::Identity;
use super::tree::Tree;
use crate::format::bits;
use crate::format::checkpoint::{Checkpoint, CheckpointFlags, LogPosition};
use crate::format::layout::Side;
use crate::format::log::AllocType;
use crate::format::pack::PackMap;
use crate::format::summary::{CompactSummaries, NatJournal, SitJournal, Summary, SummaryBlock};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{Layout, Log, SitEntry};

/// Bytes of `nat_bits` before the two bitmaps.
const NAT_BITS_HEAD: usize = 8;

/// The blocks of both packs, with their addresses.
pub(super) fn blocks(
    geometry: &Geometry,
    layout: &Layout,
    identity: &Identity,
    tree: &Tree,
    large_nat_bitmap: bool,
    trimmed: bool,
) -> Vec<(Pba, Vec<u8>)> {
    let map = PackMap::plan(layout, 0, 1, true).expect("a pack without orphans fits");
    let mut checkpoint = checkpoint(geometry, layout, tree, &map);
    checkpoint.flags.set(CheckpointFlags::LARGE_NAT_BITMAP, large_nat_bitmap);
    checkpoint.flags.set(CheckpointFlags::TRIMMED, trimmed);
    let nat_bits_blocks = nat_bits(&checkpoint, layout).len() / BLOCK_SIZE;
    let room = BLOCKS_PER_SEGMENT as usize - map.total() as usize;
    checkpoint.flags.set(CheckpointFlags::NAT_BITS, nat_bits_blocks <= room);
    // The second pack is older than the first, whatever the first's version.
    let packs = [(Side::First, identity.version), (Side::Second, 0)];
    packs
        .into_iter()
        .flat_map(|(side, version)| {
            checkpoint.version = version;
            pack(&mut checkpoint, layout, tree, &map, layout.pack_start(side))
        })
        .collect()
}

fn checkpoint(geometry: &Geometry, layout: &Layout, tree: &Tree, map: &PackMap) -> Checkpoint {
    let directories = tree.nids.len() as u32;
    let position = |log: Log| LogPosition {
        segno: geometry.logs[log.index()],
        blkoff: used(log, tree) as u16,
        alloc: AllocType::Lfs,
    };
    Checkpoint {
        version: 0,
        user_block_count: geometry.user_blocks,
        valid_block_count: 2 * u64::from(directories),
        rsvd_segment_count: geometry.reserved_segments,
        overprov_segment_count: geometry.overprovision_segments,
        free_segment_count: geometry.usable_segments - Log::COUNT as u32,
        logs: Log::ALL.map(position),
        flags: CheckpointFlags::UMOUNT | CheckpointFlags::COMPACT_SUM,
        pack_total_blocks: map.total(),
        pack_start_sum: map.start_sum(),
        valid_node_count: directories,
        valid_inode_count: directories,
        next_free_nid: tree.next_free_nid(),
        checksum_offset: 0,
        elapsed_time: 0,
        sit_bitmap: vec![0; layout.sit_bitmap_bytes() as usize],
        nat_bitmap: vec![0; layout.nat_bitmap_bytes() as usize],
        crc: 0,
    }
}

/// Blocks of a log that the tree takes.
fn used(log: Log, tree: &Tree) -> usize {
    if matches!(log, Log::HotNode | Log::HotData) { tree.nids.len() } else { 0 }
}

/// The blocks of a pack: head, summaries, `nat_bits`, and the last block.
fn pack(
    checkpoint: &mut Checkpoint,
    layout: &Layout,
    tree: &Tree,
    map: &PackMap,
    start: Pba,
) -> Vec<(Pba, Vec<u8>)> {
    let at = |block: u32| Pba(start.get() + u64::from(block));
    let head = checkpoint.encode(layout);
    let last = head.get(..BLOCK_SIZE).expect("the first block").to_vec();
    let mut summaries = data_summaries(checkpoint, tree).encode();
    for log in Log::NODE {
        summaries.extend(node_summary(log, tree));
    }
    let mut blocks = vec![(at(0), head), (at(map.start_sum()), summaries)];
    if checkpoint.flags.contains(CheckpointFlags::NAT_BITS) {
        let bits = nat_bits(checkpoint, layout);
        let count = (bits.len() / BLOCK_SIZE) as u32;
        blocks.push((at(BLOCKS_PER_SEGMENT - count), bits));
    }
    blocks.push((at(map.last()), last));
    blocks
}

fn data_summaries(checkpoint: &Checkpoint, tree: &Tree) -> CompactSummaries {
    let sit = [Log::NODE, Log::DATA].concat().into_iter().map(|log| {
        let position = checkpoint.log(log);
        let mut entry = SitEntry::empty(log);
        (0..usize::from(position.blkoff)).for_each(|block| {
            bits::set(&mut entry.valid_map, block);
        });
        (position.segno, entry)
    });
    CompactSummaries {
        nat_journal: NatJournal(tree.nat_entries().collect()).encode(),
        sit_journal: SitJournal(sit.collect()).encode(),
        entries: [owners(tree), Vec::new(), Vec::new()],
    }
}

/// In both hot logs block `n` belongs to directory `n`: its inode, and its only block of entries.
fn owners(tree: &Tree) -> Vec<Summary> {
    tree.nids.iter().map(|nid| Summary { nid: *nid, ..Summary::default() }).collect()
}

fn node_summary(log: Log, tree: &Tree) -> Vec<u8> {
    let mut summary = SummaryBlock::empty(true);
    if log == Log::HotNode {
        summary.entries.iter_mut().zip(owners(tree)).for_each(|(place, owner)| *place = owner);
    }
    summary.encode()
}

/// Which NAT blocks are full (none) and which are empty (all but the first): saves the next mount
/// reading them. Bits count from the least significant one here.
fn nat_bits(checkpoint: &Checkpoint, layout: &Layout) -> Vec<u8> {
    let bytes = layout.nat_bitmap_bytes() as usize;
    let mut bits = (checkpoint.version | u64::from(checkpoint.crc) << 32).to_le_bytes().to_vec();
    bits.resize(NAT_BITS_HEAD + bytes, 0);
    bits.resize(NAT_BITS_HEAD + 2 * bytes, 0xff);
    bits[NAT_BITS_HEAD + bytes] = 0xfe;
    bits.resize(bits.len().next_multiple_of(BLOCK_SIZE), 0);
    bits
}
