//! The size of a file in memory (`i_size`) and on disk (`i_disksize`).
//!
//! Readers see the size in memory ([`State::size`]). A crash leaves the size on disk
//! ([`State::record`]`.size`), which never covers bytes that were neither written nor zeroed. Both
//! sizes change only here.
//!
//! The size on disk may have to wait for the *EOF block*: the block with the old end of file. Its
//! bytes behind that end may have any contents on the device, and are being zeroed in the cache.
//! Until that block is written, a larger size is pending. At most one EOF block is waited for.
//!
//! | what happened | in memory | on disk | pending: EOF block, size |
//! |---|---|---|---|
//! | [`State::extend_size`]: the cache has data up to `end` | ≥ `end` | | |
//! | [`State::hold_disksize`]: the EOF block is being zeroed in the cache | | | the EOF block |
//! | [`State::grow`]: longer without data | the new size | ≥ the new size, or waits | size ≥ the new size |
//! | [`State::size_written`]: data up to `end` is on the device and mapped in this handle | ≥ `end` | ≥ `end`, or waits | no EOF block if it was written |
//! | [`State::truncate_size`], then [`State::truncate_disksize`]: shorter | the new size | ≤ the new size | size ≤ the new size; no EOF block behind it |
//! | [`State::drop_eof_block`]: blocks are freed | | | none of them is the EOF block |
//! | [`State::complete_disksize`]: all data is written | | the size in memory | none |
//! | [`State::set_size_and_disksize`]: contents in the record (directories, links, inline files), or blocks that move | the new size | the new size | |
//!
//! A change of the size on disk and the write of the record are in the same handle. Buffered and
//! direct writes use the same ticket, and write-back of later blocks writes the EOF block first, so
//! a commit never contains blocks behind the end of file without the size that covers them, unless
//! they are preallocated.

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;

use super::state::{PendingDisksize, State};

fn covers(run: Run, block: FileBlock) -> bool {
    block >= run.start && block.get() - run.start.get() < run.len
}

impl State {
    /// The cache has data up to `end`.
    pub(super) fn extend_size(&mut self, end: u64) {
        self.size = self.size.max(end);
    }

    /// The EOF block is being zeroed in the cache.
    pub(super) fn hold_disksize(&mut self, eof_block: FileBlock) {
        self.pending.eof_block.get_or_insert(eof_block);
    }

    /// The EOF block for which the size on disk must wait.
    pub(super) fn held_eof_block(&self) -> Option<FileBlock> {
        self.pending.eof_block
    }

    /// The file grows without data.
    pub(crate) fn grow(&mut self, size: u64) {
        self.size = size;
        self.pending.size = self.pending.size.max(size);
        self.update_disksize();
    }

    /// True if [`State::size_written`] would change the size on disk.
    pub(super) fn moves_disksize(&self, run: Run, end: u64) -> bool {
        self.record.size < end || self.pending.eof_block.is_some_and(|block| covers(run, block))
    }

    /// The blocks of `run` are on the device, with data up to byte `end`.
    pub(super) fn size_written(&mut self, run: Run, end: u64) {
        self.extend_size(end);
        self.pending.size = self.pending.size.max(end);
        self.drop_eof_block(run);
        self.update_disksize();
    }

    /// The file shrinks: no bytes behind `size` are read or written any more.
    pub(super) fn truncate_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Shrinks the size on disk, before the blocks behind it are freed.
    pub(super) fn truncate_disksize(&mut self, size: u64, block_size: u32) {
        self.record.size = self.record.size.min(size);
        self.pending.size = self.pending.size.min(size);
        if self.pending.eof_block.is_some_and(|block| block.get() * u64::from(block_size) >= size) {
            self.pending.eof_block = None;
        }
    }

    /// The blocks of `run` were written or freed: the EOF block is no longer pending if it is one
    /// of them.
    pub(super) fn drop_eof_block(&mut self, run: Run) {
        if self.pending.eof_block.is_some_and(|block| covers(run, block)) {
            self.pending.eof_block = None;
        }
    }

    /// All data is written.
    pub(super) fn complete_disksize(&mut self) {
        self.record.size = self.size;
        self.pending = PendingDisksize::default();
    }

    /// Changes both sizes, for contents that change together with the record.
    pub(crate) fn set_size_and_disksize(&mut self, size: u64) {
        (self.size, self.record.size) = (size, size);
    }

    /// Raises the size on disk to the pending size if no EOF block is pending.
    pub(super) fn update_disksize(&mut self) {
        if self.pending.eof_block.is_none() {
            self.record.size = self.record.size.max(self.pending.size.min(self.size));
            self.pending.size = 0;
        }
    }
}
