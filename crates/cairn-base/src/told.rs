//! Events of the log that tell of a failure which the caller is told of, too.

/// The target of such an event. A command that ends with the failure need not show it; a daemon,
/// whose callers are other programs, shows it.
pub const TOLD: &str = "cairn::told";
