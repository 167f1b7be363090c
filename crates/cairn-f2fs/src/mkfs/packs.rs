//! Both checkpoint packs of a new volume: what an unmount would have written.

use cairn_base::{Pba, bitmap};

use super::geometry::Geometry;
use super::identity::Identity;
use crate::format::checkpoint::{Checkpoint, CheckpointFlags, LogPosition};
use crate::format::compact::CompactSummaries;
use crate::format::layout::Side;
use crate::format::pack::PackMap;
use crate::format::summary::{NatJournal, SitJournal, Summary, SummaryBlock};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, NIDS_PER_BLOCK};
use crate::format::{Layout, Log, Nid};

/// Bytes of `nat_bits` before the two bitmaps.
const NAT_BITS_HEAD: usize = 8;
/// Blocks of the data summaries in the full form.
const FULL_SUMMARIES: usize = 3;

/// What the first checkpoint says. All nids below the next free one are in use.
pub(super) struct Contents {
    /// Where each log goes on.
    pub(super) logs: [LogPosition; Log::COUNT],
    /// For each log the owners of the blocks in its segment.
    pub(super) owners: [Vec<Summary>; Log::COUNT],
    /// What is missing in the NAT.
    pub(super) nat_journal: NatJournal,
    /// What is missing in the SIT.
    pub(super) sit_journal: SitJournal,
    /// Blocks in use.
    pub(super) blocks: u64,
    /// Nodes in use.
    pub(super) nodes: u32,
    /// Inodes in use.
    pub(super) inodes: u32,
    /// Segments without blocks and without a log.
    pub(super) free_segments: u32,
    /// The first unused nid.
    pub(super) next_free_nid: Nid,
}

impl Contents {
    /// True if the data summaries have fewer blocks in the compact form.
    fn is_compact(&self) -> bool {
        CompactSummaries::blocks_for(self.data_entries()) < FULL_SUMMARIES
    }

    fn data_entries(&self) -> usize {
        Log::DATA.iter().map(|log| log.of(&self.owners).len()).sum()
    }

    /// The blocks of the data summaries.
    fn data_summaries(&self) -> Vec<u8> {
        let (nat_journal, sit_journal) = (self.nat_journal.encode(), self.sit_journal.encode());
        if self.is_compact() {
            let entries = Log::DATA.map(|log| log.of(&self.owners).clone());
            return CompactSummaries { nat_journal, sit_journal, entries }.encode();
        }
        let mut blocks = Log::DATA.map(|log| self.summary(log));
        blocks[0].journal = nat_journal;
        blocks[2].journal = sit_journal;
        blocks.iter().flat_map(SummaryBlock::encode).collect()
    }

    /// The full summary of a log's segment.
    fn summary(&self, log: Log) -> SummaryBlock {
        let mut summary = SummaryBlock::empty(log.is_node());
        let owners = log.of(&self.owners);
        summary.entries.iter_mut().zip(owners).for_each(|(place, owner)| *place = *owner);
        summary
    }
}

/// The blocks of both packs, with their addresses.
pub(super) fn blocks(
    geometry: &Geometry,
    layout: &Layout,
    identity: &Identity,
    contents: &Contents,
    large_nat_bitmap: bool,
    trimmed: bool,
) -> Vec<(Pba, Vec<u8>)> {
    let data = match contents.is_compact() {
        true => CompactSummaries::blocks_for(contents.data_entries()),
        false => FULL_SUMMARIES,
    };
    let map = PackMap::plan(layout, 0, data as u32, true).expect("a pack without orphans fits");
    let mut checkpoint = checkpoint(geometry, layout, contents, &map);
    checkpoint.flags.set(CheckpointFlags::COMPACT_SUM, contents.is_compact());
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
            pack(&mut checkpoint, layout, contents, &map, layout.pack_start(side))
        })
        .collect()
}

fn checkpoint(
    geometry: &Geometry,
    layout: &Layout,
    contents: &Contents,
    map: &PackMap,
) -> Checkpoint {
    Checkpoint {
        version: 0,
        user_block_count: geometry.user_blocks,
        valid_block_count: contents.blocks,
        rsvd_segment_count: geometry.reserved_segments,
        overprov_segment_count: geometry.overprovision_segments,
        free_segment_count: contents.free_segments,
        logs: contents.logs,
        flags: CheckpointFlags::UMOUNT,
        pack_total_blocks: map.total(),
        pack_start_sum: map.start_sum(),
        valid_node_count: contents.nodes,
        valid_inode_count: contents.inodes,
        next_free_nid: contents.next_free_nid,
        checksum_offset: 0,
        elapsed_time: 0,
        sit_bitmap: vec![0; layout.sit_bitmap_bytes() as usize],
        nat_bitmap: vec![0; layout.nat_bitmap_bytes() as usize],
        crc: 0,
    }
}

/// The blocks of a pack: head, summaries, `nat_bits`, and the last block.
fn pack(
    checkpoint: &mut Checkpoint,
    layout: &Layout,
    contents: &Contents,
    map: &PackMap,
    start: Pba,
) -> Vec<(Pba, Vec<u8>)> {
    let at = |block: u32| Pba(start.get() + u64::from(block));
    let head = checkpoint.encode(layout);
    let last = head.get(..BLOCK_SIZE).expect("the first block").to_vec();
    let mut summaries = contents.data_summaries();
    for log in Log::NODE {
        summaries.extend(contents.summary(log).encode());
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

/// Which NAT blocks are full and which are empty: saves the next mount reading them. Bits count
/// from the least significant one here.
fn nat_bits(checkpoint: &Checkpoint, layout: &Layout) -> Vec<u8> {
    let bytes = layout.nat_bitmap_bytes() as usize;
    let mut bits = (checkpoint.version | u64::from(checkpoint.crc) << 32).to_le_bytes().to_vec();
    bits.resize(NAT_BITS_HEAD + 2 * bytes, 0);
    let (full, empty) = bits[NAT_BITS_HEAD..].split_at_mut(bytes);
    let used = checkpoint.next_free_nid.get();
    bitmap::set_range(full, 0, (used / NIDS_PER_BLOCK) as usize);
    let begun = used.div_ceil(NIDS_PER_BLOCK) as usize;
    bitmap::set_range(empty, begun, bytes * 8 - begun);
    bits.resize(bits.len().next_multiple_of(BLOCK_SIZE), 0);
    bits
}
