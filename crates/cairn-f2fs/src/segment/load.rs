//! Reading the SIT and the logs of a checkpoint.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;

use super::log::LogState;
use super::table::Table;
use super::{Mode, Segments, State};
use crate::blocks;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::log::AllocType;
use crate::format::summary::{SitJournal, SummaryBlock, kbytes_written};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{Checkpoint, Layout, Log, SegNo, SitEntry, bits, sit};

/// SIT blocks read at once.
const READ_RUN: u32 = 256;

/// What segments are made from.
pub struct SegmentSources<'a> {
    /// The volume's geometry.
    pub layout: Layout,
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// Summaries of the six current segments, by log.
    pub summaries: [SummaryBlock; Log::COUNT],
    /// The SIT journal.
    pub journal: SitJournal,
    /// Metadata blocks of the volume.
    pub cache: Arc<BufferCache>,
    /// Time.
    pub runtime: Arc<dyn Runtime>,
    /// How logs find room.
    pub mode: Mode,
}

impl Segments {
    /// Reads the whole SIT and checks it against the checkpoint.
    ///
    /// # Errors
    /// An entry is impossible, the counts contradict the checkpoint, a log stands at a block in use; or the device failed.
    pub fn load(sources: SegmentSources<'_>) -> Result<Self> {
        let SegmentSources { layout, checkpoint, summaries, journal, cache, runtime, mode } = sources;
        let mut entries = read_entries(&**cache.device(), &layout, checkpoint)?;
        let journalled = journal.0.iter().map(|(segno, _)| *segno).collect();
        for (segno, entry) in journal.0 {
            entries[segno.index()] = entry;
        }
        check_counts(&entries, checkpoint)?;
        let current = Log::ALL.map(|log| checkpoint.log(log).segno);
        Log::ALL.into_iter().try_for_each(|log| check_log(&entries, checkpoint, log))?;
        let mut table = Table::new(&layout, entries, current);
        for log in Log::ALL {
            table.set_log(current[log.index()], log);
        }
        let mut kbytes = 0;
        let mut summaries = summaries.into_iter();
        let logs = Log::ALL.map(|log| {
            let summary = summaries.next().expect("a summary for each log");
            if log == Log::HotNode {
                kbytes = kbytes_written(&summary.journal);
            }
            let summary = SummaryBlock { is_node: log.is_node(), ..summary };
            LogState { position: checkpoint.log(log), summary }
        });
        let state = State {
            table,
            logs,
            closed: HashMap::new(),
            closed_number: 0,
            summary_generation: 0,
            journal: journalled,
            bitmap: checkpoint.sit_bitmap.clone(),
            reuse_below: 2 * (checkpoint.rsvd_segment_count / layout.segs_per_sec),
            victim_cursor: current,
            kbytes_written: kbytes,
            moved: false,
        };
        Ok(Self::wrap(layout, mode, cache, runtime, checkpoint.elapsed_time, state))
    }
}

/// The entries of all segments as the current copies of the SIT blocks have them.
fn read_entries(device: &dyn BlockDevice, layout: &Layout, checkpoint: &Checkpoint) -> Result<Vec<SitEntry>> {
    let blocks = layout.sit_blocks_used();
    let mut entries = Vec::with_capacity(layout.main_segments as usize);
    let mut block = 0;
    while block < blocks {
        let side = checkpoint.sit_side(block);
        let same = (block..blocks).take(READ_RUN as usize).take_while(|next| checkpoint.sit_side(*next) == side);
        let count = same.count();
        let bytes = blocks::read(device, layout.sit_address(block, side), count)?;
        for image in bytes.chunks_exact(BLOCK_SIZE) {
            let first = entries.len() as u32;
            let here = (layout.main_segments - first).min(sit::ENTRIES_PER_BLOCK as u32);
            for index in 0..here {
                entries.push(sit::entry(image, index as usize, SegNo(first + index))?);
            }
        }
        block += count as u32;
    }
    Ok(entries)
}

fn check_counts(entries: &[SitEntry], checkpoint: &Checkpoint) -> Result<(), Corrupt> {
    let sum = |nodes: bool| -> u64 {
        let chosen = entries.iter().filter(|entry| entry.log.is_node() == nodes);
        chosen.map(|entry| u64::from(entry.valid_blocks())).sum()
    };
    let (nodes, data) = (sum(true), sum(false));
    let bad = |field, value, expected| Err(Corrupt::Checkpoint { field, value, expected });
    if nodes != u64::from(checkpoint.valid_node_count) {
        return bad(
            "valid_node_count",
            checkpoint.valid_node_count.into(),
            "the SIT has another number of node blocks",
        );
    }
    if nodes + data > checkpoint.valid_block_count {
        return bad("valid_block_count", checkpoint.valid_block_count, "the SIT has more");
    }
    Ok(())
}

/// A log must stand at a free block, and one that appends must have nothing behind it.
fn check_log(entries: &[SitEntry], checkpoint: &Checkpoint, log: Log) -> Result<(), Corrupt> {
    let position = checkpoint.log(log);
    let map = &entries[position.segno.index()].valid_map;
    let from = usize::from(position.blkoff);
    let end = match position.alloc {
        AllocType::Lfs => BLOCKS_PER_SEGMENT as usize,
        AllocType::Ssr => from + 1,
    };
    match bits::next_set(map, from, end) {
        Some(block) => {
            let what = "a log stands at, or before, a block in use";
            Err(Corrupt::Sit { segno: position.segno, what, value: block as u64 })
        }
        None => Ok(()),
    }
}
