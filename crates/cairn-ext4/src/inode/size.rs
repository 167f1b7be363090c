//! How long a file is: in memory (`i_size`), and on disk (`i_disksize`).
//!
//! The size in memory ([`State::size`]) is what readers see. The size on disk ([`State::record`]`.size`) is what a crash leaves: it
//! never covers bytes that nobody wrote or zeroed. Both change here and nowhere else.
//!
//! What can keep the size on disk back is the *tail*: the block with the old end of file, whose bytes behind that end may be
//! anything on the device, and are being zeroed in the cache. Until that block is written, a larger size waits in `wanted`. At most
//! one such block exists.
//!
//! | what happened | in memory | on disk | tail, wanted |
//! |---|---|---|---|
//! | [`State::extend_size`]: the cache took data up to `end` | ≥ `end` | | |
//! | [`State::hold_disksize`]: the tail is being zeroed in the cache | | | the tail |
//! | [`State::grow`]: longer without data | the new size | ≥ the new size, or kept back | `wanted` ≥ the new size |
//! | [`State::size_written`]: data up to `end` is on the device, and being mapped in this handle | ≥ `end` | ≥ `end`, or kept back | the tail goes if it was among that data |
//! | [`State::truncate_size`], then [`State::truncate_disksize`]: shorter | the new size | ≤ the new size | `wanted` ≤ the new size; no tail behind it |
//! | [`State::drop_tail`]: blocks are taken away with all they hold | | | no tail among them |
//! | [`State::complete_disksize`]: nothing is left to be written | | that in memory | none |
//! | [`State::set_size_and_disksize`]: contents that go with their record (directories, links, inline files), or blocks that move | the new size | the same | |
//!
//! Whoever moves the size on disk stores the record in the same handle. Buffered and direct writes go through the same ticket, so blocks
//! behind the end of file are never committed without the size that covers them, unless they are preallocated.

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;

use super::state::{PendingDisksize, State};

fn covers(run: Run, block: FileBlock) -> bool {
    block >= run.start && block.get() - run.start.get() < run.len
}

impl State {
    /// The cache took data up to `end`.
    pub(super) fn extend_size(&mut self, end: u64) {
        self.size = self.size.max(end);
    }

    /// The tail is being zeroed in the cache.
    pub(super) fn hold_disksize(&mut self, tail: FileBlock) {
        self.pending.tail.get_or_insert(tail);
    }

    /// True if the size on disk must wait for the tail.
    pub(super) fn is_disksize_held(&self) -> bool {
        self.pending.tail.is_some()
    }

    /// The file gets longer without data.
    pub(crate) fn grow(&mut self, size: u64) {
        self.size = size;
        self.pending.wanted = self.pending.wanted.max(size);
        self.update_disksize();
    }

    /// Would [`State::size_written`] change anything on disk?
    pub(super) fn moves_disksize(&self, run: Run, end: u64) -> bool {
        self.record.size < end || self.pending.tail.is_some_and(|tail| covers(run, tail))
    }

    /// The blocks of `run` are on the device, with data up to byte `end`.
    pub(super) fn size_written(&mut self, run: Run, end: u64) {
        self.extend_size(end);
        self.pending.wanted = self.pending.wanted.max(end);
        self.drop_tail(run);
        self.update_disksize();
    }

    /// The file gets shorter: nobody reads or writes behind `size` any more.
    pub(super) fn truncate_size(&mut self, size: u64) {
        self.size = size;
    }

    /// The same on disk, before the blocks behind it go.
    pub(super) fn truncate_disksize(&mut self, size: u64, block_size: u32) {
        self.record.size = self.record.size.min(size);
        self.pending.wanted = self.pending.wanted.min(size);
        if self.pending.tail.is_some_and(|tail| tail.get() * u64::from(block_size) >= size) {
            self.pending.tail = None;
        }
    }

    /// The blocks of `run` are written, or hold nothing any more: the tail is not among what is to come.
    pub(super) fn drop_tail(&mut self, run: Run) {
        if self.pending.tail.is_some_and(|tail| covers(run, tail)) {
            self.pending.tail = None;
        }
    }

    /// Nothing is left to be written.
    pub(super) fn complete_disksize(&mut self) {
        self.record.size = self.size;
        self.pending = PendingDisksize::default();
    }

    /// Contents and record change together.
    pub(crate) fn set_size_and_disksize(&mut self, size: u64) {
        (self.size, self.record.size) = (size, size);
    }

    /// Lets the size on disk take what it was kept from, once nothing keeps it any more.
    pub(super) fn update_disksize(&mut self) {
        if self.pending.tail.is_none() {
            self.record.size = self.record.size.max(self.pending.wanted.min(self.size));
            self.pending.wanted = 0;
        }
    }
}
