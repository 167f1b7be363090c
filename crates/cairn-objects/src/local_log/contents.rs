//! [`Contents`]: what a log has.

use cairn_block::Error;

use crate::format::local_log::{Frame, Header};

/// A record that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Where it is.
    pub(crate) offset: u64,
    /// What stands before its data object.
    pub(crate) frame: Frame,
    /// Data objects below this sequence were in the store when it was written.
    pub(crate) stable: u64,
}

/// What a log has.
#[derive(Default)]
pub(crate) struct Contents {
    /// None if it is nobody's.
    pub(crate) header: Option<Header>,
    /// In the order of flushes, up to the first that is not whole.
    pub(crate) records: Vec<Record>,
    /// Why there may be more behind them.
    pub(crate) damage: Option<Error>,
}
