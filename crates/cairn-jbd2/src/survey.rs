//! Looks at every block of the log, also at those of transactions that were checkpointed long ago:
//! they stay until the log comes round to them.
//!
//! **Bounds.** One pass over the journal; at most as many tags as its descriptor blocks have room
//! for.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used
)]

use cairn_base::{Pba, Tid};

use crate::area::{JournalArea, read_superblock};
use crate::error::{Error, Result};
use crate::format::blocks::{BlockLayout, commit_time, tail_checksum};
use crate::format::superblock::Superblock;
use crate::format::tags::{Tag, flag};
use crate::format::{HEADER, MAGIC, RawHeader, kind};
use crate::recovery;

/// Blocks read in one request.
const READ_AHEAD: u32 = 64;

/// A block of the log that is no copy of another.
#[derive(Clone, Debug)]
pub struct LogBlock {
    /// Its number in the journal.
    pub number: u32,
    /// Its block on the device, if the map of the journal has it.
    pub pba: Option<Pba>,
    /// Its transaction.
    pub tid: Tid,
    /// Stored and computed checksum, if blocks have them.
    pub checksum: Option<(u32, u32)>,
    /// What it is.
    pub contents: LogContents,
}

/// What a block of the log is.
#[derive(Clone, Debug)]
pub enum LogContents {
    /// The homes of the blocks that follow.
    Descriptor(Vec<LoggedCopy>),
    /// The end of a transaction: when it was written, in seconds and nanoseconds since 1970.
    Commit(u64, u32),
    /// Blocks that must not be replayed.
    Revoke(Vec<Pba>),
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedCopy {
    /// The block's place on the volume.
    pub home: Pba,
    /// The transaction.
    pub tid: Tid,
    /// The copy's number in the journal.
    pub number: u32,
    /// Stored and computed checksum of the copy, if copies have them.
    pub checksum: Option<(u32, u32)>,
    /// The first word was replaced in the log.
    is_escaped: bool,
}

impl LoggedCopy {
    /// Is the copy what its descriptor says, as far as that can be known?
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.checksum.is_none_or(|(stored, computed)| stored == computed)
    }
}

/// What a recovery would do.
#[derive(Clone, Debug)]
pub struct LogState {
    /// The journal's superblock.
    pub superblock: Superblock,
    /// The transaction that ends the replay: it is not replayed.
    pub end: Tid,
    /// Why a replay would refuse the log, if it would.
    pub damage: Option<Error>,
}

/// What a recovery would do with the log.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn log_state(area: &JournalArea) -> Result<LogState> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 {
        let end = superblock.sequence;
        return Ok(LogState { superblock, end, damage: None });
    }
    let (end, damage) = recovery::extent_of_log(area, &superblock)?;
    Ok(LogState { superblock, end, damage })
}

/// Hands every descriptor, commit and revoke block of the journal to `visit`, in the order of the
/// journal, until it returns false.
///
/// # Errors
/// The journal superblock is damaged. Blocks that cannot be read are passed over.
pub fn survey(area: &JournalArea, mut visit: impl FnMut(LogBlock) -> bool) -> Result<()> {
    let superblock = read_superblock(area)?;
    let mut log = Survey::new(area, &superblock);
    let mut number = superblock.first;
    while number < superblock.end() {
        if let Some(found) = log.look(number)
            && !visit(found)
        {
            break;
        }
        number = number.saturating_add(1);
    }
    Ok(())
}

/// The last commit block of the journal, whatever its superblock says of the log: when it was
/// written, in seconds since 1970, and the number that no transaction of the journal has reached.
/// `None` if there is none, or none has a time.
///
/// # Errors
/// As [`survey`].
pub fn last_commit(area: &JournalArea) -> Result<Option<(u64, Tid)>> {
    let mut next = read_superblock(area)?.sequence;
    let mut last = 0;
    survey(area, |block| {
        if let LogContents::Commit(seconds, _) = block.contents {
            last = last.max(seconds);
        }
        if block.tid.is_at_or_after(next) {
            next = block.tid.next();
        }
        true
    })?;
    Ok((last > 0).then_some((last, next)))
}

/// The bytes of a copy, as they belong to its home.
///
/// # Errors
/// The device failed.
pub fn read_copy(area: &JournalArea, copy: &LoggedCopy) -> Result<Vec<u8>> {
    let mut bytes = area.read(copy.number)?.to_vec();
    if copy.is_escaped
        && let Some(first) = bytes.first_chunk_mut::<4>()
    {
        *first = MAGIC.to_be_bytes();
    }
    Ok(bytes)
}

struct Survey<'a> {
    area: &'a JournalArea,
    layout: BlockLayout,
    first: u32,
    end: u32,
    cached: Option<(u32, Vec<u8>)>,
}

impl<'a> Survey<'a> {
    fn new(area: &'a JournalArea, superblock: &Superblock) -> Self {
        let layout = BlockLayout::of(superblock);
        Self { area, layout, first: superblock.first, end: superblock.end(), cached: None }
    }

    fn read(&mut self, number: u32) -> Option<Vec<u8>> {
        if self.cached(number).is_none() {
            let count = READ_AHEAD.min(self.end.saturating_sub(number));
            self.cached = Some((number, self.area.read_run(number, count, None).ok()?.to_vec()));
        }
        self.cached(number).map(<[u8]>::to_vec)
    }

    fn cached(&self, number: u32) -> Option<&[u8]> {
        let (start, run) = self.cached.as_ref()?;
        let index = usize::try_from(number.checked_sub(*start)?).ok()?;
        let from = index.checked_mul(self.layout.block_size)?;
        run.get(from..from.checked_add(self.layout.block_size)?)
    }

    fn look(&mut self, number: u32) -> Option<LogBlock> {
        let bytes = self.read(number)?;
        let header = RawHeader::read(&bytes)?;
        let (tid, has_sums) = (header.tid(), self.layout.tags.has_checksums());
        let tail = has_sums.then(|| tail_checksum(&bytes, self.layout.seed)).flatten();
        let (contents, checksum) = match header.h_blocktype.get() {
            kind::DESCRIPTOR => (LogContents::Descriptor(self.copies(number, tid, &bytes)), tail),
            kind::REVOKE => (LogContents::Revoke(self.layout.revoked(&bytes)?), tail),
            kind::COMMIT => {
                let (seconds, nanoseconds) = commit_time(&bytes);
                let sum = has_sums.then(|| self.commit_checksum(&bytes));
                (LogContents::Commit(seconds, nanoseconds), sum)
            }
            _ => return None,
        };
        let pba = self.area.address(number);
        Some(LogBlock { number, pba, tid, checksum, contents })
    }

    fn commit_checksum(&self, bytes: &[u8]) -> (u32, u32) {
        let (stored, computed) = self.layout.commit_checksum(bytes);
        // It may cover the structure only.
        (stored, if self.layout.is_commit_intact(bytes) { stored } else { computed })
    }

    fn copies(&mut self, descriptor: u32, tid: Tid, block: &[u8]) -> Vec<LoggedCopy> {
        let end = block.len().saturating_sub(self.layout.tags.tail());
        let mut rest = block.get(HEADER..end).unwrap_or_default();
        let (mut copies, mut number) = (Vec::new(), descriptor);
        while let Some((tag, length)) = self.layout.tags.decode(rest) {
            number = self.after(number);
            copies.push(self.copy(&tag, tid, number));
            rest = rest.get(length..).unwrap_or_default();
            if tag.flags & flag::LAST != 0 {
                break;
            }
        }
        copies
    }

    fn copy(&mut self, tag: &Tag, tid: Tid, number: u32) -> LoggedCopy {
        let is_escaped = tag.flags & flag::ESCAPE != 0;
        let checksum = match self.layout.tags.has_checksums() {
            true => self.read(number).map(|data| {
                (tag.checksum, self.layout.tags.data_checksum(self.layout.seed, tid, &data))
            }),
            false => None,
        };
        LoggedCopy { home: tag.pba, tid, number, checksum, is_escaped }
    }

    fn after(&self, number: u32) -> u32 {
        match number.saturating_add(1) {
            next if next >= self.end => self.first,
            next => next,
        }
    }
}
