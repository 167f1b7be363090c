//! What is intact of a log that cannot be replayed in whole: for a repair.
//!
//! All transactions up to the last commit block count. A block with one wrong bit is corrected by
//! its checksum. A copy with more of them is left out. What became of a descriptor, commit or
//! revoke block is not known then: the pass goes on with the next block that belongs to the log.
//!
//! **Doubt.** A lost block may have been one of revoke records. The copies of its transaction and
//! of those before it may therefore be of blocks that were freed, and may hold a file's data by
//! now. They are reported as doubtful, and the caller decides.
//!
//! **Bounds.** Two passes over the log; the copies are those that a replay would hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cairn_base::{Pba, Tid, memory, one_bit};
use cairn_cache::block::Image;

use super::log_reader::{LogReader, unescape};
use super::replay::Images;
use super::scan::SEARCHED;
use crate::area::{FORCED, JournalArea, read_superblock, write_superblock};
use crate::error::Result;
use crate::format::blocks::{CommitTime, commit_time, correct_tail, tail_checksum};
use crate::format::tags::Tag;
use crate::format::{RawHeader, kind};

/// What is left of a damaged log.
#[derive(Debug, Default)]
pub struct Remains {
    /// The newest intact contents of every block.
    pub images: Images,
    /// Those that may have been freed since.
    pub doubtful: BTreeSet<Pba>,
    /// Blocks whose newest contents are lost. `images` has older ones, or none.
    pub lost: BTreeSet<Pba>,
    /// Blocks of the log that became something else.
    pub unknown: Vec<u32>,
    /// Blocks of the log of which one bit was wrong, as they were before.
    pub corrected: BTreeMap<u32, Vec<u8>>,
    /// The transaction behind the last one; fast commits are of it.
    pub end: Tid,
    /// Number of the next transaction.
    pub next: Tid,
}

impl Remains {
    /// True if nothing is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.unknown.is_empty()
    }
}

/// What is intact of the log, with the transactions behind a damaged one. Nothing is written.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn remains(area: &JournalArea) -> Result<Remains> {
    let superblock = read_superblock(area)?;
    if superblock.start == 0 {
        let end = superblock.sequence;
        return Ok(Remains { end, next: end, ..Remains::default() });
    }
    let mut log = LogReader::new(area, &superblock);
    let mut last = log.last_commit();
    let end = last.map_or(superblock.sequence, Tid::next);
    let lacks_commit = log.has_fast_commits_behind(end);
    if lacks_commit {
        last = Some(end);
    }
    let Some(last) = last else {
        return Ok(Remains { end, next: end.next(), ..Remains::default() });
    };
    let mut pass = Pass::new(superblock.sequence, last, lacks_commit);
    pass.read(&mut log)?;
    Ok(pass.end())
}

/// Writes the corrected blocks to the log.
///
/// # Errors
/// The device failed.
pub fn write_corrected(area: &JournalArea, remains: &Remains) -> Result<()> {
    for (block, bytes) in &remains.corrected {
        area.write(*block, vec![bytes.clone().into()], FORCED)?;
    }
    Ok(())
}

/// Marks the log empty. The next transaction has the number `next`.
///
/// # Errors
/// The device failed, or the journal superblock is damaged.
pub fn mark_empty(area: &JournalArea, next: Tid) -> Result<()> {
    let mut superblock = read_superblock(area)?;
    (superblock.start, superblock.sequence, superblock.errno) = (0, next, 0);
    write_superblock(area, &superblock, FORCED)
}

/// A copy in the log. Without contents, these are lost.
struct Found {
    tid: Tid,
    pba: Pba,
    data: Option<Image>,
}

struct Pass {
    tid: Tid,
    last: Tid,
    found: Vec<Found>,
    revoked: HashMap<Pba, Tid>,
    unknown: BTreeMap<u32, Tid>,
    corrected: BTreeMap<u32, Vec<u8>>,
    /// Checksum of the transaction's blocks, and the first of its copies.
    crc32: u32,
    begun: usize,
    /// The last blocks were none of the log, behind others of its transaction: the last of them may
    /// have been the commit block.
    pending: Vec<u32>,
    /// Fast commits prove the last transaction, of which there is no commit block.
    lacks_commit: bool,
}

impl Pass {
    fn new(tid: Tid, last: Tid, lacks_commit: bool) -> Self {
        Self {
            tid,
            last,
            found: Vec::new(),
            revoked: HashMap::new(),
            unknown: BTreeMap::new(),
            corrected: BTreeMap::new(),
            crc32: !0,
            begun: 0,
            pending: Vec::new(),
            lacks_commit,
        }
    }

    fn read(&mut self, log: &mut LogReader<'_>) -> Result<()> {
        log.rewind();
        while self.last.is_at_or_after(self.tid) {
            let Some((number, mut block)) = log.next()? else { break };
            let header = RawHeader::read(&block).filter(|header| self.may_be(header.tid()));
            let kind = header.map(|header| (header.h_blocktype.get(), header.tid()));
            match kind {
                Some((kind::DESCRIPTOR, tid)) if self.sound(log, number, &mut block) => {
                    self.follow(tid);
                    self.descriptor(log, &block)?;
                }
                Some((kind::REVOKE, tid)) if self.sound(log, number, &mut block) => {
                    self.follow(tid);
                    for pba in log.layout.revoked(&block).unwrap_or_default() {
                        self.revoked.insert(pba, tid);
                    }
                }
                Some((kind::COMMIT, tid)) => {
                    self.follow(tid);
                    self.commit(log, number, &mut block);
                }
                _ => self.miss(number),
            }
        }
        Ok(())
    }

    /// May a block of this transaction come next?
    fn may_be(&self, tid: Tid) -> bool {
        tid.is_at_or_after(self.tid) && self.last.is_at_or_after(tid)
    }

    /// Is a descriptor or revoke block intact, or can it be made so?
    fn sound(&mut self, log: &LogReader<'_>, number: u32, block: &mut [u8]) -> bool {
        let sums = tail_checksum(block, log.layout.seed).filter(|_| log.verifies());
        if sums.is_none_or(|(stored, computed)| stored == computed) {
            return true;
        }
        let is_corrected = correct_tail(block, log.layout.seed);
        if is_corrected {
            self.corrected.insert(number, block.to_vec());
        }
        is_corrected
    }

    /// Goes on with a transaction. If that is the one behind the present one, the block that was
    /// missed was the commit block, and nothing else is missing.
    fn follow(&mut self, tid: Tid) {
        let mut pending = std::mem::take(&mut self.pending);
        if tid == self.tid.next() && self.found.len() > self.begun {
            pending.pop();
        }
        self.unknown.extend(pending.into_iter().map(|number| (number, self.tid)));
        if tid != self.tid {
            self.begin(tid);
        }
    }

    fn begin(&mut self, tid: Tid) {
        (self.tid, self.crc32, self.begun) = (tid, !0, self.found.len());
        self.pending.clear();
    }

    fn miss(&mut self, number: u32) {
        self.pending.push(number);
    }

    fn descriptor(&mut self, log: &mut LogReader<'_>, block: &[u8]) -> Result<()> {
        self.crc32 = log.crc32_of(self.crc32, block);
        for tag in log.tags(block) {
            let Some((number, data)) = log.next()? else { break };
            self.crc32 = log.crc32_of(self.crc32, &data);
            memory::admit("the journal's blocks").map_err(cairn_block::Error::from)?;
            let data = self.copy(log, number, &tag, data).map(|data| unescape(data, &tag));
            self.found.push(Found { tid: self.tid, pba: tag.pba, data });
        }
        Ok(())
    }

    /// The contents of a copy, if they are intact or can be made so.
    fn copy(
        &mut self,
        log: &LogReader<'_>,
        number: u32,
        tag: &Tag,
        mut data: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let tags = log.layout.tags;
        let computed = tags.data_checksum(log.layout.seed, self.tid, &data);
        if !log.verifies() || computed == tag.checksum {
            return Some(data);
        }
        // Half a checksum names no bit.
        let wrong = one_bit::find(data.len(), tag.checksum, computed);
        let wrong = wrong.filter(|_| tags.has_whole_checksums())?;
        one_bit::correct(&mut data, wrong).then(|| {
            self.corrected.insert(number, data.clone());
            data
        })
    }

    fn commit(&mut self, log: &LogReader<'_>, number: u32, block: &mut [u8]) {
        // All that counts of the block is in its header.
        if log.verifies() && !log.layout.is_commit_intact(block) && log.layout.correct_commit(block)
        {
            self.corrected.insert(number, block.to_vec());
        }
        if log.crc32_damage(number, block, self.crc32).is_some() {
            // Which of the copies is wrong is not known.
            self.found.iter_mut().skip(self.begun).for_each(|found| found.data = None);
        }
        self.begin(self.tid.next());
    }

    fn end(mut self) -> Remains {
        // Behind a transaction without its commit block lies what was there before.
        let is_all = self.lacks_commit && self.tid == self.last && self.found.len() > self.begun;
        if !is_all {
            let pending = std::mem::take(&mut self.pending);
            self.unknown.extend(pending.into_iter().map(|number| (number, self.tid)));
        }
        let doubt = self.unknown.values().copied().reduce(|a, b| if b.is_after(a) { b } else { a });
        let mut remains = Remains {
            unknown: self.unknown.into_keys().collect(),
            corrected: self.corrected,
            end: self.last.next(),
            next: self.last.next().next(),
            ..Remains::default()
        };
        for Found { tid, pba, data } in self.found {
            let is_revoked = self.revoked.get(&pba).is_some_and(|by| !tid.is_after(*by));
            if is_revoked {
                continue;
            }
            let Some(data) = data else {
                remains.lost.insert(pba);
                continue;
            };
            remains.lost.remove(&pba);
            match doubt {
                Some(doubt) if !tid.is_after(doubt) => remains.doubtful.insert(pba),
                _ => remains.doubtful.remove(&pba),
            };
            remains.images.insert(pba, data);
        }
        remains
    }
}

impl LogReader<'_> {
    /// The last transaction that has a commit block, at or behind the tail.
    fn last_commit(&mut self) -> Option<Tid> {
        let window = usize::try_from(SEARCHED).unwrap_or(0).checked_div(self.layout.block_size);
        let window = u32::try_from(window.unwrap_or(0)).unwrap_or(u32::MAX);
        let (mut block, mut last, mut missed) = (self.position(), None, 0_u32);
        let mut since: CommitTime = (self.area.since, 0);
        for distance in 0..self.blocks() {
            if missed > window {
                break;
            }
            missed = missed.saturating_add(1);
            let bytes = self.read(block).unwrap_or_default();
            block = self.after(block);
            let Some(header) = RawHeader::read(&bytes) else { continue };
            let least = last.map_or(self.sequence, Tid::next);
            let ahead = header.tid().0.wrapping_sub(self.sequence.0);
            if header.h_blocktype.get() == kind::COMMIT
                && header.tid().is_at_or_after(least)
                && ahead <= distance
                && (commit_time(&bytes) >= since)
            {
                (last, missed, since) = (Some(header.tid()), 0, commit_time(&bytes));
            }
        }
        last
    }
}
