//! The next step to another size: arithmetic only.
//!
//! | step | the tables | crash |
//! |---|---|---|
//! | `Shrink` | stay; the end of the main area is emptied first | old size or new one |
//! | `Extend` | stay, because SIT and summary area have room | old size or new one |
//! | `Move` | become larger; the start of the main area is emptied first | old size, new one, or less |
//!
//! A volume that grows far takes several steps: the room for larger tables is in the main area that
//! the step before has made larger.

use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, BLOCKS_PER_SEGMENT};
use crate::format::{Checkpoint, Layout, Log};
use crate::sizes::Sizes;
use crate::tables::{Areas, blocks, whole_blocks};

/// Fewest zones of a main area: one for each log, and one more.
const ZONES_MIN: u32 = Log::COUNT as u32 + 1;
/// Fewest sections that the tools accept.
const SECTIONS_MIN: u32 = 9;
/// Segments that stay free when the tables move: for the logs, and for a checkpoint of each.
const KEPT_FREE: u32 = 4 * Log::COUNT as u32;

/// What a step needs to know of a volume.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) layout: Layout,
    pub(super) checkpoint: Checkpoint,
    pub(super) areas: Areas,
    pub(super) block_count: u64,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It has the size.
    Done,
    /// The main area becomes smaller.
    Shrink(Areas, Sizes, u64),
    /// The main area becomes larger, or only the number of blocks changes.
    Extend(Areas, Sizes, u64),
    /// The tables move, perhaps by way of other areas, and the main area becomes larger.
    Move { between: Option<(Areas, Sizes)>, last: Areas, sizes: Sizes, blocks: u64 },
}

impl State {
    /// Segments of a zone.
    const fn zone(&self) -> u32 {
        self.layout.segs_per_sec * self.layout.secs_per_zone
    }

    const fn valid(&self) -> u64 {
        self.checkpoint.valid_block_count
    }

    fn sizes(&self) -> Sizes {
        Sizes::of(&self.checkpoint)
    }

    /// Main segments of a volume of this many blocks whose tables stay.
    fn main_segments(&self, block_count: u64) -> Result<u32> {
        let room = block_count.saturating_sub(self.areas.main()) / u64::from(BLOCKS_PER_SEGMENT);
        let room = u32::try_from(room).map_err(|_| {
            Error::Refused("a volume has at most 16 TiB: give a smaller size".into())
        })?;
        let present = self.areas.main_segments;
        let whole = room - room % self.zone();
        Ok(if whole <= present && present <= room { present } else { whole })
    }

    /// The sizes of the volume with a smaller main area; `None` if its files do not fit.
    fn shrunk(&self, main: u32) -> Option<Sizes> {
        let per_section = self.layout.segs_per_sec;
        let fits = main / self.zone() >= ZONES_MIN && main / per_section >= SECTIONS_MIN;
        let sizes = Sizes::fresh(main, per_section).filter(|_| fits)?;
        (sizes.user_blocks >= self.valid()).then_some(sizes)
    }

    /// Bytes of the smallest volume.
    pub(super) fn least(&self) -> u64 {
        let used = u32::try_from(self.valid() / u64::from(BLOCKS_PER_SEGMENT)).unwrap_or(u32::MAX);
        let zone = self.zone();
        let first = used / zone * zone;
        let mut sizes = (first..self.areas.main_segments).step_by(zone as usize);
        let main = sizes.find(|main| self.shrunk(*main).is_some());
        let main = main.unwrap_or(self.areas.main_segments);
        (self.areas.main() + blocks(main)) * BLOCK_BYTES
    }

    /// The next step to a size in bytes.
    ///
    /// # Errors
    /// The volume cannot have this size.
    pub(super) fn next(&self, wanted: u64) -> Result<Step> {
        let block_count = whole_blocks(wanted);
        let main = self.main_segments(block_count)?;
        if main < self.areas.main_segments {
            return self.shrink(main, block_count);
        }
        let most = self.areas.most_segments();
        let most = most - most % self.zone();
        if main <= most {
            if main == self.areas.main_segments && block_count == self.block_count {
                return Ok(Step::Done);
            }
            return self.extend(main, block_count);
        }
        // The whole way is checked before the first step.
        self.areas_of(wanted)?;
        if most > self.areas.main_segments {
            return self.extend(most, Areas { main_segments: most, ..self.areas }.end());
        }
        self.larger_tables(wanted)
    }

    fn areas_of(&self, bytes: u64) -> Result<Areas> {
        Areas::of_new(&self.layout, self.checkpoint.flags, bytes)
    }

    fn extend(&self, main: u32, block_count: u64) -> Result<Step> {
        let sizes = match main == self.areas.main_segments {
            true => Some(self.sizes()),
            false => self.sizes().grown(main, self.layout.segs_per_sec, self.valid()),
        };
        let sizes = sizes.ok_or_else(|| {
            let why = "it keeps more for cleaning than it has segments";
            Error::NeedsCheck(why.into())
        })?;
        Ok(Step::Extend(Areas { main_segments: main, ..self.areas }, sizes, block_count))
    }

    fn shrink(&self, main: u32, block_count: u64) -> Result<Step> {
        let areas = Areas { main_segments: main, ..self.areas };
        match self.shrunk(main) {
            Some(sizes) => Ok(Step::Shrink(areas, sizes, block_count)),
            None => Err(Error::Refused(format!(
                "the volume cannot become so small: it needs {} bytes; give that size, or min",
                self.least()
            ))),
        }
    }

    /// Moves the tables for this size, or for the largest one on the way for which there is room.
    fn larger_tables(&self, wanted: u64) -> Result<Step> {
        let present = self.areas.end() * BLOCK_BYTES;
        let mut size = wanted;
        while size > present {
            if let Some(step) = self.moved(self.areas_of(size)?, whole_blocks(size)) {
                return Ok(step);
            }
            size = present + (size - present) / 2;
            size -= size % BLOCK_BYTES;
            if self.main_segments(whole_blocks(size))? <= self.areas.most_segments() {
                break;
            }
        }
        Err(Error::Refused(
            "there is no room for the tables of a larger volume: remove files, and try again"
                .into(),
        ))
    }

    /// Moves the tables to these areas, if there is room.
    fn moved(&self, last: Areas, block_count: u64) -> Option<Step> {
        let (old, valid, per_section) = (&self.areas, self.valid(), self.layout.segs_per_sec);
        let apart = |from: u64, to: u64| from.abs_diff(to).is_multiple_of(blocks(per_section));
        let fits = last.end() >= old.end() && apart(last.main(), old.main());
        let sizes = self.sizes().grown(last.main_segments, per_section, valid).filter(|_| fits)?;
        if last.main() <= u64::from(old.start) {
            return Some(Step::Move { between: None, last, sizes, blocks: block_count });
        }
        // Behind the place that the tables will have, and behind those of now.
        let start = last.main().max(old.main());
        let zone = blocks(self.zone());
        let taken = (start + blocks(old.metadata()) - old.main()).next_multiple_of(zone);
        let taken = u32::try_from(taken / u64::from(BLOCKS_PER_SEGMENT)).ok()?;
        let main_segments = old.main_segments.checked_sub(taken)?;
        let start = old.main() + blocks(taken) - blocks(old.metadata());
        let between = Areas { start: u32::try_from(start).ok()?, main_segments, ..*old };
        let used = valid.div_ceil(u64::from(BLOCKS_PER_SEGMENT)) + u64::from(KEPT_FREE);
        let between_sizes = self.sizes().for_a_moment(main_segments, valid)?;
        let room = main_segments / self.zone() >= ZONES_MIN && used <= u64::from(main_segments);
        room.then_some(Step::Move {
            between: Some((between, between_sizes)),
            last,
            sizes,
            blocks: block_count,
        })
    }

    /// The volume after a step.
    pub(super) fn after(&self, step: &Step) -> Self {
        let (areas, block_count) = match *step {
            Step::Done => (self.areas, self.block_count),
            Step::Shrink(areas, _, blocks) | Step::Extend(areas, _, blocks) => (areas, blocks),
            Step::Move { last, blocks, .. } => (last, blocks),
        };
        Self { areas, block_count, ..self.clone() }
    }
}
