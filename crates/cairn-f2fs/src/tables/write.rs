//! Writes tables for other areas.
//!
//! The segments keep their places on the device. Only their numbers change with the place where the
//! main area begins.

use cairn_base::Pba;
use cairn_block::BlockDeviceExt;

use super::Tables;
use crate::blocks::{self, Writes};
use crate::error::{Error, Result};
use crate::format::checkpoint::LogPosition;
use crate::format::layout::Side;
use crate::format::pack::PackMap;
use crate::format::summary::{SummaryBlock, info_journal};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BLOCKS_PER_SEGMENT};
use crate::format::{Checkpoint, CheckpointFlags, Layout, Log, SegNo, SitEntry, sit};
use crate::sizes::Sizes;

/// Blocks that are written at once.
const PART: u64 = 1024;
/// Data summaries of a pack in full.
const DATA_SUMMARIES: u32 = 3;

/// Another layout, and how its segments are numbered.
struct Target<'a> {
    tables: &'a Tables,
    new: &'a Layout,
}

impl Tables {
    /// Writes everything for the areas of `new`, in which nothing of the volume is: checkpoints
    /// that are later than the last one, with the flag of a resize. The caller writes the
    /// superblock.
    ///
    /// # Errors
    /// The volume was not unmounted cleanly, a block in use is outside the new main area, a table
    /// is damaged, or the device failed.
    pub(crate) fn write(&self, new: &Layout, sizes: Sizes) -> Result<()> {
        if !self.loaded.checkpoint.flags.contains(CheckpointFlags::UMOUNT) {
            return Err(Error::Refused("the volume is not clean: mount and unmount it".into()));
        }
        let target = Target { tables: self, new };
        let entries = target.entries()?;
        let packs = target.packs(&entries, sizes)?;
        let (start, end) = (u64::from(new.cp) * BLOCK_BYTES, u64::from(new.ssa) * BLOCK_BYTES);
        self.device.write_zeroes(start, end - start)?;
        target.write_nat()?;
        target.write_sit(&entries)?;
        target.write_summaries()?;
        packs.write(&*self.device)?;
        Ok(self.device.flush()?)
    }

    pub(super) fn is_current(&self, segno: SegNo) -> bool {
        self.loaded.checkpoint.logs.iter().any(|log| log.segno == segno)
    }
}

/// Writes that are sent when there are enough.
#[derive(Default)]
struct Pieces {
    writes: Writes,
    count: u64,
}

impl Pieces {
    fn push(&mut self, tables: &Tables, at: Pba, block: Vec<u8>) -> Result<()> {
        self.writes.push(at, block);
        self.count += 1;
        if self.count < PART {
            return Ok(());
        }
        self.count = 0;
        std::mem::take(&mut self.writes).write(&*tables.device)
    }

    fn finish(self, tables: &Tables) -> Result<()> {
        self.writes.write(&*tables.device)
    }
}

impl Target<'_> {
    /// The new number of a segment; `None` if it is no longer in the main area.
    fn number(&self, segno: SegNo) -> Option<SegNo> {
        self.new.segment_of(self.tables.layout.address(segno, 0)).map(|(segno, _)| segno)
    }

    /// The entries of the new segments.
    fn entries(&self) -> Result<Vec<SitEntry>> {
        let empty = SitEntry::empty(Log::HotData);
        let mut entries = vec![empty; self.new.main_segments as usize];
        for (segno, entry) in (0..).map(SegNo).zip(&self.tables.sit) {
            match self.number(segno) {
                Some(new) => entries[new.index()] = entry.clone(),
                None if entry.valid_blocks() == 0 && !self.tables.is_current(segno) => {}
                None => {
                    let why = format!("segment {segno} is in use where the tables are to be");
                    return Err(Error::NeedsCheck(why));
                }
            }
        }
        Ok(entries)
    }

    fn write_nat(&self) -> Result<()> {
        let (tables, new) = (self.tables, self.new);
        let mut pieces = Pieces::default();
        for block in 0..tables.layout.nat_blocks().min(new.nat_blocks()) {
            let image = tables.nat_block(block)?;
            if image.iter().any(|byte| *byte != 0) {
                pieces.push(tables, new.nat_address(block, Side::First), image.to_vec())?;
            }
        }
        pieces.finish(tables)
    }

    fn write_sit(&self, entries: &[SitEntry]) -> Result<()> {
        let mut pieces = Pieces::default();
        for (block, some) in (0..).zip(entries.chunks(sit::ENTRIES_PER_BLOCK)) {
            let mut bytes = vec![0; BLOCK_SIZE];
            for (index, entry) in some.iter().enumerate() {
                sit::set_entry(&mut bytes, index, entry);
            }
            pieces.push(self.tables, self.new.sit_address(block, Side::First), bytes)?;
        }
        pieces.finish(self.tables)
    }

    /// Copies the summaries of segments that hold something. Those of the logs are in the pack.
    fn write_summaries(&self) -> Result<()> {
        let tables = self.tables;
        let mut pieces = Pieces::default();
        for (segno, entry) in (0..).map(SegNo).zip(&tables.sit) {
            if entry.valid_blocks() == 0 || tables.is_current(segno) {
                continue;
            }
            let Some(new) = self.number(segno) else { continue };
            let from = tables.layout.summary_address(segno);
            let block = blocks::read(&*tables.device, from, 1)?.to_vec();
            pieces.push(tables, self.new.summary_address(new), block)?;
        }
        pieces.finish(tables)
    }

    /// Two whole packs, the first of which is the later one.
    fn packs(&self, entries: &[SitEntry], sizes: Sizes) -> Result<Writes> {
        let map = PackMap::plan(self.new, 0, DATA_SUMMARIES, true);
        let map = map.ok_or_else(|| Error::Refused("a checkpoint has no room".into()))?;
        let mut checkpoint = self.checkpoint(entries, sizes, &map)?;
        let mut writes = Writes::new();
        for (side, more) in [(Side::Second, 1), (Side::First, 2)] {
            checkpoint.version = self.tables.loaded.checkpoint.version.wrapping_add(more);
            let head = checkpoint.encode(self.new);
            let last = head[..BLOCK_SIZE].to_vec();
            let start = self.new.pack_start(side).get();
            let at = |block: u32| Pba(start + u64::from(block));
            writes.push(at(0), head);
            writes.push(at(map.start_sum()), self.summaries());
            writes.push(at(map.last()), last);
        }
        Ok(writes)
    }

    fn checkpoint(&self, entries: &[SitEntry], sizes: Sizes, map: &PackMap) -> Result<Checkpoint> {
        let last = &self.tables.loaded.checkpoint;
        let moved = |log: &LogPosition| {
            let segno = self.number(log.segno).expect("entries() has found it");
            LogPosition { segno, ..*log }
        };
        let logs = last.logs.each_ref().map(moved);
        let is_free = |(segno, entry): &(SegNo, &SitEntry)| {
            entry.valid_blocks() == 0 && logs.iter().all(|log| log.segno != *segno)
        };
        let free = (0..).map(SegNo).zip(entries).filter(is_free).count();
        let of_pack = CheckpointFlags::COMPACT_SUM
            | CheckpointFlags::ORPHAN_PRESENT
            | CheckpointFlags::NAT_BITS
            | CheckpointFlags::TRIMMED
            | CheckpointFlags::NOCRC_RECOVERY;
        let flags = last.flags.difference(of_pack)
            | CheckpointFlags::CRC_RECOVERY
            | CheckpointFlags::RESIZEFS;
        let mut checkpoint = Checkpoint {
            free_segment_count: u32::try_from(free).unwrap_or(u32::MAX),
            logs,
            flags,
            pack_total_blocks: map.total(),
            pack_start_sum: map.start_sum(),
            next_free_nid: last.next_free_nid,
            sit_bitmap: vec![0; self.new.sit_bitmap_bytes() as usize],
            nat_bitmap: vec![0; self.new.nat_bitmap_bytes() as usize],
            ..last.clone()
        };
        sizes.put(&mut checkpoint);
        Ok(checkpoint)
    }

    /// The owners of the logs' blocks, without journals.
    fn summaries(&self) -> Vec<u8> {
        let current = &self.tables.current;
        let block = |log: Log| {
            let mut summary = SummaryBlock {
                entries: log.of(&current.entries).clone(),
                ..SummaryBlock::empty(log.is_node())
            };
            if log.is_node() {
                let kbytes = if log == Log::HotNode { current.kbytes_written } else { 0 };
                summary.journal = info_journal(kbytes);
            }
            debug_assert_eq!(summary.entries.len(), BLOCKS_PER_SEGMENT as usize);
            summary.encode()
        };
        Log::ALL.into_iter().flat_map(block).collect()
    }
}
