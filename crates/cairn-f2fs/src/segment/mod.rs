//! Segments: the six logs that allocate blocks, and the table of valid blocks.
//!
//! [`Segments::place`] allocates the next blocks of a log for their owners,
//! [`Segments::invalidate`] frees a block. Nothing of the last checkpoint is overwritten before the
//! next one is on the medium. A block that was valid at any time since that checkpoint is not
//! allocated. Segment summaries are written only where that checkpoint does not need them, and SIT
//! blocks to their other copy ([`Segments::plan`], [`Segments::committed`]). Between these two
//! calls a checkpoint is in flight: its blocks are not overwritten either.
//!
//! A log appends to a free segment (LFS) or, when free sections are few and the mode allows it,
//! fills the holes of a segment in use (SSR). When its segment is full it moves on at once, so the
//! address of its next block is always known.
//!
//! Locking: one lock of rank Allocator (after the NAT's), never held during I/O: a caller that
//! needs a summary block reads it without the lock and tries again.

mod adopt;
mod bar;
mod discards;
mod doubt;
mod flush;
mod free;
mod load;
mod log;
mod nids;
mod owners;
mod place;
mod proof;
mod resume;
mod sections;
mod summaries;
mod table;
mod zones;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::runtime::Runtime;
use cairn_base::stats::Counter;
use cairn_block::zoned::ZoneOrder;
use cairn_cache::block::BufferCache;

use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::summary::SummaryBlock;
use crate::format::{BlockAddr, Layout, Log, SegNo, Summary};

pub(crate) use discards::BlockRun;
pub(crate) use flush::SitPlan;
pub(crate) use flush::Summaries;
pub(crate) use load::SegmentSources;
pub(crate) use load::load;
pub(crate) use owners::SegmentOwners;
pub(crate) use place::Placed;
pub(crate) use proof::{Coverage, Kept, Named, Proof};
pub(crate) use resume::CHECKPOINT_SECTIONS;
pub(crate) use sections::LiveBlocks;
pub(crate) use sections::SectionInfo;
pub(crate) use summaries::QueuedSummary;

use log::LogState;
use proof::Doubt;
use table::Table;

/// The owner of a block: its summary entry.
pub(crate) type Owner = Summary;

/// Order among the locks of rank Allocator.
const LOCK_ORDER: u64 = 2;

/// How logs find room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Free segments, and holes of other segments when free ones are few: `mode=adaptive`.
    Adaptive,
    /// Free segments only: `mode=lfs`.
    Lfs,
}

/// The six logs and the segment table of a writable volume.
pub struct Segments {
    layout: Layout,
    mode: Mode,
    /// All logs search for free sections from the start of the volume (`alloc_mode=reuse`), not
    /// only hot logs.
    reuse: bool,
    cache: Arc<BufferCache>,
    clock: Clock,
    state: Mutex<State>,
    /// The zones, if sections are zones.
    zones: OnceLock<Arc<ZoneOrder>>,
    /// Who tells which blocks are in use, whatever the SIT says.
    proof: OnceLock<Box<dyn Proof>>,
    /// Counters.
    pub stats: SegmentStats,
}

/// Counters of the logs.
#[derive(Debug, Default)]
pub struct SegmentStats {
    /// Blocks placed in each log, by number.
    pub(crate) placed: [Counter; Log::COUNT],
    /// Data blocks overwritten where they are.
    pub(crate) in_place: Counter,
    /// Blocks invalidated.
    pub(crate) invalidated: Counter,
    /// Free segments that logs took.
    pub(crate) segments_lfs: Counter,
    /// Used segments that logs took for their holes.
    pub segments_ssr: Counter,
    /// SIT blocks written by checkpoints.
    pub(crate) sit_blocks_written: Counter,
    /// Segment summaries written.
    pub(crate) summaries_written: Counter,
    /// Zones reset when their sections had become free.
    pub zones_reset: Counter,
    /// Logs that left their zones because these had been written beyond the log's position.
    pub logs_moved: Counter,
}

struct State {
    table: Table,
    logs: [LogState; Log::COUNT],
    /// Summaries of segments without a log that differ from the summary area, with a number that
    /// changes with the summary.
    closed: HashMap<SegNo, Closed>,
    closed_number: u64,
    /// Changes with the summary area.
    summary_generation: u64,
    /// Segments whose entries are in the last checkpoint's SIT journal, not in a SIT block.
    journal: Vec<SegNo>,
    /// Which copy of each SIT block is current.
    bitmap: Vec<u8>,
    /// Holes are filled while at most this many sections are free.
    reuse_below: u32,
    /// Sections that are being cleaned.
    cleaning: Vec<u32>,
    /// Sections that are to be emptied, and take no blocks.
    barred: Range<u32>,
    /// True if the journal of the SIT may not name the barred sections.
    given_up: bool,
    /// Where the search for holes continues, by log.
    victim_cursor: [SegNo; Log::COUNT],
    /// Kilobytes ever written, as the hot node summary keeps it.
    kbytes_written: u64,
    /// True if a log has moved or a summary has changed since the last snapshot.
    moved: bool,
    /// The segments whose summaries were not asked yet.
    doubt: Doubt,
}

struct Closed {
    summary: SummaryBlock,
    number: u64,
}

/// The volume's own time: total seconds that it was mounted.
struct Clock {
    runtime: Arc<dyn Runtime>,
    start: Duration,
    base: u64,
}

impl Clock {
    fn now(&self) -> u64 {
        self.base.saturating_add(self.runtime.monotonic().saturating_sub(self.start).as_secs())
    }
}

impl Segments {
    fn wrap(
        layout: Layout,
        mode: Mode,
        cache: Arc<BufferCache>,
        runtime: Arc<dyn Runtime>,
        elapsed: u64,
        state: State,
    ) -> Self {
        let clock = Clock { start: runtime.monotonic(), base: elapsed, runtime };
        // Small volumes (16 GiB) are filled from the start, as in Linux by default.
        let reuse = layout.main_segments <= 8192;
        let state = Mutex::new_ordered(Rank::Allocator, LOCK_ORDER, state);
        Self {
            layout,
            mode,
            reuse,
            cache,
            clock,
            state,
            zones: OnceLock::new(),
            proof: OnceLock::new(),
            stats: SegmentStats::default(),
        }
    }

    /// Total seconds that the volume was mounted: `elapsed_time`.
    #[must_use]
    pub(crate) fn elapsed(&self) -> u64 {
        self.clock.now()
    }

    /// How logs find room.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    fn locate(&self, addr: BlockAddr) -> Result<(SegNo, u16), Corrupt> {
        let place = self.layout.segment_of(addr);
        let usable = place.filter(|(segno, block)| *block < self.layout.usable_blocks(*segno));
        usable.ok_or_else(|| {
            let what = "an address is outside the main area or beyond its zone's capacity";
            Corrupt::Sit { segno: SegNo(u32::MAX), what, value: addr.get().into() }
        })
    }

    /// True if the block is in use.
    #[must_use]
    pub(crate) fn is_valid(&self, addr: BlockAddr) -> bool {
        self.layout
            .segment_of(addr)
            .is_some_and(|(segno, block)| self.state.lock().table.is_valid(segno, block))
    }

    /// Frees a block. It is not allocated again before the next checkpoint is on the medium.
    ///
    /// # Errors
    /// The address is outside the main area, or the block is not in use: two pointers named it.
    pub(crate) fn invalidate(&self, addr: BlockAddr) -> Result<(), Corrupt> {
        let (segno, block) = self.locate(addr)?;
        self.state.lock().table.clear_valid(segno, block)?;
        self.stats.invalidated.add(1);
        Ok(())
    }

    /// Sections without a valid block, without one freed since the last checkpoint, and without a
    /// log.
    #[must_use]
    pub fn free_sections(&self) -> u32 {
        self.state.lock().table.free.free_sections()
    }

    /// Segments that a log can take now.
    #[must_use]
    pub(crate) fn free_segments(&self) -> u32 {
        self.state.lock().table.free.free_segments()
    }

    /// Segments that the next checkpoint makes free.
    #[must_use]
    pub fn prefree_segments(&self) -> u32 {
        let state = self.state.lock();
        let free = state.table.free_segment_count() - self.kept_from_free(&state);
        free - state.table.free.free_segments()
    }

    /// While no more than this many sections are free, holes are filled instead (never in
    /// `mode=lfs`). See [`crate::space::Space::reuse_below`].
    pub(crate) fn set_reuse_below(&self, sections: u32) {
        self.state.lock().reuse_below = sections;
    }

    /// Segments without valid blocks and without a log, including those freed since the last
    /// checkpoint: `free_segment_count`.
    #[must_use]
    pub(crate) fn free_segment_count(&self) -> u32 {
        self.state.lock().table.free_segment_count()
    }

    /// A segment's present entry.
    #[cfg(test)]
    pub(crate) fn entry(&self, segno: SegNo) -> crate::format::SitEntry {
        self.state.lock().table.entry(segno)
    }

    /// Where the next block of a log goes.
    #[must_use]
    pub fn next_address(&self, log: Log) -> BlockAddr {
        self.state.lock().logs[log.index()].next(&self.layout)
    }

    /// True if a checkpoint must write a change.
    #[must_use]
    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        state.moved || state.table.is_dirty()
    }
}

#[cfg(test)]
pub(crate) mod tests;
