//! Data that the device had no room for: an image grows, and the disk of its host is full.
//!
//! That is no matter of one file: what is written next finds no room, either. So while such data waits to be written, whoever
//! writes tries that first, and is told if there is still no room ([`crate::file::PageCache::balance`]).

use std::sync::atomic::{AtomicU64, Ordering};

use cairn_block::ErrorKind;

use crate::file::CacheError;

/// How often the device had no room, and up to which of these times all data has been written since.
#[derive(Debug, Default)]
pub(crate) struct NoRoom {
    refused: AtomicU64,
    settled: AtomicU64,
}

impl NoRoom {
    /// A write-back failed.
    pub(crate) fn note(&self, error: &CacheError) {
        if matches!(error, CacheError::Write(error) if error.kind == ErrorKind::NoSpace) {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The number of refusals, if what was refused still waits.
    pub(crate) fn pending(&self) -> Option<u64> {
        let refused = self.refused.load(Ordering::SeqCst);
        (refused > self.settled.load(Ordering::SeqCst)).then_some(refused)
    }

    /// Has the device refused more than this often?
    pub(crate) fn has_refused_since(&self, refused: u64) -> bool {
        self.refused.load(Ordering::SeqCst) > refused
    }

    /// All that was dirty after this many refusals has been written.
    pub(crate) fn settle(&self, refused: u64) {
        self.settled.fetch_max(refused, Ordering::SeqCst);
    }
}
