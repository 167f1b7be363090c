//! How much a resize writes where a sparse image may have no blocks of its host yet.

use std::sync::Arc;

use cairn_block::BlockDevice;

use super::plan::{State, Step};
use super::state;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::tables::Tables;

/// Bytes that a resize may write where nothing of the volume is; about, and rather too many. The
/// volume is only read.
///
/// # Errors
/// As [`super::check`].
pub fn needs(device: &Arc<dyn BlockDevice>, wanted: u64) -> Result<u64> {
    let mut state = state(device)?;
    let tables = Tables::read(device, &state.layout)?;
    let mut blocks: u64 = 0;
    loop {
        let step = state.next(wanted)?;
        blocks = blocks.saturating_add(of_step(&state, &step, &tables));
        if matches!(step, Step::Done | Step::Shrink(..)) {
            return Ok(blocks.saturating_mul(BLOCK_BYTES));
        }
        state = state.after(&step);
    }
}

fn of_step(state: &State, step: &Step, tables: &Tables) -> u64 {
    let present = state.areas.main_segments;
    match step {
        Step::Done => 0,
        Step::Shrink(areas, ..) => tables.blocks_to_empty(areas.main_segments..present),
        Step::Extend(..) => tables.blocks_to_empty(0..0),
        Step::Move { between, last, .. } => {
            let anew = tables.blocks_of_tables(last.main_segments);
            match between {
                Some((areas, _)) => {
                    let freed = present.saturating_sub(areas.main_segments);
                    tables.blocks_to_empty(0..freed) + 2 * anew
                }
                None => anew,
            }
        }
    }
}
