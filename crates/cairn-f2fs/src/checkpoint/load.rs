//! Reading checkpoint packs.

use cairn_base::Pba;
use cairn_block::BlockDevice;

use crate::blocks;
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::checkpoint::verify;
use crate::format::layout::Side;
use crate::format::log::AllocType;
use crate::format::pack::{MIN_BLOCKS, PackMap};
use crate::format::summary::{CompactSummaries, NatJournal, SitJournal, SummaryBlock};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{Checkpoint, CheckpointFlags, Layout, Log, Nid, NodeFooter, Summary, orphan};

/// The pack that counts, with all it holds but node summaries.
#[derive(Clone, Debug)]
pub struct Pack {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Which of the two packs it is.
    pub side: Side,
    /// Where everything is in it.
    pub map: PackMap,
    /// Inodes without links that were open.
    pub orphans: Vec<Nid>,
    /// Summaries of the data logs; their journal areas are in `nat_journal` and `sit_journal`.
    pub data_summaries: [SummaryBlock; 3],
    /// NAT entries that override the area.
    pub nat_journal: NatJournal,
    /// SIT entries that override the area.
    pub sit_journal: SitJournal,
}

/// Reads the head of one pack.
///
/// # Errors
/// The pack is not valid: it was not written completely, or is damaged; or the device failed.
pub fn read_checkpoint(device: &dyn BlockDevice, layout: &Layout, side: Side) -> Result<Checkpoint> {
    let start = layout.pack_start(side);
    let head = blocks::read(device, start, 1 + layout.cp_payload as usize)?;
    let (first, _) = head.split_at(BLOCK_SIZE);
    let stamp = verify(first, start.get())?;
    if !(MIN_BLOCKS..=BLOCKS_PER_SEGMENT).contains(&stamp.total_blocks) {
        let (field, expected) = ("cp_pack_total_block_count", "it must be 3 to 512");
        return Err(Corrupt::Checkpoint { field, value: stamp.total_blocks.into(), expected }.into());
    }
    let last = Pba(start.get() + u64::from(stamp.total_blocks) - 1);
    let end = verify(&blocks::read(device, last, 1)?, last.get())?;
    if end.version != stamp.version {
        let expected = "the pack's first block has another";
        return Err(Corrupt::Checkpoint { field: "checkpoint_ver", value: end.version, expected }.into());
    }
    Ok(Checkpoint::decode(&head, start.get(), layout)?)
}

/// The valid checkpoint that counts: the later one.
///
/// # Errors
/// Neither pack is valid, or the device failed.
pub fn current_checkpoint(device: &dyn BlockDevice, layout: &Layout) -> Result<(Checkpoint, Side)> {
    let read = |side| match read_checkpoint(device, layout, side) {
        Ok(checkpoint) => Ok(Ok(checkpoint)),
        Err(Error::Corrupt(corrupt)) => Ok(Err(corrupt)),
        Err(other) => Err(other),
    };
    match (read(Side::First)?, read(Side::Second)?) {
        (Ok(first), Ok(second)) if second.is_after(&first) => Ok((second, Side::Second)),
        (Ok(first), _) => Ok((first, Side::First)),
        (Err(_), Ok(second)) => Ok((second, Side::Second)),
        (Err(first), Err(second)) => {
            Err(Corrupt::NoCheckpoint { first: Box::new(first), second: Box::new(second) }.into())
        }
    }
}

impl Pack {
    /// Reads the pack that counts.
    ///
    /// # Errors
    /// Neither pack is valid, or what it holds is impossible; or the device failed.
    pub fn read(device: &dyn BlockDevice, layout: &Layout) -> Result<Self> {
        let (checkpoint, side) = current_checkpoint(device, layout)?;
        let map = PackMap::of(&checkpoint, layout)?;
        let read = |range: std::ops::Range<u32>| {
            let at = Pba(layout.pack_start(side).get() + u64::from(range.start));
            blocks::read(device, at, range.len())
        };
        let mut orphans = Vec::new();
        if checkpoint.flags.contains(CheckpointFlags::ORPHAN_PRESENT) {
            for block in read(map.orphans())?.chunks_exact(BLOCK_SIZE) {
                orphans.extend(orphan::decode(block, layout)?);
            }
        }
        let bytes = read(map.data_summaries())?;
        let (data_summaries, nat, sit) = if checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM) {
            compact_summaries(&bytes, &checkpoint)?
        } else {
            full_summaries(&bytes)?
        };
        let nat_journal = NatJournal::decode(&nat, layout)?;
        let sit_journal = SitJournal::decode(&sit, layout)?;
        Ok(Self { checkpoint, side, map, orphans, data_summaries, nat_journal, sit_journal })
    }

    /// Summaries of the six current segments, by log. Where the pack has none of the node logs they are made again from the
    /// footers in their segments.
    ///
    /// # Errors
    /// A summary is impossible, or the device failed.
    pub fn summaries(&self, device: &dyn BlockDevice, layout: &Layout) -> Result<[SummaryBlock; Log::COUNT]> {
        let node = |log: Log| match self.map.summary(log) {
            Some(block) => {
                let at = Pba(layout.pack_start(self.side).get() + u64::from(block));
                Ok(SummaryBlock::decode(&blocks::read(device, at, 1)?)?)
            }
            None => rebuild(device, layout, &self.checkpoint, log),
        };
        let [hot, warm, cold] = self.data_summaries.clone();
        Ok([hot, warm, cold, node(Log::HotNode)?, node(Log::WarmNode)?, node(Log::ColdNode)?])
    }
}

type Journal = crate::format::summary::JournalBytes;

fn compact_summaries(bytes: &[u8], checkpoint: &Checkpoint) -> Result<([SummaryBlock; 3], Journal, Journal), Corrupt> {
    let counts = Log::DATA.map(|log| {
        let position = checkpoint.log(log);
        match position.alloc {
            AllocType::Lfs => position.blkoff,
            AllocType::Ssr => BLOCKS_PER_SEGMENT as u16,
        }
    });
    let compact = CompactSummaries::decode(bytes, counts)?;
    let summaries = compact.entries.map(|entries| {
        let mut summary = SummaryBlock::empty(false);
        summary.entries.iter_mut().zip(entries).for_each(|(to, entry)| *to = entry);
        summary
    });
    Ok((summaries, compact.nat_journal, compact.sit_journal))
}

fn full_summaries(bytes: &[u8]) -> Result<([SummaryBlock; 3], Journal, Journal), Corrupt> {
    let mut summaries = bytes.chunks_exact(BLOCK_SIZE).map(SummaryBlock::decode);
    let mut next = || summaries.next().unwrap_or_else(|| Ok(SummaryBlock::empty(false)));
    let (hot, warm, cold) = (next()?, next()?, next()?);
    let (nat, sit) = (hot.journal, cold.journal);
    Ok(([hot, warm, cold], nat, sit))
}

/// A node log's summary from the footers in its segment, as Linux does it.
fn rebuild(device: &dyn BlockDevice, layout: &Layout, checkpoint: &Checkpoint, log: Log) -> Result<SummaryBlock> {
    let position = checkpoint.log(log);
    let used = match position.alloc {
        AllocType::Lfs => usize::from(position.blkoff),
        AllocType::Ssr => BLOCKS_PER_SEGMENT as usize,
    };
    let mut summary = SummaryBlock::empty(true);
    if used == 0 {
        return Ok(summary);
    }
    let bytes = blocks::read(device, layout.address(position.segno, 0).pba(), used)?;
    for (entry, block) in summary.entries.iter_mut().zip(bytes.chunks_exact(BLOCK_SIZE)) {
        *entry = Summary { nid: NodeFooter::read(block).nid, ..Summary::default() };
    }
    Ok(summary)
}
