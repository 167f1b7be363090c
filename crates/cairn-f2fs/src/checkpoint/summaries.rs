//! The part of a pack for the six logs: the journals of NAT and SIT, and the owners of the blocks
//! in the current segments.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use std::ops::Range;

use cairn_base::Pba;
use cairn_block::{BlockDeviceExt, IoBuf};
use cairn_cache::block::BufferCache;

use super::Loaded;
use crate::error::Result;
use crate::format::checkpoint::CheckpointFlags;
use crate::format::compact::CompactSummaries;
use crate::format::layout::Layout;
use crate::format::log::{AllocType, Log};
use crate::format::node::NodeFooter;
use crate::format::summary::{
    self, ENTRIES, JournalBytes, NatJournal, SitJournal, Summary, SummaryBlock, kbytes_written,
};
use crate::format::units::{BLOCK_SIZE, Nid};

/// Blocks of a segment that are read together.
const PIECE: usize = 64;

/// The journals of a pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journals {
    /// Entries that override the NAT area.
    pub(crate) nat: NatJournal,
    /// Entries that override the SIT area.
    pub(crate) sit: SitJournal,
}

/// Owners of the blocks of the six current segments, and lifetime statistics.
#[derive(Clone, Debug)]
pub(crate) struct CurrentSummaries {
    /// By [`Log::index`], 512 entries each.
    pub(crate) entries: [Vec<Summary>; Log::COUNT],
    /// Kilobytes ever written to the volume; known only after an unmount.
    pub(crate) kbytes_written: u64,
}

/// Reads the journals.
///
/// # Errors
/// They are damaged, or the device failed.
pub(crate) fn journals(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
) -> Result<Journals> {
    let (nat, sit) = journal_areas(loaded, buffers, layout)?;
    Ok(Journals { nat: NatJournal::decode(&nat, layout)?, sit: SitJournal::decode(&sit, layout)? })
}

/// Reads the areas of the NAT's journal and the SIT's.
///
/// # Errors
/// The summaries in which they lie are damaged, or the device failed.
pub(crate) fn journal_areas(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
) -> Result<(JournalBytes, JournalBytes)> {
    Ok(if loaded.checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM) {
        let compact = compact(loaded, buffers, layout)?;
        (compact.nat_journal, compact.sit_journal)
    } else {
        let journal = |log| -> Result<JournalBytes> {
            let block = full(loaded, buffers, layout, log)?;
            Ok(block.map_or([0; _], |block| block.journal))
        };
        (journal(Log::HotData)?, journal(Log::ColdData)?)
    })
}

/// The block of the pack that has a journal, and where in it: with the hot data that of the NAT,
/// with the cold data that of the SIT. None if there is no such block.
pub(crate) fn journal_place(
    loaded: &Loaded,
    layout: &Layout,
    log: Log,
) -> Option<(Pba, Range<usize>)> {
    let is_compact = loaded.checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM);
    let offset = match is_compact {
        true => loaded.map.data_summaries().next(),
        false => loaded.map.summary(log),
    };
    let place = summary::journal_place(is_compact, log == Log::HotData);
    offset.map(|offset| (loaded.address(layout, offset), place))
}

/// Reads, or rebuilds from the footers of the nodes, the owners of the current segments' blocks.
///
/// # Errors
/// They are damaged, or the device failed.
pub(crate) fn current(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
) -> Result<CurrentSummaries> {
    let mut entries: [Vec<Summary>; Log::COUNT] = Default::default();
    let mut compact = match loaded.checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM) {
        true => Some(compact(loaded, buffers, layout)?.entries.into_iter()),
        false => None,
    };
    let mut kbytes = 0;
    for (log, list) in Log::ALL.into_iter().zip(&mut entries) {
        *list = match &mut compact {
            // In the order of the data logs, which are the first three.
            Some(data) if !log.is_node() => data.next().unwrap_or_default(),
            _ => match full(loaded, buffers, layout, log)? {
                Some(block) if log == Log::HotNode => {
                    kbytes = kbytes_written(&block.journal);
                    block.entries
                }
                Some(block) => block.entries,
                None if log.is_node() => from_footers(loaded, buffers, layout, log)?,
                None => Vec::new(),
            },
        };
        list.resize(ENTRIES, Summary::default());
    }
    Ok(CurrentSummaries { entries, kbytes_written: kbytes })
}

/// The owners of the blocks in the segment of a data log.
///
/// # Errors
/// As [`current`].
pub(crate) fn of_data(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
    log: Log,
) -> Result<Vec<Summary>> {
    if !loaded.checkpoint.flags.contains(CheckpointFlags::COMPACT_SUM) {
        return Ok(full(loaded, buffers, layout, log)?.map_or_else(Vec::new, |block| block.entries));
    }
    let lists = Log::DATA.into_iter().zip(compact(loaded, buffers, layout)?.entries);
    Ok(lists.filter(|(of, _)| *of == log).map(|(_, list)| list).next().unwrap_or_default())
}

fn compact(loaded: &Loaded, buffers: &BufferCache, layout: &Layout) -> Result<CompactSummaries> {
    let mut blocks = Vec::new();
    for offset in loaded.map.data_summaries() {
        blocks.extend_from_slice(&buffers.get(loaded.address(layout, offset))?.image());
    }
    let counts = Log::DATA.map(|log| match loaded.checkpoint.log(log) {
        position if position.alloc == AllocType::Ssr => u16::try_from(ENTRIES).unwrap_or(u16::MAX),
        position => position.blkoff,
    });
    Ok(CompactSummaries::decode(&blocks, counts)?)
}

fn full(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
    log: Log,
) -> Result<Option<SummaryBlock>> {
    let Some(offset) = loaded.map.summary(log) else { return Ok(None) };
    let image = buffers.get(loaded.address(layout, offset))?.image();
    Ok(Some(SummaryBlock::decode_as(&image, log.is_node())))
}

/// Reads every block of the segment, because a log that fills holes has nodes after its position,
/// too. In large pieces, and past the buffers: nothing else needs these blocks.
fn from_footers(
    loaded: &Loaded,
    buffers: &BufferCache,
    layout: &Layout,
    log: Log,
) -> Result<Vec<Summary>> {
    let segno = loaded.checkpoint.log(log).segno;
    if segno.get() >= layout.main_segments {
        return Ok(Vec::new());
    }
    let mut entries = Vec::with_capacity(ENTRIES);
    let mut piece = IoBuf::try_zeroed(PIECE.saturating_mul(BLOCK_SIZE))?;
    for first in (0..ENTRIES).step_by(PIECE) {
        let blkoff = u16::try_from(first).unwrap_or(u16::MAX);
        let blocks = PIECE.min(ENTRIES.saturating_sub(first));
        piece.set_len(blocks.saturating_mul(BLOCK_SIZE));
        let address = layout.address(segno, blkoff);
        piece = buffers.device().read_into(address.bytes(), piece)?;
        entries.extend(piece.chunks_exact(BLOCK_SIZE).map(|image| {
            let nid: Nid = NodeFooter::read(image).nid;
            Summary { nid, ..Summary::default() }
        }));
    }
    Ok(entries)
}
