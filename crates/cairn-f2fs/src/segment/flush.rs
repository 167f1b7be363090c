//! The parts of the SIT and of the logs that a checkpoint writes.

use cairn_base::Pba;

use super::{Mode, Segments, State};
use crate::format::checkpoint::LogPosition;
use crate::format::compact::CompactSummaries;
use crate::format::layout::Side;
use crate::format::summary::{
    JournalBytes, NatJournal, SIT_JOURNAL_ENTRIES, SitJournal, info_journal,
};
use crate::format::units::BLOCK_SIZE;
use crate::format::{Layout, Log, SegNo, bits, sit};

/// Data summaries are written in full if the compact form would need as many blocks.
const FULL_DATA_SUMMARIES: usize = 3;

/// The SIT as the next checkpoint will have it.
pub(crate) struct SitPlan {
    /// The journal, for the cold data log's summary.
    pub(crate) journal: SitJournal,
    /// The version bitmap.
    pub(crate) bitmap: Vec<u8>,
    /// Blocks to write: each to the copy that the last checkpoint does not use.
    pub(crate) blocks: Vec<(Pba, Vec<u8>)>,
}

/// The logs as a checkpoint pack holds them.
pub(crate) struct Summaries {
    /// Positions, for the checkpoint block.
    pub(crate) logs: [LogPosition; Log::COUNT],
    /// Data summary blocks, one after the other.
    pub(crate) data: Vec<u8>,
    /// True if they are in the compact form.
    pub(crate) compact: bool,
    /// Node summary blocks; empty unless asked for.
    pub(crate) nodes: Vec<u8>,
}

impl Segments {
    /// Decides which entries go to the journal and which to SIT blocks. From then on the present
    /// state is that of the checkpoint in flight. Called with the operation lock held exclusively,
    /// after the last plan has been committed.
    #[must_use]
    pub(crate) fn plan(&self) -> SitPlan {
        let mut state = self.state.lock();
        let mut segments = state.table.dirty().clone();
        segments.extend(&state.journal);
        let mut groups: Vec<(u32, Vec<SegNo>)> = Vec::new();
        for segno in segments {
            let (block, _) = Layout::sit_place(segno);
            match groups.last_mut() {
                Some((last, group)) if *last == block => group.push(segno),
                _ => groups.push((block, vec![segno])),
            }
        }
        // The smallest groups go to the journal as a whole, so that the fewest blocks remain.
        groups.sort_by_key(|(_, group)| group.len());
        let mut plan = SitPlan {
            journal: SitJournal::default(),
            bitmap: state.bitmap.clone(),
            blocks: Vec::new(),
        };
        let mut full = false;
        for (block, group) in groups {
            full |= plan.journal.0.len() + group.len() > SIT_JOURNAL_ENTRIES;
            // No journal names a segment that the volume will not have.
            if full || group.iter().any(|segno| state.is_given_up(*segno)) {
                let side = Side::of_bit(bits::flip(&mut plan.bitmap, block as usize));
                plan.blocks.push((self.layout.sit_address(block, side), sit_block(&state, block)));
            } else {
                plan.journal
                    .0
                    .extend(group.into_iter().map(|segno| (segno, state.table.entry(segno))));
            }
        }
        state.table.snapshot();
        state.moved = false;
        plan
    }

    /// The logs for a pack, with the journals of the NAT and the SIT, and with node summaries if
    /// `nodes`. Called with the operation lock held exclusively.
    #[must_use]
    pub(crate) fn summaries(
        &self,
        nat: &NatJournal,
        sit: &SitJournal,
        nodes: bool,
        kbytes_written: u64,
    ) -> Summaries {
        let state = self.state.lock();
        let log = |log: Log| &state.logs[log.index()];
        let total = Log::DATA.iter().map(|data| usize::from(log(*data).compact_entries())).sum();
        let compact = CompactSummaries::blocks_for(total) < FULL_DATA_SUMMARIES;
        let data = if compact {
            let entries = Log::DATA.map(|data| {
                let state = log(data);
                state.summary.entries[..usize::from(state.compact_entries())].to_vec()
            });
            CompactSummaries { nat_journal: nat.encode(), sit_journal: sit.encode(), entries }
                .encode()
        } else {
            let journal = |data| match data {
                Log::HotData => nat.encode(),
                Log::ColdData => sit.encode(),
                _ => NatJournal::default().encode(),
            };
            Log::DATA.iter().flat_map(|data| with_journal(&state, *data, journal(*data))).collect()
        };
        let info = info_journal(state.kbytes_written.saturating_add(kbytes_written));
        let journal = |node| if node == Log::HotNode { info } else { info_journal(0) };
        let nodes = if nodes {
            Log::NODE.iter().flat_map(|node| with_journal(&state, *node, journal(*node))).collect()
        } else {
            Vec::new()
        };
        let logs = Log::ALL.map(|one| log(one).position);
        Summaries { logs, data, compact, nodes }
    }

    /// Commits the planned checkpoint, which is on the medium: its SIT becomes the last one, and
    /// blocks freed before its snapshot can be written again.
    pub(crate) fn committed(&self, plan: SitPlan) {
        self.stats.sit_blocks_written.add(plan.blocks.len() as u64);
        let mut state = self.state.lock();
        state.journal = plan.journal.0.into_iter().map(|(segno, _)| segno).collect();
        state.bitmap = plan.bitmap;
        state.table.committed();
        // The summary of a segment that has become free has no meaning any more.
        let State { table, closed, .. } = &mut *state;
        closed.retain(|segno, _| table.valid(*segno) > 0);
    }
}

impl Segments {
    /// With `keep` (checkpoints are disabled), blocks that are valid now are held back when they
    /// are freed; all others can be written again at once. Called with the operation lock held
    /// exclusively.
    pub(crate) fn keep_all(&self, keep: bool) {
        self.state.lock().table.keep_all(keep);
    }

    /// Number of blocks that can be allocated only after a checkpoint.
    #[must_use]
    pub(crate) fn held_back(&self) -> u64 {
        self.state.lock().table.held_back()
    }

    /// Unused blocks in segments that are neither empty nor current: in data segments and in node
    /// segments.
    #[must_use]
    pub fn holes(&self) -> [u64; 2] {
        self.state.lock().table.holes()
    }

    /// Blocks that the log of data can take without a checkpoint, with this many free sections: the
    /// rest of its segment, and the holes of others, if the mode takes these.
    #[must_use]
    pub(crate) fn writable(&self, sections: u32) -> u64 {
        let state = self.state.lock();
        let log = state.logs[Log::WarmData.index()].segno();
        // A log always has a next block.
        let own = u64::from(state.table.usable(log)).saturating_sub(1);
        let holes = match self.mode {
            Mode::Adaptive => state.table.writable_holes(),
            Mode::Lfs => 0,
        };
        own + holes + u64::from(sections) * u64::from(self.layout.section_capacity())
    }

    /// Valid blocks of all segments: those that have a place. And how many of them would leave no
    /// free block if they were overwritten, while checkpoints are disabled.
    #[must_use]
    pub(crate) fn placed(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.table.valid_total(), state.table.still_kept())
    }
}

fn sit_block(state: &State, block: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    let first = block * sit::ENTRIES_PER_BLOCK as u32;
    let end = (first + sit::ENTRIES_PER_BLOCK as u32).min(state.table.len());
    for (index, segno) in (first..end).map(SegNo).enumerate() {
        sit::set_entry(&mut bytes, index, &state.table.entry(segno));
    }
    bytes
}

fn with_journal(state: &State, log: Log, journal: JournalBytes) -> Vec<u8> {
    let mut summary = state.logs[log.index()].summary.clone();
    summary.journal = journal;
    summary.encode()
}
