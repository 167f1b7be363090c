//! Sections that are zones: they are written in order, and reset before they are written again.
//!
//! A log enters a section only when it is free: it has no valid blocks, also not for the last
//! checkpoint. At that time its zone is reset ([`Segments::enter_zone`]), if that was not done when
//! the section became free ([`Segments::reset_free`]).
//!
//! Locking: the allocator's lock is held to decide which zones may be reset, and released for the
//! I/O. The locks of zones are leaves.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::zoned::{PendingReset, Zone, ZoneOrder, ZonedDevice};

use super::{CHECKPOINT_SECTIONS, Segments, State};
use crate::error::{Error, Result};
use crate::format::log::AllocType;
use crate::format::units::BLOCK_BYTES;
use crate::format::{BlockAddr, Log, SegNo};
use crate::zones::active_behind;

impl Segments {
    /// Sets the zones of the main area, each a section. Called before the first block is placed.
    pub(crate) fn set_zones(&self, zones: Arc<ZoneOrder>) {
        assert!(self.zones.set(zones).is_ok(), "a volume has its zones once");
    }

    fn section_start(&self, section: u32) -> u64 {
        self.layout.address(self.layout.first_segment(section), 0).bytes()
    }

    /// A log continues in this segment, which was free.
    pub(super) fn enter_zone(&self, segno: SegNo) {
        if let Some(zones) = self.zones.get()
            && self.layout.first_segment(self.layout.section_of(segno)) == segno
        {
            zones.begin_anew(self.layout.address(segno, 0).bytes());
        }
    }

    /// Records that a placed block will not be written. Then the later blocks of its zone cannot be
    /// written either.
    pub(crate) fn give_up(&self, addr: BlockAddr) {
        if let Some(zones) = self.zones.get() {
            zones.give_up(addr.bytes());
        }
    }

    /// Resets the zones of free sections. A zone that the device refuses to reset is tried again
    /// when it is used. Returns the number of reset zones.
    pub(crate) fn reset_free(&self) -> u32 {
        let Some(zones) = self.zones.get() else { return 0 };
        if let Err(error) = self.ask_written() {
            tracing::warn!(%error, "free zones are not reset: whether they are in use is not \
                known");
            return 0;
        }
        let resets = {
            let state = self.state.lock();
            self.resets(zones, &state)
        };
        let mut done = 0;
        for reset in resets {
            match reset.carry_out() {
                Ok(()) => done += 1,
                Err(error) => tracing::warn!(%error, "a free zone is not reset"),
            }
        }
        self.stats.zones_reset.add(done.into());
        done
    }

    /// Asks for the segments of free sections whose zones were written.
    fn ask_written(&self) -> Result<()> {
        let free = {
            let state = self.state.lock();
            let is_free = |section: &u32| state.table.free.is_section_free(*section);
            (0..self.layout.sections).filter(is_free).collect::<Vec<_>>()
        };
        let written = free.into_iter().filter(|one| self.written_in(*one).is_some_and(|at| at > 0));
        written
            .flat_map(|section| Self::segments_of(&self.layout, section))
            .try_for_each(|segno| self.ask_segment(segno))
    }

    fn resets(&self, zones: &ZoneOrder, state: &State) -> Vec<PendingReset> {
        let free =
            (0..self.layout.sections).filter(|section| state.table.free.is_section_free(*section));
        free.filter_map(|section| zones.start_reset(self.section_start(section))).collect()
    }

    /// Blocks before the write pointer of a section's zone; `None` if the zone can be written
    /// anywhere.
    pub(super) fn written_in(&self, section: u32) -> Option<u32> {
        let start = self.section_start(section);
        let next = self.zones.get()?.next(start)?;
        Some(next.saturating_sub(start).div_ceil(BLOCK_BYTES) as u32)
    }

    /// After a crash a zone may have been written beyond its log's position: then the log moves to
    /// another section. Half-written zones without a log are finished, so that they are no longer
    /// active. Called before the first block is placed.
    ///
    /// # Errors
    /// A log finds no room; or the device failed.
    pub(crate) fn check_write_pointers(&self) -> Result<()> {
        let Some(zones) = self.zones.get() else { return Ok(()) };
        self.reset_free();
        for log in Log::ALL {
            if let Some(why) = self.obstacle(zones, log) {
                tracing::info!(?log, at = %self.next_address(log), "{why}: the log continues in \
                    another section");
                self.resume_log(log, CHECKPOINT_SECTIONS)?;
                self.stats.logs_moved.add(1);
            }
        }
        self.finish_left(zones)
    }

    /// Why a log cannot write its zone from its position to the end. A log that leaves a zone
    /// earlier leaves it active, and the device limits the number of active zones.
    fn obstacle(&self, zones: &ZoneOrder, log: Log) -> Option<&'static str> {
        let state = self.state.lock();
        let here = &state.logs[log.index()];
        let next = here.next(&self.layout).bytes();
        let pointer = zones.next(next)?;
        let section = state.table.section_of(here.segno());
        let mut later =
            Self::segments_of(&self.layout, section).filter(|segno| *segno > here.segno());
        let shared =
            state.logs.iter().filter(|log| state.table.section_of(log.segno()) == section).count()
                > 1;
        match () {
            () if pointer != next => Some("a zone's write pointer is not at its log's next block"),
            () if here.position.alloc == AllocType::Ssr => {
                Some("a log reuses free blocks (SSR) of a zone that must be written in order")
            }
            () if shared => Some("two logs are in one zone"),
            () if later.any(|segno| !state.table.free.is_free(segno)) => {
                Some("a log's zone is in use after the log's segment")
            }
            () => None,
        }
    }

    /// Finishes half-written zones without a log.
    fn finish_left(&self, zones: &ZoneOrder) -> Result<()> {
        let left = self.left(zones)?;
        left.iter().try_for_each(|zone| finish(zones, zone))
    }

    /// Makes sure that each log's zone can be active, after logs have moved because of a power cut
    /// and before anything is written. Finishes only as many half-written zones as needed, those
    /// with the least room first, because after another power cut logs may continue in the others.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn leave_active_zones(&self) -> Result<()> {
        let Some(zones) = self.zones.get() else { return Ok(()) };
        let Some(limit) =
            zones.as_zoned().map(|view| view.limits().max_active).filter(|limit| *limit > 0)
        else {
            return Ok(());
        };
        self.reset_free();
        let mut left = self.left(zones)?;
        left.sort_unstable_by_key(|zone| zone.writable_end() - zone.write_pointer);
        let behind = active_behind(&zones.report(0, usize::MAX)?, &self.layout);
        let kept = (limit as usize).saturating_sub(Log::COUNT + behind);
        let over = left.len().saturating_sub(kept);
        left[..over].iter().try_for_each(|zone| finish(zones, zone))
    }

    /// Zones that are neither empty nor full and have no log.
    fn left(&self, zones: &ZoneOrder) -> Result<Vec<Zone>> {
        let Some(view) = zones.as_zoned() else { return Ok(Vec::new()) };
        let left: Vec<u64> = {
            let state = self.state.lock();
            let left = |section: &u32| {
                // The section's last segments may be free.
                let mut segments = Self::segments_of(&self.layout, *section);
                !state.table.free.is_section_free(*section)
                    && segments.all(|segno| !state.table.is_current(segno))
            };
            (0..self.layout.sections)
                .filter(left)
                .map(|section| self.section_start(section))
                .collect()
        };
        let written = left
            .into_iter()
            .filter(|start| zones.next(*start).is_some_and(|pointer| pointer != *start));
        let mut found = Vec::new();
        for start in written {
            found.extend(view.report(start, 1).map_err(Error::from)?);
        }
        found.retain(Zone::is_active);
        Ok(found)
    }
}

fn finish(zones: &ZoneOrder, zone: &Zone) -> Result<()> {
    zones.as_zoned().map_or(Ok(()), |view| Ok(view.finish(zone.start)?))
}
