//! The subjects: with and without `checkpoint_merge`.

/// The baseline.
pub(super) const OFF: &str = "nocheckpoint_merge";
/// The option under test.
pub(super) const ON: &str = "checkpoint_merge";
pub(super) const SUBJECTS: [&str; 2] = [OFF, ON];
