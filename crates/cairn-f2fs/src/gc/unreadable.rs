//! What cleaning cannot read: it leaves that where it is, and moves the rest.

use crate::error::{Error, Result};
use crate::format::{BlockAddr, Inode as Record, Nid};
use crate::segment::Owner;
use crate::store::Store;
use crate::store::live::Live;

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

impl Left {
    /// Leaves blocks of inodes that cannot be read: the hint of the largest extent in these could
    /// not be removed.
    pub(super) fn keep_readable(&mut self, store: &Store, live: &mut Vec<Live>) -> Result<()> {
        let mut known: Option<(Nid, bool)> = None;
        let mut kept = Vec::with_capacity(live.len());
        for block in live.drain(..) {
            let ino = block.node.ino();
            let is_readable = match known {
                Some((last, is_readable)) if last == ino => is_readable,
                _ => is_inode_readable(store, ino)?,
            };
            known = Some((ino, is_readable));
            if is_readable {
                kept.push(block);
            } else {
                self.unreadable += 1;
            }
        }
        *live = kept;
        Ok(())
    }
}

/// An inode that was deleted meanwhile needs no hint removed.
fn is_inode_readable(store: &Store, ino: Nid) -> Result<bool> {
    let record = |node: std::sync::Arc<crate::node::Node>| {
        Record::decode(&node.image(), ino, store.layout.features).map_err(Error::from)
    };
    Ok(match readable(store.nodes.inode(ino))? {
        Some(Some(node)) => readable(record(node))?.is_some(),
        Some(None) => true,
        None => false,
    })
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
