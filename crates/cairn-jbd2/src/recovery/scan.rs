//! Walking the log block by block.

use std::sync::Arc;

use cairn_base::checksum::crc32_be;
use cairn_base::{Pba, Tid};

use crate::area::JournalArea;
use crate::error::{Error, Result};
use crate::format::blocks::{BlockLayout, tail_checksum};
use crate::format::superblock::Superblock;
use crate::format::tags::{Tag, flag};
use crate::format::{Compat, HEADER, Incompat, MAGIC, RawHeader, kind};

/// Blocks read ahead in one request.
const READ_AHEAD: u32 = 64;

/// A block's copy in the log.
pub struct Copy {
    /// Transaction it belongs to.
    pub tid: Tid,
    /// Home.
    pub pba: Pba,
    /// Contents, unescaped.
    pub image: Arc<[u8]>,
}

/// What a walk meets.
pub enum Step {
    /// A copy.
    Copy(Copy),
    /// Revoke records.
    Revoke(Tid, Vec<Pba>),
    /// The end of a transaction.
    Commit,
}

/// What the first pass knows about the transaction it is in.
struct Sums {
    legacy: u32,
    /// The first damage.
    damage: Option<Error>,
}

impl Default for Sums {
    fn default() -> Self {
        Self { legacy: !0, damage: None }
    }
}

impl Sums {
    fn add(&mut self, block: &[u8], legacy: bool) {
        if legacy {
            self.legacy = crc32_be(self.legacy, block);
        }
    }

    fn damage(&mut self, found: Option<Error>) {
        self.damage = self.damage.take().or(found);
    }
}

/// A walk over the log.
pub struct Log<'a> {
    area: &'a JournalArea,
    layout: BlockLayout,
    first: u32,
    end: u32,
    start: u32,
    sequence: Tid,
    legacy: bool,
    at: u32,
    /// Blocks that may still be visited in this pass.
    left: u32,
    cached: Option<(u32, cairn_block::IoBuf)>,
}

impl<'a> Log<'a> {
    /// From the superblock's start.
    pub fn new(area: &'a JournalArea, superblock: &Superblock) -> Self {
        let layout = BlockLayout::of(superblock);
        let (first, end) = (superblock.first, superblock.end());
        Self {
            area,
            layout,
            first,
            end,
            start: superblock.start,
            sequence: superblock.sequence,
            legacy: superblock.compat.contains(Compat::CHECKSUM),
            at: superblock.start,
            left: end - first,
            cached: None,
        }
    }

    /// Back to the start, for the next pass.
    pub fn rewind(&mut self) {
        self.at = self.start;
        self.left = self.end - self.first;
    }

    /// The next block of the log, or `None` when all have been visited.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let block = self.read(self.at)?;
        self.at = if self.at + 1 == self.end { self.first } else { self.at + 1 };
        Ok(Some(block))
    }

    fn read(&mut self, block: u32) -> Result<Vec<u8>> {
        let size = self.layout.block_size;
        let hit = self.cached.as_ref().and_then(|(start, data)| {
            let at = usize::try_from(block.checked_sub(*start)?).ok()?.checked_mul(size)?;
            data.get(at..at + size).map(<[u8]>::to_vec)
        });
        if let Some(found) = hit {
            return Ok(found);
        }
        let data = self.area.read_run(block, READ_AHEAD.min(self.end - block))?;
        let found = data.get(..size).unwrap_or_default().to_vec();
        self.cached = Some((block, data));
        Ok(found)
    }

    /// First pass: the number after the last whole transaction.
    ///
    /// # Errors
    /// The device failed, or a committed transaction is damaged.
    pub fn find_end(&mut self) -> Result<Tid> {
        match self.scan()? {
            (_, Some(damage)) => Err(damage),
            (end, None) => Ok(end),
        }
    }

    /// The number after the last whole transaction, and what is wrong with the one of that number if it was committed.
    ///
    /// Damage in a transaction that has a commit block cannot come from a power cut: the commit block is written last, and
    /// the part of it that says something lies in one sector. Ending the log there would silently drop what was promised to
    /// be durable. Old blocks of an earlier lap are told apart by their commit time.
    ///
    /// # Errors
    /// The device failed.
    pub fn scan(&mut self) -> Result<(Tid, Option<Error>)> {
        let mut tid = self.sequence;
        let mut last_time = 0;
        let mut sums = Sums::default();
        while let Some((at, block)) = self.next_numbered()? {
            let Some(header) = RawHeader::read(&block).filter(|header| header.tid() == tid) else { break };
            match header.h_blocktype.get() {
                kind::DESCRIPTOR => {
                    sums.damage(self.tail_damage(at, "descriptor", &block));
                    sums.add(&block, self.legacy);
                    for tag in self.tags(&block) {
                        let Some((at, data)) = self.next_numbered()? else { return Ok((tid, None)) };
                        sums.add(&data, self.legacy);
                        sums.damage(self.data_damage(at, tid, &tag, &data));
                    }
                }
                kind::REVOKE => sums.damage(self.tail_damage(at, "revoke block", &block)),
                kind::COMMIT => {
                    if !self.legacy_is_good(&block, sums.legacy) {
                        // The first kind of checksum is for commit blocks that may come before what they commit.
                        break;
                    }
                    sums.damage(self.commit_damage(at, &block));
                    let time = self.layout.commit_time(&block);
                    match sums.damage.take() {
                        // The commit block may have been written together with what it commits, or is of an earlier lap.
                        Some(_) if self.layout.incompat.contains(Incompat::ASYNC_COMMIT) || time < last_time => break,
                        Some(damage) => return Ok((tid, Some(damage))),
                        None => {}
                    }
                    (tid, last_time, sums) = (tid.next(), time, Sums::default());
                }
                _ => break,
            }
        }
        Ok((tid, None))
    }

    /// Like [`Log::next`], with the block's place.
    fn next_numbered(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        let at = self.at;
        Ok(self.next()?.map(|block| (at, block)))
    }

    fn legacy_is_good(&self, block: &[u8], sum: u32) -> bool {
        let asked = self.legacy && !self.layout.tags.checks_data();
        !asked || self.layout.legacy_checksum(block).is_none_or(|stored| stored == Some(sum))
    }

    fn commit_damage(&self, at: u32, block: &[u8]) -> Option<Error> {
        if !self.layout.tags.checks_data() || self.layout.commit_is_whole(block) {
            return None;
        }
        let (stored, computed) = self.layout.commit_checksum(block);
        Some(Error::Checksum { block: at, what: "commit block", stored, computed })
    }

    fn data_damage(&self, block: u32, tid: Tid, tag: &Tag, data: &[u8]) -> Option<Error> {
        let computed = self.layout.tags.data_checksum(self.layout.seed, tid, data);
        let bad = self.layout.tags.checks_data() && computed != tag.checksum;
        bad.then_some(Error::Checksum { block, what: "logged block", stored: tag.checksum, computed })
    }

    fn tail_damage(&self, block: u32, what: &'static str, bytes: &[u8]) -> Option<Error> {
        let (stored, computed) = tail_checksum(bytes, self.layout.seed)?;
        let bad = self.layout.tags.checks_data() && stored != computed;
        bad.then_some(Error::Checksum { block, what, stored, computed })
    }

    /// The tags of a descriptor; a damaged one simply has fewer.
    fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let mut tags = Vec::new();
        let end = block.len() - self.layout.tags.tail();
        let mut at = HEADER;
        while let Some((tag, taken)) = block.get(at..end).and_then(|rest| self.layout.tags.decode(rest)) {
            tags.push(tag);
            at += taken;
            if tag.flags & flag::LAST != 0 {
                break;
            }
        }
        tags
    }

    /// Later passes: everything of the transactions before `end`.
    ///
    /// # Errors
    /// The device failed, or `visit` did.
    pub fn walk(&mut self, end: Tid, mut visit: impl FnMut(Step) -> Result<()>) -> Result<()> {
        let mut tid = self.sequence;
        while tid != end {
            let Some(block) = self.next()? else { break };
            let Some(header) = RawHeader::read(&block).filter(|header| header.tid() == tid) else { break };
            match header.h_blocktype.get() {
                kind::DESCRIPTOR => {
                    for tag in self.tags(&block) {
                        let Some(data) = self.next()? else { return Ok(()) };
                        visit(Step::Copy(Copy { tid, pba: tag.pba, image: unescape(data, &tag) }))?;
                    }
                }
                // Whether the superblock has the feature or not: Linux and e2fsck do not ask either.
                kind::REVOKE => {
                    if let Ok(records) = self.layout.revoked(&block) {
                        visit(Step::Revoke(tid, records))?;
                    }
                }
                kind::COMMIT => {
                    visit(Step::Commit)?;
                    tid = tid.next();
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn unescape(mut data: Vec<u8>, tag: &Tag) -> Arc<[u8]> {
    if tag.flags & flag::ESCAPE != 0
        && let Some(first) = data.first_chunk_mut::<4>()
    {
        *first = MAGIC.to_be_bytes();
    }
    Arc::from(data)
}
