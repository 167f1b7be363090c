//! The subjects: the values of `checkpoint_clean`.

pub(super) const COUNTED: &str = "checkpoint_clean=counted";
pub(super) const BAIL_OUT: &str = "checkpoint_clean=bail_out";
pub(super) const SCAN: &str = "checkpoint_clean=scan";
/// All of them, the baseline first.
pub(super) const MODES: [&str; 3] = [SCAN, BAIL_OUT, COUNTED];
