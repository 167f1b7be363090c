//! After all inodes were read: the SIT, the logs, and the counts of the checkpoint against the
//! blocks in use.

use std::collections::HashMap;

use cairn_base::units::{as_index, as_u64};
use cairn_check::{Finding, Place};

use super::claims::Use;
use super::context::{Context, Scratch, Totals};
use super::older::Older;
use super::unlinked::Left;
use super::{kinds, report};
use crate::error::Result;
use crate::format::checkpoint::LogPosition;
use crate::format::layout::Layout;
use crate::format::log::AllocType;
use crate::format::summary::ENTRIES;
use crate::format::units::{BlockAddr, SegNo};
use crate::format::{Features, Log, SitEntry, bits, sit};
use crate::sizes::is_between;

/// SIT blocks that are read together.
const PART: usize = 128;

/// What the SIT says of the logs' segments, and how many segments are free.
#[derive(Default)]
struct Seen {
    current: HashMap<SegNo, SitEntry>,
    free: u64,
}

/// Compares the SIT, the logs and the counts with what the walk has found.
///
/// # Errors
/// The device's.
pub(super) fn check(context: &Context, scratch: &mut Scratch) -> Result<()> {
    let logs = logs(context);
    let (mut seen, mut left) = (Seen::default(), Left::default());
    let mut older = Older::default();
    let journal: HashMap<SegNo, &SitEntry> =
        context.volume.journals.sit.0.iter().map(|(segno, entry)| (*segno, entry)).collect();
    let blocks: Vec<u32> = (0..context.layout.sit_blocks_used()).collect();
    for part in blocks.chunks(PART) {
        let mut places: Vec<(BlockAddr, u32)> = Vec::with_capacity(part.len());
        for block in part {
            let side = context.volume.loaded.checkpoint.sit_side(*block);
            let address = context.layout.sit_address(*block, side).get();
            places.extend(u32::try_from(address).map(|address| (BlockAddr(address), *block)));
        }
        places.sort_unstable();
        let addrs: Vec<BlockAddr> = places.iter().map(|(addr, _)| *addr).collect();
        let read = context.read(scratch, &addrs)?;
        for ((_, block), bytes) in places.iter().zip(read.iter()) {
            let first = block.saturating_mul(sit::SEGMENTS_PER_BLOCK);
            let last = first.saturating_add(sit::SEGMENTS_PER_BLOCK);
            for segno in (first..last.min(context.layout.main_segments)).map(SegNo) {
                let (_, index) = Layout::sit_place(segno);
                // An entry that the journal overrides must be possible, too.
                let entry = sit::entry(bytes, index, segno)
                    .inspect_err(|error| context.add(report::of(&kinds::SIT_ENTRY, error)))
                    .ok();
                let entry = journal.get(&segno).map(|entry| (*entry).clone()).or(entry);
                let entry = entry.filter(|_| !context.volume.is_unknown(segno));
                if let Some(entry) = &entry {
                    check_entry(context, segno, entry);
                    left.add(context, segno, entry);
                }
                older.add(context, segno, entry.as_ref());
                let is_current = logs.iter().any(|(_, log)| log.segno == segno);
                seen.add(context, segno, entry, is_current);
            }
        }
        scratch.recycle(read);
        context.progress.advance(as_u64(part.len()));
    }
    for (log, position) in &logs {
        check_log(context, *log, *position, seen.current.get(&position.segno));
    }
    check_counts(context, &seen);
    let found = left.check(context, scratch)?;
    older.check(context, scratch, &found)
}

impl Seen {
    fn add(&mut self, context: &Context, segno: SegNo, entry: Option<SitEntry>, is_current: bool) {
        let in_use = context.claims.has(segno, Use::Data) || context.claims.has(segno, Use::Node);
        if is_current {
            self.current.extend(entry.map(|entry| (segno, entry)));
        } else if !in_use && context.layout.usable_blocks(segno) > 0 {
            self.free = self.free.saturating_add(1);
        }
    }
}

/// The logs that the volume has, with their positions.
fn logs(context: &Context) -> Vec<(Log, LogPosition)> {
    // A volume that is never written has only two.
    let few = context.layout.features.contains(Features::RO);
    let has = |log: &Log| !few || matches!(log, Log::HotData | Log::HotNode);
    let checkpoint = &context.volume.loaded.checkpoint;
    Log::ALL.into_iter().filter(has).map(|log| (log, checkpoint.log(log))).collect()
}

fn check_entry(context: &Context, segno: SegNo, entry: &SitEntry) {
    let found = context.claims.valid_map(segno);
    let place = || Place::segment(segno.get());
    if found != entry.valid_map {
        let differs = found.iter().zip(&entry.valid_map).map(|(found, stored)| found ^ stored);
        let differs: Vec<u8> = differs.collect();
        let place = match bits::next_set(&differs, 0, ENTRIES).and_then(|n| u16::try_from(n).ok()) {
            Some(offset) => place().at_block(context.layout.address(segno, offset).get()),
            None => place(),
        };
        context.add(
            Finding::new(&kinds::SIT_BITS, place)
                .stored(entry.valid_blocks())
                .computed(bits::count(&found)),
        );
    }
    let (nodes, data) =
        (context.claims.has(segno, Use::Node), context.claims.has(segno, Use::Data));
    if (nodes && !entry.log.is_node()) || (data && entry.log.is_node()) {
        context.add(Finding::new(&kinds::SIT_TYPE, place()).stored(name(entry.log)));
    }
    let usable = usize::from(context.layout.usable_blocks(segno));
    if let Some(block) = bits::next_set(&found, usable, ENTRIES) {
        let text = format!("block {block} of the segment is beyond the zone's capacity");
        context.add(Finding::new(&kinds::ZONE, place()).stored(&*text));
    }
}

/// The next block of a log must be free, and all behind it if the log appends.
fn check_log(context: &Context, log: Log, position: LogPosition, entry: Option<&SitEntry>) {
    let Some(entry) = entry else { return };
    let place = Place::segment(position.segno.get());
    if entry.log != log {
        let finding = Finding::new(&kinds::CHECKPOINT_LOG, place.clone());
        context.add(finding.stored(name(entry.log)).computed(name(log)));
    }
    let from = usize::from(position.blkoff);
    let end = match position.alloc {
        AllocType::Lfs => ENTRIES,
        AllocType::Ssr => from.saturating_add(1),
    };
    let used = bits::next_set(&entry.valid_map, from, end);
    if used.is_some() || position.blkoff >= context.layout.usable_blocks(position.segno) {
        let next = context.layout.address(position.segno, position.blkoff);
        let finding = Finding::new(&kinds::CHECKPOINT_LOG, place.at_block(next.get()));
        context.add(finding.stored(name(log)));
    }
}

const fn name(log: Log) -> &'static str {
    match log {
        Log::HotData => "hot data",
        Log::WarmData => "warm data",
        Log::ColdData => "cold data",
        Log::HotNode => "hot nodes",
        Log::WarmNode => "warm nodes",
        Log::ColdNode => "cold nodes",
    }
}

fn check_counts(context: &Context, seen: &Seen) {
    let checkpoint = &context.volume.loaded.checkpoint;
    let totals = &context.totals;
    let counts = [
        ("valid_block_count", checkpoint.valid_block_count, Totals::get(&totals.blocks)),
        ("valid_node_count", checkpoint.valid_node_count.into(), Totals::get(&totals.nodes)),
        ("valid_inode_count", checkpoint.valid_inode_count.into(), Totals::get(&totals.inodes)),
        ("free_segment_count", checkpoint.free_segment_count.into(), seen.free),
    ];
    let layout = &context.layout;
    // As the next mount does, which writes the count anew.
    let adopted = is_between(checkpoint, layout).then_some("free_segment_count");
    for (field, stored, computed) in counts {
        if stored != computed && adopted != Some(field) {
            let finding = Finding::new(&kinds::CHECKPOINT_COUNT, Place::field(field));
            context.add(finding.stored(stored).computed(computed));
        }
    }
}

/// Steps of the phase.
pub(super) fn steps(layout: &Layout) -> u64 {
    as_u64(as_index(layout.sit_blocks_used()))
}
