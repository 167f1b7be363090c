//! What is compared: with and without `checkpoint_merge`.

/// The baseline.
pub(super) const OFF: &str = "nocheckpoint_merge";
/// The improvement.
pub(super) const ON: &str = "checkpoint_merge";
pub(super) const SUBJECTS: [&str; 2] = [OFF, ON];
