//! Fast commits: small changes of one transaction that Linux logged behind the log instead of committing it.
//!
//! The last `s_num_fc_blks` blocks of the journal hold them, from the second one on. Each is a run of little-endian
//! tag-length-value records, closed by a TAIL with the transaction's number and a crc32c over the run. They belong to the
//! transaction after the last one that was committed whole; what an older transaction left behind has another number.
//!
//! Invariants: only runs with a good TAIL count, in order, up to the first that has none. One pass over the area, never more.

mod record;
#[cfg(test)]
mod tests;

use cairn_base::checksum::crc32c;
use cairn_base::{FileBlock, Ino, Pba, Tid};

use crate::area::JournalArea;
use crate::error::{Error, Result};
use crate::recovery;
use record::{HEADER, Kind, decode};

/// One change. The filesystem applies them in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// These blocks are now mapped.
    AddRange {
        /// File.
        ino: Ino,
        /// First block in the file.
        start: FileBlock,
        /// First block on the volume.
        pba: Pba,
        /// Blocks.
        len: u32,
        /// Allocated but not written: reads as zeros.
        unwritten: bool,
    },
    /// These blocks are now a hole.
    DeleteRange {
        /// File.
        ino: Ino,
        /// First block in the file.
        start: FileBlock,
        /// Blocks.
        len: u32,
    },
    /// A new inode got its first name.
    Create(Name),
    /// An inode got one more name.
    Link(Name),
    /// A name was removed.
    Unlink(Name),
    /// What an inode's record says now, but for its block map.
    Inode {
        /// Inode.
        ino: Ino,
        /// The record's first bytes: at least 128.
        raw: Vec<u8>,
    },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Directory.
    pub parent: Ino,
    /// Inode it stands for.
    pub ino: Ino,
    /// The name.
    pub name: Vec<u8>,
}

/// Changes that became durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastCommit {
    /// In the order they are to be applied.
    pub operations: Vec<Operation>,
}

/// The fast commits that follow the log's last transaction. Ask before [`crate::recover`] empties the log; apply them
/// after its replay.
///
/// # Errors
/// The device failed, the log is damaged, or the fast commits use features that are not known.
pub fn fast_commits(area: &JournalArea) -> Result<Vec<FastCommit>> {
    let superblock = recovery::read_superblock(area)?;
    if superblock.start == 0 || superblock.fast_commit_blocks() == 0 {
        return Ok(Vec::new());
    }
    let mut reader = Reader::new(recovery::end_of_log(area, &superblock)?);
    // The block at the log's end separates the two and is not used.
    for block in superblock.end() + 1..superblock.blocks {
        if !reader.block(block, &area.read(block)?)? {
            break;
        }
    }
    Ok(reader.complete)
}

/// Takes the area block by block.
struct Reader {
    tid: Tid,
    sum: u32,
    open: FastCommit,
    complete: Vec<FastCommit>,
}

impl Reader {
    fn new(tid: Tid) -> Self {
        Self { tid, sum: 0, open: FastCommit::default(), complete: Vec::new() }
    }

    /// False: this block ends the area's valid part.
    fn block(&mut self, number: u32, bytes: &[u8]) -> Result<bool> {
        let mut rest = bytes;
        while rest.len() >= HEADER {
            let Some((record, taken)) = decode(rest) else { return Ok(false) };
            let whole = rest.get(..taken).unwrap_or_default();
            match record {
                Kind::Head { tid, .. } if tid != self.tid => return Ok(false),
                Kind::Head { features: 0, .. } | Kind::Pad => {}
                Kind::Head { features, .. } => {
                    let (what, value) = ("features of a fast commit", u64::from(features));
                    return Err(Error::Corrupt { block: number, what, value, expected: "0" });
                }
                Kind::Change(operation) => self.open.operations.push(operation),
                Kind::Tail { tid, sum, covered } => {
                    let computed = crc32c(self.sum, rest.get(..covered).unwrap_or_default());
                    if tid != self.tid || sum != computed {
                        return Ok(false);
                    }
                    self.complete.push(std::mem::take(&mut self.open));
                    self.sum = 0;
                    rest = rest.get(taken..).unwrap_or_default();
                    continue;
                }
            }
            self.sum = crc32c(self.sum, whole);
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(true)
    }
}
