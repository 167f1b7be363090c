//! The blocks of the fast-commit area, read one after the other.

use std::ops::Range;

use cairn_base::Tid;
use cairn_base::checksum::crc32c;

use super::operation::FastCommit;
use super::record::{HEADER, Record, decode};
use crate::area::JournalArea;
use crate::error::{Error, Result};

/// Blocks behind a supposed end in which a later fast commit is looked for, and blocks that one
/// takes.
const SEARCHED: u32 = 256;
const LONGEST: u32 = 64;

/// The fast commits of a transaction in these blocks, up to the first that is not complete, and
/// what is wrong with that if it was written to its end.
///
/// # Errors
/// The device failed, or the fast commits use unknown features.
pub(crate) fn read(
    area: &JournalArea,
    blocks: Range<u32>,
    tid: Tid,
) -> Result<(Vec<FastCommit>, Option<Error>)> {
    let (end, mut reader) = (blocks.end, Reader::new(tid));
    for block in blocks {
        if !reader.block(block, &area.read(block)?)? {
            let is_first = reader.complete.is_empty() && reader.wrong_sum.is_some();
            let is_damaged = is_first || is_followed(area, tid, block, end);
            let damage = is_damaged.then(|| reader.damage(block));
            return Ok((reader.complete, damage));
        }
    }
    Ok((reader.complete, None))
}

/// Do these blocks begin with a complete fast commit of the transaction? It is written when the
/// transaction before is committed.
pub(crate) fn is_of(area: &JournalArea, blocks: Range<u32>, tid: Tid) -> bool {
    let mut reader = Reader::new(tid);
    for block in blocks {
        // What cannot be read proves nothing.
        let goes_on =
            area.read(block).is_ok_and(|bytes| matches!(reader.block(block, &bytes), Ok(true)));
        if !reader.complete.is_empty() {
            return true;
        }
        if !goes_on {
            break;
        }
    }
    false
}

/// Is there a complete fast commit of the transaction behind a block?
fn is_followed(area: &JournalArea, tid: Tid, block: u32, end: u32) -> bool {
    let first = block.saturating_add(1);
    (first..first.saturating_add(SEARCHED).min(end)).any(|start| {
        let mut reader = Reader::new(tid);
        (start..start.saturating_add(LONGEST).min(end)).any(|block| {
            // What cannot be read proves nothing.
            let goes_on =
                area.read(block).is_ok_and(|bytes| matches!(reader.block(block, &bytes), Ok(true)));
            if !goes_on {
                reader = Reader::new(Tid(tid.0.wrapping_add(1)));
            }
            goes_on && !reader.complete.is_empty()
        })
    })
}

/// Decodes the area block by block.
pub(super) struct Reader {
    tid: Tid,
    /// Checksum of the records since the last TAIL.
    sum: u32,
    /// Changes since the last TAIL.
    open: FastCommit,
    pub(super) complete: Vec<FastCommit>,
    /// Stored and computed checksum of a TAIL of this transaction that does not hold.
    wrong_sum: Option<(u32, u32)>,
}

impl Reader {
    pub(super) fn new(tid: Tid) -> Self {
        Self { tid, sum: 0, open: FastCommit::default(), complete: Vec::new(), wrong_sum: None }
    }

    /// The error for the block in which the valid part of the area ends.
    fn damage(&self, block: u32) -> Error {
        match self.wrong_sum {
            Some((stored, computed)) => {
                Error::Checksum { block, what: "fast commit", stored, computed }
            }
            None => {
                let (what, value) = ("fast commit", self.tid.0.into());
                Error::Corrupt {
                    block,
                    what,
                    value,
                    expected: "records, as later blocks have them",
                }
            }
        }
    }

    /// Decodes the next block. False if the valid part of the area ends in it.
    pub(super) fn block(&mut self, number: u32, bytes: &[u8]) -> Result<bool> {
        let mut rest = bytes;
        while rest.len() >= HEADER {
            let Some((record, length)) = decode(rest) else { return Ok(false) };
            let (whole, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            match record {
                Record::Head { tid, .. } if tid != self.tid => return Ok(false),
                Record::Head { features: 0, .. } | Record::Pad => {
                    self.sum = crc32c(self.sum, whole)
                }
                Record::Head { features, .. } => {
                    let (what, value) = ("features of a fast commit", u64::from(features));
                    return Err(Error::Corrupt { block: number, what, value, expected: "0" });
                }
                Record::Change(operation) => {
                    self.open.operations.push(operation);
                    self.sum = crc32c(self.sum, whole);
                }
                Record::Tail { tid, sum, covered } => {
                    let computed = crc32c(self.sum, whole.get(..covered).unwrap_or_default());
                    if tid == self.tid && sum != computed {
                        self.wrong_sum = Some((sum, computed));
                    }
                    if tid != self.tid || sum != computed {
                        return Ok(false);
                    }
                    self.complete.push(std::mem::take(&mut self.open));
                    self.sum = 0;
                }
            }
            rest = after;
        }
        Ok(true)
    }
}
