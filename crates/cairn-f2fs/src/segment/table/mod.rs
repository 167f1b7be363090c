//! The SIT in memory: which blocks of each segment are valid, and which may not be written yet.
//!
//! A block may be written if it is free now, in the checkpoint in flight, and in the last one;
//! `freed` holds those that were valid at any time since the last snapshot and are not now (also
//! blocks placed and freed in between: a roll-forward chain may name them), `in_flight` those that
//! were in `freed` when the checkpoint in flight took its snapshot. While checkpoints are disabled
//! there is no roll-forward: only blocks of the last checkpoint (`kept`) are held back. Full and
//! empty segments have no bitmap of their own. `undiscarded` holds the free blocks that are not
//! discarded: all of them, if the checkpoint does not have `TRIMMED`. Blocks beyond the capacity of
//! a section's zone are never written, and are not counted.
//!
//! Invariants: `valid` is the number of set bits; a section's counts are the sums over its
//! segments; `freed` and the valid map are disjoint; a segment is free only if it has neither valid
//! nor freed blocks and no log is in it; `empty` counts the segments without valid blocks that can
//! be written.

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

#[cfg(test)]
mod check;
mod counts;
mod epoch;
mod segment;
mod undiscarded;

use std::collections::{BTreeSet, HashMap};

use cairn_base::sabotage::Safeguard;
use cairn_base::units::{as_index, as_u64};

use super::free::FreeMap;
use crate::corrupt::Corrupt;
use crate::format::sit::VALID_MAP_SIZE;
use crate::format::{Layout, Log, SegNo, SitEntry, bits, block};

pub(super) use segment::Map;
use segment::{BlockSet, FULL, Segment};
use undiscarded::Undiscarded;

/// The sums of a section's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Valid blocks.
    pub(super) valid: u32,
    /// Valid node blocks.
    pub(super) nodes: u32,
}

/// The valid blocks of each segment: now, in the checkpoint in flight and in the last one.
pub(super) struct Table {
    segments: Vec<Segment>,
    sections: Vec<Section>,
    layout: Layout,
    /// Blocks that are no longer valid, but must not be written before the next checkpoint.
    freed: HashMap<SegNo, Box<Map>>,
    /// Empty segments that their logs have left: free after the next checkpoint.
    left: BTreeSet<SegNo>,
    /// Number of blocks in `freed`.
    freed_blocks: u64,
    /// The same three of the snapshot, until the checkpoint in flight has completed.
    in_flight: HashMap<SegNo, Box<Map>>,
    in_flight_left: BTreeSet<SegNo>,
    in_flight_blocks: u64,
    /// Valid blocks of the last checkpoint, by segment, and their number, while they are disabled.
    kept: Option<(Vec<Map>, u64)>,
    /// Segments whose entries differ from those of the last snapshot.
    dirty: BTreeSet<SegNo>,
    /// Segments without a log that have both valid and other blocks, by the log that filled them.
    partial: [BTreeSet<SegNo>; Log::COUNT],
    current: [Option<SegNo>; Log::COUNT],
    pub(super) free: FreeMap,
    pub(super) undiscarded: Undiscarded,
    empty: u32,
    valid_total: u64,
}

impl Table {
    /// A table of the entries on disk, in order; `current` are the segments the logs are in.
    pub(super) fn new(
        layout: &Layout,
        entries: Vec<SitEntry>,
        current: [SegNo; Log::COUNT],
    ) -> Self {
        assert_eq!(entries.len(), as_index(layout.main_segments), "an entry a segment");
        let mut table = Self {
            segments: Vec::with_capacity(entries.len()),
            sections: vec![
                Section::default();
                as_index(layout.main_segments.strict_div(layout.segs_per_sec))
            ],
            layout: *layout,
            freed: HashMap::new(),
            left: BTreeSet::new(),
            in_flight: HashMap::new(),
            in_flight_left: BTreeSet::new(),
            freed_blocks: 0,
            in_flight_blocks: 0,
            kept: None,
            dirty: BTreeSet::new(),
            partial: Default::default(),
            current: current.map(Some),
            undiscarded: Undiscarded::none(layout.main_segments),
            free: FreeMap::new(layout.main_segments, layout.segs_per_sec, layout.usable_segments()),
            empty: 0,
            valid_total: 0,
        };
        for entry in entries {
            let valid = BlockSet::new(entry.valid_map);
            table.segments.push(Segment {
                mtime: entry.mtime,
                valid,
                log: entry.log,
                listed: false,
            });
        }
        for segno in (0..layout.main_segments).map(SegNo) {
            let valid = i32::from(table.valid(segno));
            table.count(segno, valid);
            let empty = valid == 0 && table.is_usable(segno);
            table.empty = table.empty.strict_add(u32::from(empty));
        }
        for segno in (0..layout.main_segments).map(SegNo) {
            if table.is_current(segno) {
                continue;
            }
            table.classify(segno);
            if table.valid(segno) == 0 && table.is_usable(segno) {
                table.free.release(segno);
            }
        }
        table
    }

    // --- looking ---

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.segments.len()).unwrap_or(u32::MAX)
    }

    /// True if the segment has writable blocks.
    fn is_usable(&self, segno: SegNo) -> bool {
        self.layout.usable_blocks(segno) > 0
    }

    fn segment(&self, segno: SegNo) -> &Segment {
        block::entry(&self.segments, segno.index())
    }

    fn segment_mut(&mut self, segno: SegNo) -> &mut Segment {
        block::entry_mut(&mut self.segments, segno.index())
    }

    /// Valid blocks.
    pub(super) fn valid(&self, segno: SegNo) -> u16 {
        self.segment(segno).valid.count()
    }

    pub(super) fn log(&self, segno: SegNo) -> Log {
        self.segment(segno).log
    }

    pub(super) fn mtime(&self, segno: SegNo) -> u64 {
        self.segment(segno).mtime
    }

    pub(super) fn is_valid(&self, segno: SegNo, block: u16) -> bool {
        self.segment(segno).valid.contains(block)
    }

    pub(super) fn valid_map(&self, segno: SegNo) -> Map {
        self.segment(segno).valid.map()
    }

    /// The blocks that may not be written: those of [`Table::held_map`], and those beyond the
    /// zone's capacity.
    pub(super) fn blocked_map(&self, segno: SegNo) -> Map {
        let mut map = self.held_map(segno);
        let usable = self.layout.usable_blocks(segno);
        (usable..FULL).for_each(|block| {
            bits::set(&mut map, block.into());
        });
        map
    }

    /// The blocks that are valid now, or were at the last checkpoint.
    pub(super) fn held_map(&self, segno: SegNo) -> Map {
        let mut map = self.valid_map(segno);
        for freed in
            [&self.freed, &self.in_flight].into_iter().filter_map(|freed| freed.get(&segno))
        {
            map.iter_mut().zip(freed.iter()).for_each(|(byte, freed)| *byte |= freed);
        }
        map
    }

    /// Blocks that may be written.
    pub(super) fn usable(&self, segno: SegNo) -> u32 {
        // The two are disjoint: a block that is held back cannot become valid, nor be freed again.
        let freed =
            |held: &HashMap<SegNo, Box<Map>>| held.get(&segno).map_or(0, |map| bits::count(&**map));
        let usable = u32::from(self.layout.usable_blocks(segno));
        usable
            .strict_sub(u32::from(self.valid(segno)))
            .strict_sub(freed(&self.freed))
            .strict_sub(freed(&self.in_flight))
    }

    /// The section of a segment.
    pub(super) const fn section_of(&self, segno: SegNo) -> u32 {
        self.layout.section_of(segno)
    }

    /// A section's counts.
    pub(super) fn section(&self, section: u32) -> Section {
        *block::entry(&self.sections, as_index(section))
    }

    /// Counts of all sections, in order.
    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(super) fn entry(&self, segno: SegNo) -> SitEntry {
        let segment = self.segment(segno);
        SitEntry { log: segment.log, valid_map: segment.valid.map(), mtime: segment.mtime }
    }

    pub(super) fn is_current(&self, segno: SegNo) -> bool {
        self.current.contains(&Some(segno))
    }

    /// Valid blocks of all segments.
    pub(super) const fn valid_total(&self) -> u64 {
        self.valid_total
    }

    pub(super) fn partial(&self, log: Log) -> &BTreeSet<SegNo> {
        log.of(&self.partial)
    }

    pub(super) const fn dirty(&self) -> &BTreeSet<SegNo> {
        &self.dirty
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.left.is_empty()
    }

    /// Blocks that are free once the checkpoint in flight has completed, by segment.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (SegNo, &Map)> {
        self.in_flight.iter().map(|(segno, map)| (*segno, &**map))
    }

    /// Number of blocks that can be allocated only after a checkpoint.
    pub(super) const fn held_back(&self) -> u64 {
        self.freed_blocks.strict_add(self.in_flight_blocks)
    }

    /// Forgets which free blocks are discarded.
    pub(super) fn forget_discards(&mut self) {
        for segno in (0..self.len()).map(SegNo) {
            let usable = self.layout.usable_blocks(segno);
            let mut free = self.valid_map(segno).map(|byte| !byte);
            (usable..FULL).for_each(|block| {
                bits::clear(&mut free, block.into());
            });
            self.undiscarded.add(segno, &free);
        }
    }

    /// Marks blocks `from..from + count` of a segment as valid.
    pub(super) fn set_valid(&mut self, segno: SegNo, from: u16, count: u16, now: u64) {
        let end = from.strict_add(count);
        assert!(
            end <= self.layout.usable_blocks(segno),
            "segment {segno} ends before {from} + {count}"
        );
        let segment = self.segment_mut(segno);
        let (old, new) = (u64::from(segment.valid.count()), u64::from(count));
        segment.mtime = segment
            .mtime
            .saturating_mul(old)
            .saturating_add(now.saturating_mul(new))
            .strict_div(old.strict_add(new));
        segment.valid.edit(|map| {
            for block in from..end {
                assert!(
                    !bits::set(map, block.into()),
                    "block {block} of segment {segno} is placed twice"
                );
            }
            i32::from(count)
        });
        self.empty = self.empty.strict_sub(u32::from(old == 0));
        self.undiscarded.remove(segno, from, count);
        self.count(segno, i32::from(count));
        self.dirty.insert(segno);
        self.classify(segno);
    }

    /// Marks a block as no longer valid.
    pub(super) fn clear_valid(&mut self, segno: SegNo, block: u16) -> Result<(), Corrupt> {
        let mut mask = [0; VALID_MAP_SIZE];
        bits::set(&mut mask, block.into());
        self.clear_all(segno, &mask)
    }

    /// Marks these blocks of a segment as no longer valid.
    pub(super) fn clear_all(&mut self, segno: SegNo, mask: &Map) -> Result<(), Corrupt> {
        let segment = self.segment_mut(segno);
        if let Some(block) = first_extra(mask, &segment.valid.map()) {
            return Err(Corrupt::Sit {
                segno,
                what: "a block is freed that is not valid",
                value: as_u64(block),
            });
        }
        let count = bits::count(mask).cast_signed();
        segment.valid.edit(|map| {
            map.iter_mut().zip(mask).for_each(|(byte, mask)| *byte &= !mask);
            count.strict_neg()
        });
        let emptied = segment.valid.count() == 0 && count > 0;
        self.empty = self.empty.strict_add(u32::from(emptied));
        self.undiscarded.add(segno, mask);
        self.count(segno, count.strict_neg());
        self.dirty.insert(segno);
        self.block_all(segno, mask);
        self.classify(segno);
        Ok(())
    }

    /// Adds `change` to a segment's count of valid blocks.
    fn count(&mut self, segno: SegNo, change: i32) {
        let (is_node, at) = (self.log(segno).is_node(), as_index(self.layout.section_of(segno)));
        let section = block::entry_mut(&mut self.sections, at);
        section.valid = section.valid.strict_add_signed(change);
        if is_node {
            section.nodes = section.nodes.strict_add_signed(change);
        }
        self.valid_total = self.valid_total.strict_add_signed(change.into());
    }

    /// Keeps a block that is not valid from being written before the next checkpoint.
    pub(super) fn block(&mut self, segno: SegNo, block: u16) {
        let mut mask = [0; VALID_MAP_SIZE];
        bits::set(&mut mask, block.into());
        self.block_all(segno, &mask);
    }

    fn block_all(&mut self, segno: SegNo, mask: &Map) {
        let mut mask = *mask;
        if let Some((kept, _)) = &self.kept {
            mask.iter_mut()
                .zip(block::entry(kept, segno.index()))
                .for_each(|(byte, kept)| *byte &= kept);
        }
        if let Some(in_flight) = self.in_flight.get(&segno) {
            mask.iter_mut().zip(in_flight.iter()).for_each(|(byte, in_flight)| *byte &= !in_flight);
        }
        let waits = !Safeguard::CheckpointBlocks.is_off();
        if mask == [0; VALID_MAP_SIZE] || !waits {
            if (self.kept.is_some() || !waits) && self.is_untouched(segno) {
                self.free.release(segno);
            }
            return;
        }
        let map = self.freed.entry(segno).or_insert_with(|| Box::new([0; VALID_MAP_SIZE]));
        for (byte, more) in map.iter_mut().zip(mask) {
            self.freed_blocks =
                self.freed_blocks.strict_add(u64::from((more & !*byte).count_ones()));
            *byte |= more;
        }
        if self.free.is_free(segno) {
            self.free.take(segno);
        }
    }

    /// Sets the log that a segment belongs to.
    pub(super) fn set_log(&mut self, segno: SegNo, log: Log) {
        let old = self.log(segno);
        if old != log {
            if std::mem::take(&mut self.segment_mut(segno).listed) {
                old.of_mut(&mut self.partial).remove(&segno);
            }
            let valid = i32::from(self.valid(segno));
            self.count(segno, valid.strict_neg());
            self.segment_mut(segno).log = log;
            self.count(segno, valid);
            self.dirty.insert(segno);
            self.classify(segno);
        }
    }

    /// A log moves to a segment; returns the one it was in.
    pub(super) fn enter(&mut self, log: Log, segno: SegNo) -> Option<SegNo> {
        if self.free.is_free(segno) {
            self.free.take(segno);
        }
        self.left.remove(&segno);
        self.in_flight_left.remove(&segno);
        let old = log.of_mut(&mut self.current).replace(segno);
        self.set_log(segno, log);
        self.dirty.insert(segno);
        self.classify(segno);
        if let Some(old) = old {
            self.classify(old);
            if self.valid(old) == 0 {
                // The segment is not free at once: the last checkpoint's log is in it, and
                // roll-forward would begin there.
                self.left.insert(old);
            }
        }
        old
    }

    /// Adds a segment to the sets of segments with holes, or removes it.
    fn classify(&mut self, segno: SegNo) {
        let segment = self.segment(segno);
        let valid = segment.valid.count();
        let holes =
            valid > 0 && valid < self.layout.usable_blocks(segno) && !self.is_current(segno);
        if holes == segment.listed {
            return;
        }
        self.segment_mut(segno).listed = holes;
        let set = self.log(segno).of_mut(&mut self.partial);
        if holes {
            set.insert(segno);
        } else {
            set.remove(&segno);
        }
    }
}

/// The first bit of `mask` that is not in `map`.
fn first_extra(mask: &Map, map: &Map) -> Option<usize> {
    let mut extra = *mask;
    extra.iter_mut().zip(map).for_each(|(byte, known)| *byte &= !known);
    bits::next_set(&extra, 0, usize::from(FULL))
}
