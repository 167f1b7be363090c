//! The first pass (jbd2's `PASS_SCAN`): finds the end of the log.
//!
//! Damage in a transaction that has a commit block does not come from a power cut. The commit block
//! is written after everything else of its transaction, and its structure lies in one sector.
//! Ending the log at such a transaction would lose changes that were reported as durable, so the
//! pass reports the damage. The commit time tells blocks of an earlier lap of the log apart.
//!
//! A block that is none of the log any more looks like the log's end. But the log ends where
//! nothing was committed behind it: so a commit block of this transaction, or of a later one, is
//! looked for ([`SEARCHED`] bytes). With `ASYNC_COMMIT` a commit block may be on the medium before
//! its transaction is, so only that of a later one tells. A fast commit of the next transaction
//! tells, too: it is written only when this one is committed.

use cairn_base::Tid;
use cairn_base::checksum::crc32_be;
use cairn_base::sabotage::Safeguard;

use super::log_reader::LogReader;
use crate::error::{Error, Result};
use crate::format::blocks::{
    CommitTime, TransactionCrc32, commit_time, tail_checksum, transaction_crc32,
};
use crate::format::tags::Tag;
use crate::format::{Incompat, RawHeader, kind};

/// Bytes behind the supposed end of the log in which a commit block is looked for.
pub(super) const SEARCHED: u32 = 8 << 20;

/// The CRC-32 of a transaction without descriptors and metadata blocks.
const NO_BLOCKS: u32 = !0;

/// Where the log ends.
pub(super) struct End {
    /// Number after the last intact transaction.
    pub(super) tid: Tid,
    /// What is wrong with the transaction of that number, if it was committed.
    pub(super) damage: Option<Error>,
}

/// The transaction that the pass reads.
struct Current {
    tid: Tid,
    /// Its first block, and the blocks of it that were read.
    first: u32,
    blocks: u32,
    /// CRC-32 of its descriptor and metadata blocks.
    crc32: u32,
    /// The first damage in it.
    damage: Option<Error>,
}

impl Current {
    fn new(tid: Tid, first: u32) -> Self {
        Self { tid, first, blocks: 0, crc32: NO_BLOCKS, damage: None }
    }

    fn note(&mut self, damage: Option<Error>) {
        self.damage = self.damage.take().or(damage);
    }

    /// The error for a block that is none of the transaction.
    fn lost(&self, block: u32, bytes: &[u8]) -> Error {
        let value = bytes.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
        let expected = "a block of a transaction, although that was committed";
        Error::Corrupt { block, what: "first word of a log block", value: value.into(), expected }
    }
}

impl LogReader<'_> {
    /// The number after the last intact transaction.
    pub(super) fn find_end(&mut self) -> Result<Tid> {
        let end = self.scan()?;
        end.damage.map_or(Ok(end.tid), Err)
    }

    /// Reads the log up to the first transaction that is not intact.
    pub(super) fn scan(&mut self) -> Result<End> {
        self.rewind();
        let mut current = Current::new(self.sequence, self.position());
        let mut last_time = CommitTime::default();
        let unordered = self.layout.incompat.contains(Incompat::ASYNC_COMMIT);
        while let Some((number, block)) = self.next()? {
            current.blocks = current.blocks.saturating_add(1);
            let tid = current.tid;
            let header = RawHeader::read(&block).filter(|header| header.tid() == tid);
            let is_read = match header.map(|header| header.h_blocktype.get()) {
                Some(kind::DESCRIPTOR) => self.scan_descriptor(number, &block, &mut current)?,
                Some(kind::REVOKE) => {
                    current.note(self.tail_damage(number, "revoke block", &block));
                    true
                }
                Some(kind::COMMIT) => {
                    let damage = self.crc32_damage(number, &block, current.crc32);
                    // The sum covers no block of a transaction that only revokes. debugfs writes
                    // another one there, and e2fsck ends the log at it.
                    if damage.is_some() && current.crc32 == NO_BLOCKS {
                        return Ok(End { tid, damage: None });
                    }
                    current.note(damage);
                    current.note(self.commit_damage(number, &block));
                    let time = commit_time(&block);
                    if time < last_time && current.damage.is_some() {
                        return Ok(End { tid, damage: None });
                    }
                    if current.damage.is_some() && !unordered {
                        return Ok(End { tid, damage: current.damage });
                    }
                    if current.damage.is_none() {
                        (current, last_time) = (Current::new(tid.next(), self.position()), time);
                        continue;
                    }
                    false
                }
                _ => {
                    current.note(Some(current.lost(number, &block)));
                    false
                }
            };
            if !is_read {
                break;
            }
        }
        let (tid, damage) = (current.tid, current.damage.take());
        let damage = damage.filter(|_| self.is_committed(&current, last_time));
        Ok(End { tid, damage })
    }

    /// False if the log has no more blocks.
    fn scan_descriptor(
        &mut self,
        number: u32,
        block: &[u8],
        current: &mut Current,
    ) -> Result<bool> {
        current.note(self.tail_damage(number, "descriptor", block));
        self.add_crc32(current, block);
        for tag in self.tags(block) {
            let Some((number, data)) = self.next()? else { return Ok(false) };
            current.blocks = current.blocks.saturating_add(1);
            self.add_crc32(current, &data);
            let damage = self.data_damage(number, current.tid, &tag, &data);
            current.note(damage);
        }
        Ok(true)
    }

    /// Is there a commit block that proves that the transaction was committed? It has the number of
    /// the transaction or a later one, which takes at least one block each, and is not older than
    /// the last one.
    fn is_committed(&mut self, current: &Current, since: CommitTime) -> bool {
        let window = usize::try_from(SEARCHED).unwrap_or(0).checked_div(self.layout.block_size);
        let window = u32::try_from(window.unwrap_or(0)).unwrap_or(u32::MAX);
        let least = u32::from(self.layout.incompat.contains(Incompat::ASYNC_COMMIT));
        let all = self.blocks().min(current.blocks.saturating_add(window));
        let (mut block, since) = (current.first, since.max((self.area.since, 0)));
        for distance in 0..all {
            // What cannot be read proves nothing.
            let bytes = self.read(block).unwrap_or_default();
            block = self.after(block);
            let Some(header) = RawHeader::read(&bytes) else { continue };
            let ahead = header.tid().0.wrapping_sub(current.tid.0);
            if header.h_blocktype.get() == kind::COMMIT
                && (least..=distance).contains(&ahead)
                && commit_time(&bytes) >= since
                && self.commit_damage(block, &bytes).is_none()
            {
                return true;
            }
        }
        self.has_fast_commits_behind(current.tid)
    }

    fn add_crc32(&self, current: &mut Current, block: &[u8]) {
        current.crc32 = self.crc32_of(current.crc32, block);
    }

    /// The CRC-32 of a transaction with one more block, if it has one.
    pub(super) fn crc32_of(&self, sum: u32, block: &[u8]) -> u32 {
        if self.has_transaction_crc32 { crc32_be(sum, block) } else { sum }
    }

    /// What is wrong with the CRC-32 of a transaction.
    pub(super) fn crc32_damage(&self, block: u32, bytes: &[u8], computed: u32) -> Option<Error> {
        if !self.has_transaction_crc32 || self.layout.tags.has_checksums() {
            return None;
        }
        match transaction_crc32(bytes) {
            TransactionCrc32::Absent => None,
            TransactionCrc32::Stored(stored) if stored == computed => None,
            TransactionCrc32::Stored(stored) => {
                Some(Error::Checksum { block, what: "transaction", stored, computed })
            }
            TransactionCrc32::Malformed => Some(Error::Corrupt {
                block,
                what: "kind of a transaction's checksum",
                value: 0,
                expected: "CRC-32",
            }),
        }
    }

    /// True if blocks of the log have checksums, which are verified.
    pub(super) fn verifies(&self) -> bool {
        self.layout.tags.has_checksums() && !Safeguard::LogChecksum.is_off()
    }

    fn commit_damage(&self, block: u32, bytes: &[u8]) -> Option<Error> {
        if !self.verifies() || self.layout.is_commit_intact(bytes) {
            return None;
        }
        let (stored, computed) = self.layout.commit_checksum(bytes);
        Some(Error::Checksum { block, what: "commit block", stored, computed })
    }

    fn data_damage(&self, block: u32, tid: Tid, tag: &Tag, data: &[u8]) -> Option<Error> {
        if !self.verifies() {
            return None;
        }
        let computed = self.layout.tags.data_checksum(self.layout.seed, tid, data);
        let stored = tag.checksum;
        (stored != computed).then_some(Error::Checksum {
            block,
            what: "logged block",
            stored,
            computed,
        })
    }

    fn tail_damage(&self, block: u32, what: &'static str, bytes: &[u8]) -> Option<Error> {
        if !self.verifies() {
            return None;
        }
        let (stored, computed) = tail_checksum(bytes, self.layout.seed)?;
        (stored != computed).then_some(Error::Checksum { block, what, stored, computed })
    }
}
