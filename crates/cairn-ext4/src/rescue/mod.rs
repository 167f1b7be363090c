//! `rescue`: what can still be read of a volume that is damaged, and files that were deleted.
//! Nothing is written.
//!
//! | module | knows |
//! |---|---|
//! | `open` | a volume whose log is replayed in memory, as far as it is sound |
//! | `contents`, `attributes` | the bytes and the attributes of a file, past what cannot be read |
//! | `proof` | inodes, by the form and the type that they prove |
//! | `records` | the records of inodes; where one is lost, the log's newest copy |
//! | `tree` | the tree, and then the inodes that no directory leads to |
//! | `old` | the copies of blocks that the log still has |
//! | `deleted`, `candidate`, `names`, `age` | deleted inodes, and the names they had |
//! | `remains` | which of their blocks are free |
//!
//! **Bounds.** Each inode is visited once; maps are followed as `raw` does. Memory: one
//! bit an inode, the listings on the way from the root to a directory, what is deleted.

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

mod age;
mod attributes;
mod candidate;
mod contents;
mod deleted;
mod names;
mod old;
mod open;
mod proof;
mod records;
mod remains;
mod tree;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::ReadAhead;
use cairn_check::salvage::{Deleted, Loss, Receiver, Salvage};

use crate::error::Result;
use crate::raw::{RawVolume, SuperblockChoice};
use candidate::Candidate;

/// A volume that is being rescued.
struct Rescue {
    volume: RawVolume,
    candidates: Vec<Candidate>,
}

/// Opens a volume to rescue files from.
///
/// # Errors
/// There is no superblock as asked for, or the device failed.
pub fn open(
    device: Arc<dyn BlockDevice>,
    choice: SuperblockChoice,
    runtime: &Arc<dyn Runtime>,
) -> Result<Box<dyn Salvage>> {
    let volume = open::open(Arc::new(ReadAhead::new(device)), choice, runtime)?;
    Ok(Box::new(Rescue { volume, candidates: Vec::new() }))
}

/// Is there a backup of a superblock where none is usual? Reads up to 4 GiB.
#[must_use]
pub fn has_unusual_backup(device: &dyn BlockDevice) -> bool {
    crate::raw::has_unusual(device)
}

impl Salvage for Rescue {
    fn notes(&self) -> Vec<String> {
        self.volume.notes.clone()
    }

    fn tree(&mut self, receiver: &mut dyn Receiver) {
        let ino = self.volume.superblock.raw.s_journal_inum.get().into();
        let what = "the last changes, which the journal holds".into();
        let loss = || Loss { path: Vec::new(), ino, what };
        if !self.volume.lacks_log || receiver.lost(loss()) {
            tree::walk(&self.volume, receiver);
        }
    }

    fn limits(&self) -> &'static str {
        "Linux and Cairn clear an inode that they delete, and older copies of it are in the \
         journal only until that is written again, as it is by every mount; ext2 has none"
    }

    fn deleted(&mut self, receiver: &mut dyn Receiver) -> Vec<Deleted> {
        self.candidates = deleted::find(&self.volume, receiver);
        self.candidates.iter().enumerate().map(|(index, one)| one.describe(index)).collect()
    }

    fn restore(&mut self, deleted: &Deleted, path: &[u8], receiver: &mut dyn Receiver) -> bool {
        match self.candidates.get(deleted.index) {
            Some(candidate) => candidate.restore(&self.volume, path, receiver),
            None => true,
        }
    }
}
