//! The first pass (jbd2's `PASS_SCAN`): finds the end of the log.
//!
//! Damage in a transaction that has a commit block does not come from a power cut. The commit block
//! is written after everything else of its transaction, and its structure lies in one sector.
//! Ending the log at such a transaction would lose changes that were reported as durable, so the
//! pass reports the damage. The commit time tells blocks of an earlier lap of the log apart.

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
    /// CRC-32 of its descriptor and metadata blocks.
    crc32: u32,
    /// The first damage in it.
    damage: Option<Error>,
}

impl Current {
    fn new(tid: Tid) -> Self {
        Self { tid, crc32: !0, damage: None }
    }

    fn note(&mut self, damage: Option<Error>) {
        self.damage = self.damage.take().or(damage);
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
        let mut current = Current::new(self.sequence);
        let mut last_time = CommitTime::default();
        while let Some((number, block)) = self.next()? {
            let tid = current.tid;
            let Some(header) = RawHeader::read(&block).filter(|header| header.tid() == tid) else {
                break;
            };
            match header.h_blocktype.get() {
                kind::DESCRIPTOR => {
                    if !self.scan_descriptor(number, &block, &mut current)? {
                        break;
                    }
                }
                kind::REVOKE => current.note(self.tail_damage(number, "revoke block", &block)),
                kind::COMMIT => {
                    // With this CRC-32 a commit block may reach the medium before its transaction.
                    if !self.is_crc32_good(&block, current.crc32) {
                        break;
                    }
                    current.note(self.commit_damage(number, &block));
                    let time = commit_time(&block);
                    if current.damage.is_some() {
                        let unordered = self.layout.incompat.contains(Incompat::ASYNC_COMMIT);
                        let damage =
                            if unordered || time < last_time { None } else { current.damage };
                        return Ok(End { tid, damage });
                    }
                    (current, last_time) = (Current::new(tid.next()), time);
                }
                _ => break,
            }
        }
        Ok(End { tid: current.tid, damage: None })
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
            self.add_crc32(current, &data);
            let damage = self.data_damage(number, current.tid, &tag, &data);
            current.note(damage);
        }
        Ok(true)
    }

    fn add_crc32(&self, current: &mut Current, block: &[u8]) {
        if self.has_transaction_crc32 {
            current.crc32 = crc32_be(current.crc32, block);
        }
    }

    fn is_crc32_good(&self, block: &[u8], computed: u32) -> bool {
        if !self.has_transaction_crc32 || self.layout.tags.has_checksums() {
            return true;
        }
        match transaction_crc32(block) {
            TransactionCrc32::Absent => true,
            TransactionCrc32::Stored(stored) => stored == computed,
            TransactionCrc32::Malformed => false,
        }
    }

    /// True if blocks of the log have checksums, which are verified.
    fn verifies(&self) -> bool {
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
