//! [`Directory`]: the record, the format and the blocks of one directory.

use cairn_base::{Ino, Pba};
use cairn_check::Place;

use super::claims::Owners;
use super::state::State;
use super::visitor::Run;
use crate::format::dir_entry::DirFormat;
use crate::format::inode::{Inode as Record, InodeFlags};

/// `s_encoding_flags`: names that are not UTF-8 are refused.
const STRICT: u16 = 1;

/// A directory during its check.
pub(super) struct Directory<'a> {
    pub(super) state: &'a State,
    pub(super) ino: Ino,
    pub(super) record: Record,
    pub(super) format: DirFormat,
    /// Its blocks, in the order of the file.
    pub(super) runs: Vec<Run>,
    /// Number of blocks by its size.
    pub(super) blocks: u64,
}

impl Directory<'_> {
    pub(super) fn place(&self, block: u64) -> Place {
        Place::inode(self.ino.get()).at_file_block(block)
    }

    /// True if the directory ignores case and the volume refuses names that are not UTF-8.
    pub(super) fn needs_utf8(&self) -> bool {
        let flags = self.record.flags;
        let is_plain = flags.contains(InodeFlags::CASEFOLD) && !flags.contains(InodeFlags::ENCRYPT);
        is_plain && self.state.superblock.raw.s_encoding_flags.get() & STRICT != 0
    }

    /// Reads one block of the directory, if the map has it.
    pub(super) fn block(&self, block: u64) -> Option<Vec<u8>> {
        let behind = self.runs.partition_point(|run| run.end() <= block);
        let run = self.runs.get(behind).filter(|run| run.start <= block && !run.unwritten)?;
        let pba = Pba(run.pba.get().saturating_add(block.saturating_sub(run.start)));
        let is_own = self.state.system.count_range(pba.get(), 1) == 0;
        if !is_own || !Owners::may_read(self.state, pba) {
            return None;
        }
        self.state.source.block(pba).ok().map(|bytes| bytes.to_vec())
    }
}
