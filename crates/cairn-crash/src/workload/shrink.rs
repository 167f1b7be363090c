//! Leaves out of a failing run what it does not need.

use super::op::Op;
use super::search::{Recorded, Target, Wrong};
use crate::states::Volatile;

/// Crash states that are examined for each try.
const STATES: usize = 40;

/// Tries to find a wrong state with fewer operations: halves are left out, then quarters, down to
/// single ones, as long as the judge that
/// found it finds a wrong state. At most `tries` runs. `step` is called
/// after each.
pub fn shrink(
    target: &Target<'_>,
    seed: u64,
    found: Wrong,
    tries: usize,
    step: &dyn Fn(),
) -> Wrong {
    let mut best = found;
    let mut left = tries;
    let mut piece = best.ops.len().div_ceil(2);
    while piece > 0 && left > 0 {
        let mut at = 0;
        while at < best.ops.len() && left > 0 {
            let end = (at + piece).min(best.ops.len());
            let fewer: Vec<Op> = [&best.ops[..at], &best.ops[end..]].concat();
            left -= 1;
            step();
            match wrong_state(target, seed, &fewer, best.judge) {
                // The next piece has moved to the same place.
                Some(smaller) => best = smaller,
                None => at = end,
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    best
}

/// A wrong state of these operations. Those that have a simple name come first.
fn wrong_state(target: &Target<'_>, seed: u64, ops: &[Op], judge: Option<&str>) -> Option<Wrong> {
    let recorded = match Recorded::of(target, seed, ops) {
        Ok(recorded) => recorded,
        Err(wrong) => return Some(wrong),
    };
    let mut cuts = recorded.cuts(STATES, seed);
    cuts.sort_by_key(|cut| match cut.volatile {
        Volatile::Lost | Volatile::Kept => 0,
        Volatile::Subset(_) => 1,
        Volatile::Random(_) | Volatile::Torn(_) => 2,
    });
    let judge = judge?;
    cuts.into_iter().find_map(|cut| recorded.judge_by_name(target, cut, judge).err())
}
