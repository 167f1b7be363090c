//! The subjects: the values of `gc_victim`, and the names of the rows.

/// Values of `gc_victim`, the baseline first. Values that the build does not have are left out.
pub(super) const POLICIES: [&str; 3] = ["greedy", "data_first", "adaptive"];
/// Ids of the tables.
pub(super) const PROPOSAL: &str = "proposal";
pub(super) const OTHERS: &str = "others";
/// The rows of the proposal's work.
pub(super) const DIRECT: &str = "direct I/O, d = 0";
pub(super) const BUFFERED: &str = "buffered, d = 0.5 %";
