//! `rescue`: what can still be read of a volume that is damaged, and files that were deleted.
//! Nothing is written.
//!
//! | module | knows |
//! |---|---|
//! | `source` | nodes: as the NAT has them, else their newest version in the log |
//! | `proof` | inodes as they prove to be, if their records say something else |
//! | `owned` | blocks that are another's |
//! | `scan` | every version of every node in the main area |
//! | `contents`, `attributes` | the bytes and the attributes of a file, past what cannot be read |
//! | `tree` | the tree, and then the inodes that no directory leads to |
//! | `deleted` | deleted inodes |
//!
//! **Bounds.** Each inode is visited once, and each node of one once. Memory: one bit an inode, the
//! listings on the way from the root to a directory, and 40 bytes for each version of a node if
//! the main area is scanned.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod attributes;
mod contents;
mod deleted;
mod owned;
mod proof;
mod scan;
mod source;
mod tree;

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::ReadAhead;
use cairn_check::salvage::{Deleted, Receiver, Salvage};

use crate::error::Result;
use crate::raw::Choice;
use deleted::Candidate;
use source::Source;

/// A volume that is being rescued.
struct Rescue {
    source: Source,
    candidates: Vec<Candidate>,
}

/// Opens a volume to rescue files from.
///
/// # Errors
/// There is no superblock or checkpoint as asked for, or the device failed.
pub fn open(device: Arc<dyn BlockDevice>, choice: Choice) -> Result<Box<dyn Salvage>> {
    let source = Source::open(Arc::new(ReadAhead::new(device)), choice)?;
    Ok(Box::new(Rescue { source, candidates: Vec::new() }))
}

impl Salvage for Rescue {
    fn notes(&self) -> Vec<String> {
        self.source.volume.notes.clone()
    }

    fn tree(&mut self, receiver: &mut dyn Receiver) {
        tree::walk(&self.source, receiver);
    }

    fn limits(&self) -> &'static str {
        "whatever writes F2FS discards the blocks of a deleted file at once, so that nothing of it \
         is left, unless the volume was mounted with the option nodiscard; then a deleted inode is \
         there until its segment is written again"
    }

    fn deleted(&mut self, receiver: &mut dyn Receiver) -> Vec<Deleted> {
        self.candidates = deleted::find(&self.source, receiver);
        self.candidates.iter().enumerate().map(|(index, one)| one.describe(index)).collect()
    }

    fn restore(&mut self, deleted: &Deleted, path: &[u8], receiver: &mut dyn Receiver) -> bool {
        match self.candidates.get(deleted.index) {
            Some(candidate) => candidate.restore(&self.source, path, receiver),
            None => true,
        }
    }
}
