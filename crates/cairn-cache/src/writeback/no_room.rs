//! [`NoRoom`]: data that the device had no room for, because an image grows and the disk of its
//! host is full.
//!
//! This concerns all files, because the next write finds no room either. While such data waits, a
//! writer first tries to write it, and gets the error if there is still no room
//! ([`crate::file::PageCache::balance`]).

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_block::ErrorKind;

use crate::file::CacheError;

/// How often the device had no room, and after how many of these refusals all data was written.
#[derive(Debug, Default)]
pub(crate) struct NoRoom {
    refused: AtomicU64,
    completed: AtomicU64,
    /// Number of threads that are writing back a file.
    trying: AtomicU64,
}

/// True if the device had no room.
pub(super) fn is_refusal(error: &CacheError) -> bool {
    matches!(error, CacheError::Write(error) if error.kind == ErrorKind::NoSpace)
}

impl NoRoom {
    /// Counts the error of a write-back if it is a refusal. True if no earlier refused data waits.
    pub(crate) fn count(&self, error: &CacheError) -> bool {
        if !is_refusal(error) {
            return false;
        }
        let first = self.pending().is_none();
        self.refused.fetch_add(1, Ordering::SeqCst);
        first
    }

    /// The number of refusals. `None` if no refused data waits.
    pub(crate) fn pending(&self) -> Option<u64> {
        let refused = self.refused.load(Ordering::SeqCst);
        (refused > self.completed.load(Ordering::SeqCst)).then_some(refused)
    }

    /// True if the device has refused more often than this.
    pub(crate) fn has_refused_since(&self, refused: u64) -> bool {
        self.refused.load(Ordering::SeqCst) > refused
    }

    /// Call it before a file is written back.
    pub(crate) fn begin(&self) {
        self.trying.fetch_add(1, Ordering::SeqCst);
    }

    /// Call it after the write-back of a file, whether or not that succeeded.
    pub(crate) fn end(&self) {
        self.trying.fetch_sub(1, Ordering::SeqCst);
    }

    /// True while a file is written back. The result will show whether the device has room.
    pub(crate) fn is_tried(&self) -> bool {
        self.trying.load(Ordering::SeqCst) > 0
    }

    /// Records that all data that was dirty after this many refusals is written.
    pub(crate) fn complete(&self, refused: u64) {
        self.completed.fetch_max(refused, Ordering::SeqCst);
    }
}
