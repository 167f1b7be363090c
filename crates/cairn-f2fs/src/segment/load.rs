//! Reading the SIT and the logs of a checkpoint.

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

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::units::as_u64;
use cairn_block::reserve::expect_room;
use cairn_cache::block::BufferCache;

use super::log::LogState;
use super::proof::Doubt;
use super::table::Table;
use super::{Mode, Segments, State};
use crate::checkpoint::summaries::CurrentSummaries;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::log::AllocType;
use crate::format::summary::{ENTRIES, SitJournal, SummaryBlock};
use crate::format::{Checkpoint, CheckpointFlags, Layout, Log, SegNo, SitEntry, bits, sit};

/// Approximate memory of an entry and its state.
const BYTES_PER_SEGMENT: u64 = 400;

/// The sources of [`Segments`].
pub struct SegmentSources<'a> {
    /// The volume's geometry.
    pub(crate) layout: Layout,
    /// The checkpoint.
    pub(crate) checkpoint: &'a Checkpoint,
    /// Owners of the blocks of the six current segments.
    pub(crate) summaries: CurrentSummaries,
    /// The SIT journal.
    pub(crate) journal: SitJournal,
    /// Metadata blocks of the volume.
    pub(crate) cache: Arc<BufferCache>,
    /// Time.
    pub(crate) runtime: Arc<dyn Runtime>,
    /// How logs find room.
    pub(crate) mode: Mode,
}

impl Segments {
    /// Reads the whole SIT and checks it against the checkpoint.
    ///
    /// # Errors
    /// An entry is impossible, the counts contradict the checkpoint, a log is at a block in use, or
    /// the device failed.
    pub fn load(sources: SegmentSources<'_>) -> Result<Self> {
        let SegmentSources { layout, checkpoint, summaries, journal, cache, runtime, mode } =
            sources;
        expect_room(
            "what is valid in each segment",
            u64::from(layout.main_segments) * BYTES_PER_SEGMENT,
        )?;
        let entries = load(&cache, &layout, checkpoint, &journal)?;
        let journalled = journal.0.iter().map(|(segno, _)| *segno).collect();
        let current = Log::ALL.map(|log| checkpoint.log(log).segno);
        check_capacity(&entries, &layout)?;
        Log::ALL.into_iter().try_for_each(|log| check_log(&entries, checkpoint, log, &layout))?;
        let mut table = Table::new(&layout, entries, current);
        if !checkpoint.flags.contains(CheckpointFlags::TRIMMED) {
            table.forget_discards();
        }
        for log in Log::ALL {
            table.set_log(*log.of(&current), log);
        }
        let logs = Log::ALL.map(|log| {
            let entries = log.of(&summaries.entries).clone();
            let summary = SummaryBlock { entries, ..SummaryBlock::empty(log.is_node()) };
            LogState { position: checkpoint.log(log), summary }
        });
        let sums = (table.valid_total(), table.free_segment_count());
        let state = State {
            table,
            logs,
            closed: HashMap::new(),
            closed_number: 0,
            summary_generation: 0,
            journal: journalled,
            bitmap: checkpoint.sit_bitmap.clone(),
            reuse_below: checkpoint
                .rsvd_segment_count
                .strict_div(layout.usable_segments())
                .saturating_mul(2),
            cleaning: Vec::new(),
            barred: 0..0,
            given_up: false,
            victim_cursor: current,
            kbytes_written: summaries.kbytes_written,
            moved: false,
            doubt: Doubt::of(sums, checkpoint, &layout),
        };
        Ok(Self::wrap(layout, mode, cache, runtime, checkpoint.elapsed_time, state))
    }
}

/// All entries, by segment, as the checkpoint left them; checked against its counters as the kernel
/// does at mount.
///
/// # Errors
/// An entry is impossible, the sums contradict the checkpoint, or the device failed.
pub(crate) fn load(
    buffers: &BufferCache,
    layout: &Layout,
    checkpoint: &Checkpoint,
    journal: &SitJournal,
) -> Result<Vec<SitEntry>> {
    let journal: HashMap<SegNo, &SitEntry> =
        journal.0.iter().map(|(segno, entry)| (*segno, entry)).collect();
    let mut entries = Vec::new();
    let mut segments = (0..layout.main_segments).map(SegNo);
    for block in 0..layout.sit_blocks_used() {
        let image = buffers.get(layout.sit_address(block, checkpoint.sit_side(block)))?.image();
        for (index, segno) in (0..sit::ENTRIES_PER_BLOCK).zip(&mut segments) {
            entries.push(match journal.get(&segno) {
                Some(entry) => (*entry).clone(),
                None => sit::entry(&image, index, segno)?,
            });
        }
    }
    check_sums(&entries, checkpoint)?;
    Ok(entries)
}

fn check_sums(entries: &[SitEntry], checkpoint: &Checkpoint) -> Result<()> {
    let sum = |nodes: bool| -> u64 {
        let of_kind = entries.iter().filter(|entry| entry.log.is_node() == nodes);
        of_kind.map(|entry| u64::from(entry.valid_blocks())).sum()
    };
    let (nodes, data) = (sum(true), sum(false));
    if nodes != u64::from(checkpoint.valid_node_count) {
        let expected = "the SIT counts another number of node blocks";
        let value = checkpoint.valid_node_count.into();
        return Err(Corrupt::Checkpoint { field: "valid_node_count", value, expected }.into());
    }
    // The checkpoint also counts slots that are reserved but have no block yet.
    if nodes.saturating_add(data) > checkpoint.valid_block_count {
        let expected = "the SIT counts more valid blocks";
        let value = checkpoint.valid_block_count;
        return Err(Corrupt::Checkpoint { field: "valid_block_count", value, expected }.into());
    }
    Ok(())
}

/// Checks that no block beyond a zone's capacity is in use.
fn check_capacity(entries: &[SitEntry], layout: &Layout) -> Result<(), Corrupt> {
    for (segno, entry) in (0..).map(SegNo).zip(entries) {
        let usable = usize::from(layout.usable_blocks(segno));
        if let Some(block) = bits::next_set(&entry.valid_map, usable, ENTRIES) {
            let what = "a block beyond its zone's capacity is in use";
            return Err(Corrupt::Sit { segno, what, value: as_u64(block) });
        }
    }
    Ok(())
}

/// Checks that a log is at a free, writable block, and that no block after it is in use if it
/// appends.
fn check_log(
    entries: &[SitEntry],
    checkpoint: &Checkpoint,
    log: Log,
    layout: &Layout,
) -> Result<(), Corrupt> {
    let position = checkpoint.log(log);
    if position.blkoff >= layout.usable_blocks(position.segno) {
        let what = "a log's next block is beyond its zone's capacity";
        return Err(Corrupt::Sit { segno: position.segno, what, value: position.blkoff.into() });
    }
    let Some(SitEntry { valid_map: map, .. }) = entries.get(position.segno.index()) else {
        return Err(Corrupt::Sit {
            segno: position.segno,
            what: "a log's current segment does not exist",
            value: 0,
        });
    };
    let from = usize::from(position.blkoff);
    let end = match position.alloc {
        AllocType::Lfs => ENTRIES,
        AllocType::Ssr => from.saturating_add(1),
    };
    match bits::next_set(map, from, end) {
        Some(block) => {
            let what = "a log's next block, or one that it will append to, is in use";
            Err(Corrupt::Sit { segno: position.segno, what, value: as_u64(block) })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checkpoint::LogPosition;
    use crate::format::checkpoint::tests::{checkpoint, layout};

    /// Tests that a zone's capacity is checked: the device may have been exchanged, and an image
    /// may have any value.
    #[test]
    fn nothing_counts_behind_what_a_zone_can_hold() {
        let mut layout = layout();
        (layout.segs_per_sec, layout.main_segments, layout.sections) = (4, 24, 6);
        layout.unusable_per_section = 2048 - 1300;
        let empty = SitEntry { log: Log::ColdData, valid_map: [0; 64], mtime: 0 };
        let used = |segno: usize, block| {
            let mut entries = vec![empty.clone(); 24];
            bits::set(&mut entries[segno].valid_map, block);
            check_capacity(&entries, &layout).err()
        };
        assert_eq!((used(1, 511), used(6, 275)), (None, None));
        for (segno, block) in [(6, 276), (7, 0), (23, 511)] {
            let what = "a block beyond its zone's capacity is in use";
            assert_eq!(
                used(segno, block),
                Some(Corrupt::Sit { segno: SegNo(segno as u32), what, value: as_u64(block) })
            );
        }
        let mut cp = checkpoint(&layout);
        let mut stands = |segno, blkoff| {
            cp.logs[Log::HotData.index()] =
                LogPosition { segno: SegNo(segno), blkoff, alloc: AllocType::Lfs };
            check_log(&vec![empty.clone(); 24], &cp, Log::HotData, &layout).is_ok()
        };
        assert_eq!([stands(6, 275), stands(6, 276), stands(7, 0)], [true, false, false]);
    }
}
