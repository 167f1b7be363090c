//! [`Unit`]: what a thread writes in one step.

use super::places::{Places, Start, span, starts};
use super::survey::Survey;
use crate::format::Log;
use crate::format::units::{BLOCKS_PER_SEGMENT, NIDS_PER_BLOCK};

/// Blocks of a unit. A directory is not divided.
const UNIT: u64 = 128;

/// A part of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    /// Blocks of a log from block `at` on.
    Blocks { log: Log, at: u64, blocks: u64, start: Start },
    /// Summaries of full segments of a log.
    Summaries { log: Log, first: u64, count: u64 },
    /// Blocks of the NAT.
    Nat { first: u32, count: u32 },
}

/// All units.
pub(super) fn units(survey: &Survey, places: &Places) -> Vec<Unit> {
    let mut units = Vec::new();
    for log in Log::ALL {
        match log {
            Log::HotData => undivided(survey, log, &mut units),
            log => even(survey, places, log, &mut units),
        }
        let full = places.blocks(log) / u64::from(BLOCKS_PER_SEGMENT);
        for first in (0..full).step_by(UNIT as usize) {
            units.push(Unit::Summaries { log, first, count: (full - first).min(UNIT) });
        }
    }
    let blocks = places.next_nid.div_ceil(NIDS_PER_BLOCK.into()) as u32;
    for first in (0..blocks).step_by(UNIT as usize) {
        units.push(Unit::Nat { first, count: (blocks - first).min(UNIT as u32) });
    }
    units
}

/// Units of the same size.
fn even(survey: &Survey, places: &Places, log: Log, units: &mut Vec<Unit>) {
    let all = places.blocks(log);
    for (number, start) in (0..).zip(starts(survey, log, UNIT)) {
        let at = number * UNIT;
        units.push(Unit::Blocks { log, at, blocks: (all - at).min(UNIT), start });
    }
}

/// Units of a log with directories.
fn undivided(survey: &Survey, log: Log, units: &mut Vec<Unit>) {
    let (mut at, mut open): (u64, Option<(u64, Start)>) = (0, None);
    for (id, need) in (0..).zip(&survey.nodes) {
        let end = at + u64::from(span(need, log));
        while at < end {
            let (first, start) = *open.get_or_insert_with(|| {
                let skip = need.blocks - (end - at) as u32;
                (at, Start { id, skip })
            });
            let room = UNIT.saturating_sub(at - first);
            let piece = if need.is_directory { end - at } else { room.min(end - at) };
            if piece <= room || at == first {
                at += piece;
            }
            if piece > room || at - first >= UNIT {
                units.push(Unit::Blocks { log, at: first, blocks: at - first, start });
                open = None;
            }
        }
    }
    if let Some((first, start)) = open {
        units.push(Unit::Blocks { log, at: first, blocks: at - first, start });
    }
}
