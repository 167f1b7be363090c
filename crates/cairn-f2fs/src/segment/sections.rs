//! The view of cleaning: segments and sections with their use and age.
//!
//! While a section is being cleaned no log fills its holes and no block of it is overwritten in
//! place ([`Segments::begin_cleaning`]).

use cairn_base::Pba;

use super::{Segments, State};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::log::AllocType;
use crate::format::sit::VALID_MAP_SIZE;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{BlockAddr, Layout, Log, SegNo, bits};
use crate::space::Pending;

/// A section: the unit of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionInfo {
    /// Its number.
    pub(crate) section: u32,
    /// Valid blocks.
    pub(crate) valid: u32,
    /// Valid node blocks.
    pub(crate) nodes: u32,
    /// Mean of the segments' times, in the volume's time (seconds).
    pub(crate) mtime: u64,
}

impl SectionInfo {
    /// True if it holds nodes. If classes are mixed (`mode=adaptive`), the larger one counts.
    #[must_use]
    pub(crate) const fn is_node(&self) -> bool {
        self.nodes * 2 > self.valid
    }
}

/// A segment that is about to be cleaned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBlocks {
    /// Its number.
    pub(crate) segno: SegNo,
    /// True if it holds nodes.
    pub(crate) is_node: bool,
    /// Its valid blocks, bits from the most significant one.
    pub(crate) valid: [u8; VALID_MAP_SIZE],
}

/// Sections whose cleaning gains space: with valid blocks but not full, without a log, neither
/// being cleaned nor barred.
#[derive(Clone)]
pub(crate) struct Candidates<'a> {
    state: &'a State,
    current: [u32; Log::COUNT],
    layout: &'a Layout,
    next: u32,
}

impl Iterator for Candidates<'_> {
    type Item = SectionInfo;

    fn next(&mut self) -> Option<SectionInfo> {
        let table = &self.state.table;
        let whole = self.layout.section_capacity();
        loop {
            let counts = table.sections().get(self.next as usize)?;
            let section = self.next;
            self.next += 1;
            let usable = counts.valid > 0 && counts.valid < whole;
            if usable && !self.current.contains(&section) && !self.state.is_out(section) {
                return Some(info_of_section(self.state, section, self.layout));
            }
        }
    }
}

fn info_of_section(state: &State, section: u32, layout: &Layout) -> SectionInfo {
    let counts = state.table.section(section);
    let times = Segments::segments_of(layout, section).map(|segno| state.table.mtime(segno));
    let mtime = times.fold(0_u64, u64::saturating_add) / u64::from(layout.usable_segments());
    SectionInfo { section, valid: counts.valid, nodes: counts.nodes, mtime }
}

impl Segments {
    /// The writable segments of a section.
    pub(crate) fn segments_of(
        layout: &Layout,
        section: u32,
    ) -> impl Iterator<Item = SegNo> + use<> {
        let first = layout.first_segment(section).get();
        (first..first + layout.usable_segments()).map(SegNo)
    }

    /// A section.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub(crate) fn section(&self, section: u32) -> SectionInfo {
        info_of_section(&self.state.lock(), section, &self.layout)
    }

    /// Sections that hold valid blocks: those of data, those of nodes.
    #[must_use]
    pub fn sections_in_use(&self) -> (u32, u32) {
        let state = self.state.lock();
        let used = state.table.sections().iter().filter(|counts| counts.valid > 0);
        used.fold((0, 0), |(data, nodes), counts| match counts.nodes * 2 > counts.valid {
            true => (data, nodes + 1),
            false => (data + 1, nodes),
        })
    }

    /// Chooses among the sections that could be cleaned. No lock may be taken by `choose`.
    pub(crate) fn choose<R>(&self, choose: impl FnOnce(Candidates<'_>) -> R) -> R {
        let state = self.state.lock();
        let current = Log::ALL.map(|log| state.table.section_of(state.logs[log.index()].segno()));
        choose(Candidates { state: &state, current, layout: &self.layout, next: 0 })
    }

    /// Marks a section as being cleaned and returns its contents. The caller waits for overwrites
    /// in place that are in flight.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub(crate) fn begin_cleaning(&self, section: u32) -> Vec<LiveBlocks> {
        let mut state = self.state.lock();
        state.cleaning.push(section);
        let live = Self::segments_of(&self.layout, section).map(|segno| LiveBlocks {
            segno,
            is_node: state.table.log(segno).is_node(),
            valid: state.table.valid_map(segno),
        });
        live.filter(|live| bits::count(&live.valid) > 0).collect()
    }

    /// Ends the cleaning of these sections.
    pub(crate) fn end_cleaning(&self, sections: &[u32]) {
        self.state.lock().cleaning.retain(|section| !sections.contains(section));
    }

    /// True if one of these blocks is in a section that is being cleaned.
    #[must_use]
    pub(crate) fn is_cleaning(&self, start: Pba, len: u64) -> bool {
        let state = self.state.lock();
        if state.cleaning.is_empty() {
            return false;
        }
        let section = |block: u64| {
            let addr = u32::try_from(block)
                .map(BlockAddr)
                .ok()
                .and_then(|addr| self.layout.segment_of(addr));
            addr.map(|(segno, _)| state.table.section_of(segno))
        };
        let last = start.get().saturating_add(len.saturating_sub(1));
        let (Some(first), Some(last)) = (section(start.get()), section(last)) else { return false };
        state.cleaning.iter().any(|section| (first..=last).contains(section))
    }

    /// Frees blocks, and sorts them. See [`Segments::invalidate`].
    ///
    /// # Errors
    /// An address is outside the main area, or a block is not in use. The blocks before it have
    /// been freed.
    pub(crate) fn invalidate_all(&self, addrs: &mut [BlockAddr]) -> Result<(), Corrupt> {
        addrs.sort_unstable();
        let mut state = self.state.lock();
        let mut run: Option<(SegNo, [u8; VALID_MAP_SIZE])> = None;
        for addr in addrs.iter() {
            let (segno, block) = self.locate(*addr)?;
            if run.as_ref().is_none_or(|(current, _)| *current != segno) {
                let before = run.replace((segno, [0; VALID_MAP_SIZE]));
                before.map_or(Ok(()), |(segno, mask)| state.table.clear_all(segno, &mask))?;
            }
            let twice = run.as_mut().is_some_and(|(_, mask)| bits::set(mask, block.into()));
            if twice {
                return Err(Corrupt::Sit {
                    segno,
                    what: "a block is freed twice",
                    value: block.into(),
                });
            }
        }
        run.map_or(Ok(()), |(segno, mask)| state.table.clear_all(segno, &mask))?;
        self.stats.invalidated.add(addrs.len() as u64);
        Ok(())
    }

    /// True if the pending blocks that do not fill a section fit the current sections of the logs.
    #[must_use]
    pub(crate) fn logs_suffice(&self, pending: Pending) -> bool {
        let section = u64::from(self.layout.section_capacity());
        let state = self.state.lock();
        let left = |log: Log| self.left_in_section(&state, log);
        let nodes = (pending.nodes + pending.inodes + pending.dentries) % section;
        let entries = pending.dentries % section;
        let data = pending.data % section;
        Log::NODE.into_iter().all(|log| nodes <= left(log))
            && entries <= left(Log::HotData)
            && data <= left(Log::WarmData)
    }

    /// Blocks that a log can take before it needs another section.
    fn left_in_section(&self, state: &State, log: Log) -> u64 {
        let position = state.logs[log.index()].position;
        let segment = u64::from(self.layout.usable_blocks(position.segno) - position.blkoff);
        match position.alloc {
            AllocType::Lfs => {
                let index = position.segno.get() % self.layout.segs_per_sec;
                let before = index * BLOCKS_PER_SEGMENT + u32::from(position.blkoff);
                u64::from(self.layout.section_capacity() - before)
            }
            AllocType::Ssr => segment.min(state.table.usable(position.segno).into()),
        }
    }
}
