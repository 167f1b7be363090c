//! What cleaning cannot read: it leaves that where it is, and moves the rest.

use crate::error::{Error, Result};
use crate::format::BlockAddr;
use crate::segment::Owner;

/// A valid block and its owner by the summary.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) addr: BlockAddr,
    pub(super) owner: Owner,
}

/// Blocks that are not moved.
#[derive(Default)]
pub(super) struct Left {
    /// Those to which nothing leads, unless that has changed meanwhile.
    pub(super) suspects: Vec<Block>,
    /// How many cannot be read, or have nodes that cannot.
    pub(super) unreadable: u64,
}

/// `None` if something could not be read.
///
/// # Errors
/// Any other one.
pub(super) fn readable<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_unreadable(&error) => {
            tracing::debug!(%error, "cleaning leaves what cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Is something damaged, or could the device not read it?
pub(super) fn is_unreadable(error: &Error) -> bool {
    match error {
        Error::Corrupt(_) => true,
        Error::Device(error) => !error.operation.changes() && !error.is_refusal(),
        _ => false,
    }
}
