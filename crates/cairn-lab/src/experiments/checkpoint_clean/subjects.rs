//! The subjects: the values of `checkpoint_clean`; and the lengths of the list.

use crate::experiment::Context;

pub(super) const COUNTED: &str = "checkpoint_clean=counted";
pub(super) const BAIL_OUT: &str = "checkpoint_clean=bail_out";
pub(super) const SCAN: &str = "checkpoint_clean=scan";
/// All of them, the baseline first.
pub(super) const MODES: [&str; 3] = [SCAN, BAIL_OUT, COUNTED];

/// Lengths of the checkpoint list.
pub(super) fn lengths(context: &Context) -> &'static [u32] {
    context.scale.pick(
        &[10, 1000, 10_000],
        &[10, 100, 1000, 3000, 10_000, 100_000],
        &[10, 100, 1000, 3000, 10_000, 100_000],
    )
}

/// The name of a length's row.
pub(super) fn row(listed: u32) -> String {
    format!("{listed} listed")
}
