//! The SIT of a filled volume, and what its first checkpoint says.

use super::super::output::Output;
use super::super::packs::Contents;
use super::error::PopulateResult;
use super::plan::Plan;
use crate::format::checkpoint::LogPosition;
use crate::format::layout::Side;
use crate::format::log::AllocType;
use crate::format::summary::{NatJournal, SitJournal};
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{Log, Nid, SegNo, SitEntry, sit};

/// Blocks of a segment.
const SEGMENT: u64 = BLOCKS_PER_SEGMENT as u64;
/// Blocks of the SIT that are written at once.
const CHUNK: usize = 128;

impl Plan {
    /// Blocks of a log in the `number`th of its segments.
    fn filled(&self, log: Log, number: u64) -> u64 {
        self.places.blocks(log).saturating_sub(number * SEGMENT).min(SEGMENT)
    }

    /// Segments that have blocks or a log, in their order.
    fn used_segments(&self) -> impl Iterator<Item = (SegNo, SitEntry)> + '_ {
        let mut logs = Log::ALL;
        logs.sort_by_key(|log| log.of(&self.volume.logs).get());
        logs.into_iter().flat_map(move |log| {
            let first = log.of(&self.volume.logs).get();
            (0..self.places.segments(log)).map(move |number| {
                let entry = SitEntry::filled(log, self.filled(log, number) as usize);
                (SegNo(first + number as u32), entry)
            })
        })
    }

    /// Writes the SIT.
    pub(super) fn write_sit(&self, output: &Output<'_>) -> PopulateResult<()> {
        let layout = &self.volume.layout;
        let mut blocks = Vec::new();
        let mut first = 0;
        for (segno, entry) in self.used_segments() {
            let (block, index) = crate::format::Layout::sit_place(segno);
            if block as usize >= first + CHUNK {
                let at = layout.sit_address(first as u32, Side::First);
                output.write_blocks(at.get(), std::mem::take(&mut blocks))?;
                first = block as usize;
            }
            let at = (block as usize - first) * BLOCK_SIZE;
            if blocks.len() <= at {
                blocks.resize(at + BLOCK_SIZE, 0);
            }
            sit::set_entry(&mut blocks[at..at + BLOCK_SIZE], index, &entry);
        }
        let at = layout.sit_address(first as u32, Side::First);
        output.write_blocks(at.get(), blocks)?;
        Ok(())
    }

    /// What the first checkpoint says.
    pub(super) fn checkpoint(&self) -> Contents {
        let (places, volume) = (&*self.places, &self.volume);
        let last = |log: Log| places.segments(log) - 1;
        let position = |log: Log| LogPosition {
            segno: volume.last_segment(log, places),
            blkoff: self.filled(log, last(log)) as u16,
            alloc: AllocType::Lfs,
        };
        let owners = |log: Log| match places.segment(log, last(log)) {
            Some(start) => self.owners(log, start, self.filled(log, last(log))),
            None => Vec::new(),
        };
        let segments: u64 = Log::ALL.iter().map(|log| places.segments(*log)).sum();
        Contents {
            logs: Log::ALL.map(position),
            owners: Log::ALL.map(owners),
            nat_journal: NatJournal::default(),
            sit_journal: SitJournal::default(),
            blocks: places.all_blocks(),
            nodes: places.node_blocks() as u32,
            inodes: self.survey.nodes.len() as u32,
            free_segments: volume.geometry.usable_segments - segments as u32,
            next_free_nid: Nid(places.next_nid as u32),
        }
    }
}
