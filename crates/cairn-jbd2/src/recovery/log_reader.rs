//! Reads the log block by block from its tail, for one recovery pass after another.
//!
//! A pass visits each block of the log at most once, whatever the log says.

use std::ops::Range;

use cairn_base::{Pba, Tid};
use cairn_block::IoBuf;
use cairn_cache::block::Image;

use crate::area::JournalArea;
use crate::error::Result;
use crate::fast_commit::blocks;
use crate::format::blocks::BlockLayout;
use crate::format::superblock::Superblock;
use crate::format::tags::{Tag, flag};
use crate::format::{Compat, HEADER, MAGIC, RawHeader, kind};

/// Blocks read in one request.
const READ_AHEAD: u32 = 64;

/// A metadata block in the log.
pub(super) struct LoggedBlock {
    /// Transaction that it belongs to.
    pub(super) tid: Tid,
    /// Home location.
    pub(super) pba: Pba,
    /// Contents, with the magic number that the log escapes.
    pub(super) data: Image,
}

/// What [`LogReader::for_each`] finds.
pub(super) enum Record {
    /// A metadata block.
    Block(LoggedBlock),
    /// The records of a revoke block, and their transaction.
    Revoke(Tid, Vec<Pba>),
    /// The end of a transaction.
    Commit,
}

/// A position in the log.
pub(super) struct LogReader<'a> {
    pub(super) area: &'a JournalArea,
    /// Form of the blocks.
    pub(super) layout: BlockLayout,
    /// Commit blocks hold a CRC-32 of their transaction.
    pub(super) has_transaction_crc32: bool,
    /// First transaction of the log.
    pub(super) sequence: Tid,
    first: u32,
    end: u32,
    /// The blocks behind the log that have fast commits.
    fast_commits: Range<u32>,
    start: u32,
    next: u32,
    /// Blocks that this pass may still visit.
    left: u32,
    /// The run of blocks that was read last, and its first block.
    cached: Option<(u32, IoBuf)>,
}

impl<'a> LogReader<'a> {
    /// Starts at the tail of the log.
    pub(super) fn new(area: &'a JournalArea, superblock: &Superblock) -> Self {
        let (first, end) = (superblock.first, superblock.end());
        Self {
            area,
            layout: BlockLayout::of(superblock),
            has_transaction_crc32: superblock.compat.contains(Compat::CHECKSUM),
            sequence: superblock.sequence,
            first,
            end,
            fast_commits: superblock.fast_commit_area(),
            start: superblock.start,
            next: superblock.start,
            left: end.saturating_sub(first),
            cached: None,
        }
    }

    /// Goes back to the tail for the next pass.
    pub(super) fn rewind(&mut self) {
        self.next = self.start;
        self.left = self.blocks();
    }

    /// The next block and its number. `None` if the pass has visited all blocks.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let block = self.next;
        let data = self.read(block)?;
        self.next = self.after(block);
        Ok(Some((block, data)))
    }

    /// The block that the pass reads next.
    pub(super) fn position(&self) -> u32 {
        self.next
    }

    /// The block behind one of the log, which is a ring.
    pub(super) fn after(&self, block: u32) -> u32 {
        match block.saturating_add(1) {
            after if after >= self.end => self.first,
            after => after,
        }
    }

    /// Blocks of the log.
    pub(super) fn blocks(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Is there a fast commit behind this transaction? It proves that this one was committed.
    pub(super) fn has_fast_commits_behind(&self, tid: Tid) -> bool {
        blocks::is_of(self.area, self.fast_commits.clone(), tid.next())
    }

    pub(super) fn read(&mut self, block: u32) -> Result<Vec<u8>> {
        if let Some(found) = self.cached(block) {
            return Ok(found);
        }
        let count = READ_AHEAD.min(self.end.saturating_sub(block));
        // A search reads megabytes: always into the same memory.
        let spare = self.cached.take().map(|(_, run)| run);
        let run = self.area.read_run(block, count, spare)?;
        let found = run.get(..self.layout.block_size).unwrap_or_default().to_vec();
        self.cached = Some((block, run));
        Ok(found)
    }

    fn cached(&self, block: u32) -> Option<Vec<u8>> {
        let (start, run) = self.cached.as_ref()?;
        let index = usize::try_from(block.checked_sub(*start)?).ok()?;
        let from = index.checked_mul(self.layout.block_size)?;
        let to = from.checked_add(self.layout.block_size)?;
        run.get(from..to).map(<[u8]>::to_vec)
    }

    /// The tags of a descriptor block, up to the first that is cut off.
    pub(super) fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let mut tags = Vec::new();
        let end = block.len().saturating_sub(self.layout.tags.tail());
        let mut rest = block.get(HEADER..end).unwrap_or_default();
        while let Some((tag, length)) = self.layout.tags.decode(rest) {
            tags.push(tag);
            rest = rest.get(length..).unwrap_or_default();
            if tag.flags & flag::LAST != 0 {
                break;
            }
        }
        tags
    }

    /// Hands the contents of the transactions before `end` to `visit`, in the order of the log. An
    /// error of `visit` ends the pass.
    pub(super) fn for_each(
        &mut self,
        end: Tid,
        mut visit: impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        self.rewind();
        let mut tid = self.sequence;
        while tid != end {
            let Some((_, block)) = self.next()? else { break };
            let Some(header) = RawHeader::read(&block).filter(|header| header.tid() == tid) else {
                break;
            };
            match header.h_blocktype.get() {
                kind::DESCRIPTOR => {
                    for tag in self.tags(&block) {
                        let Some((_, data)) = self.next()? else { return Ok(()) };
                        let data = unescape(data, &tag);
                        visit(Record::Block(LoggedBlock { tid, pba: tag.pba, data }))?;
                    }
                }
                // Linux and e2fsck replay revoke blocks without the feature `REVOKE`, too.
                kind::REVOKE => {
                    if let Some(records) = self.layout.revoked(&block) {
                        visit(Record::Revoke(tid, records))?;
                    }
                }
                kind::COMMIT => {
                    visit(Record::Commit)?;
                    tid = tid.next();
                }
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn unescape(mut data: Vec<u8>, tag: &Tag) -> Image {
    if tag.flags & flag::ESCAPE != 0
        && let Some(first) = data.first_chunk_mut::<4>()
    {
        *first = MAGIC.to_be_bytes();
    }
    Image::from(data)
}
