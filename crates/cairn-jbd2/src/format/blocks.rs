//! Descriptor, revoke and commit blocks.

use std::time::Duration;

use cairn_base::checksum::crc32c;
use cairn_base::{Pba, Tid, one_bit};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::superblock::Superblock;
use super::tags::{Tag, TagLayout, UUID, flag, split};
use super::{HEADER, Incompat, RawHeader, kind};

/// `jbd2_journal_revoke_header_t`. The records follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRevokeHeader {
    header: RawHeader,
    /// Bytes used, with this header.
    r_count: U32,
}
const REVOKE_HEADER: usize = size_of::<RawRevokeHeader>();
const _: () = assert!(REVOKE_HEADER == 16);

/// `struct commit_header`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCommit {
    header: RawHeader,
    h_chksum_type: u8,
    h_chksum_size: u8,
    h_padding: [u8; 2],
    h_chksum: [U32; 8],
    h_commit_sec: U64,
    h_commit_nsec: U32,
}
const _: () = assert!(size_of::<RawCommit>() == 60);
/// Bytes of `h_chksum[0]` in a commit block.
const COMMIT_CHECKSUM: std::ops::Range<usize> = 16..20;

/// `h_chksum_type` of the checksum that `Compat::CHECKSUM` asks for.
const CRC32: u8 = 1;

/// When a transaction was committed: seconds and nanoseconds since 1970.
pub(crate) type CommitTime = (u64, u32);

/// What a commit block says about the CRC-32 of its transaction (`Compat::CHECKSUM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionCrc32 {
    /// The block says that it has none.
    Absent,
    /// This value.
    Stored(u32),
    /// The checksum's type or size is impossible.
    Malformed,
}

/// Checksum of a descriptor or revoke block without its last four bytes.
fn body_checksum(body: &[u8], seed: u32) -> u32 {
    crc32c(crc32c(seed, body), &[0; 4])
}

/// Stored and computed checksum of a descriptor or revoke block.
pub(crate) fn tail_checksum(block: &[u8], seed: u32) -> Option<(u32, u32)> {
    let (body, stored) = block.split_last_chunk::<4>()?;
    Some((u32::from_be_bytes(*stored), body_checksum(body, seed)))
}

/// Corrects one wrong bit of a descriptor or revoke block. False if more is wrong.
pub(crate) fn correct_tail(block: &mut [u8], seed: u32) -> bool {
    let Some((stored, computed)) = tail_checksum(block, seed) else { return false };
    let wrong = one_bit::find(block.len(), stored, computed);
    let Some((body, tail)) = block.split_last_chunk_mut::<4>() else { return false };
    let is_corrected = wrong.is_some_and(|wrong| one_bit::correct(body, wrong));
    if is_corrected {
        *tail = body_checksum(body, seed).to_be_bytes();
    }
    is_corrected
}

/// The form of the blocks in one journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLayout {
    /// Bytes of a block.
    pub(crate) block_size: usize,
    /// Form of the tags.
    pub(crate) tags: TagLayout,
    /// Features.
    pub(crate) incompat: Incompat,
    /// Seed of the checksums.
    pub(crate) seed: u32,
    /// UUID after the first tag.
    uuid: [u8; UUID],
}

impl BlockLayout {
    /// The form that a journal's superblock asks for.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        Self {
            block_size: usize::try_from(superblock.block_size).unwrap_or(usize::MAX),
            tags: TagLayout::new(superblock.incompat),
            incompat: superblock.incompat,
            seed: superblock.seed(),
            uuid: superblock.uuid(),
        }
    }

    /// Items of `each` bytes that fit a block with a header of `header` bytes.
    fn capacity(&self, header: usize, each: usize) -> usize {
        let free = self.block_size.saturating_sub(header).saturating_sub(self.tags.tail());
        free.checked_div(each).unwrap_or(0)
    }

    /// Tags that fit a descriptor block.
    pub(crate) fn tags_per_block(&self) -> usize {
        self.capacity(HEADER.saturating_add(UUID), self.tags.size())
    }

    /// Revoke records that fit a revoke block.
    pub(crate) fn revokes_per_block(&self) -> usize {
        self.capacity(REVOKE_HEADER, self.revoke_size())
    }

    fn has_wide_addresses(&self) -> bool {
        self.incompat.contains(Incompat::BITS_64)
    }

    fn revoke_size(&self) -> usize {
        if self.has_wide_addresses() { 8 } else { 4 }
    }

    /// A descriptor block with these tags. Sets `SAME_UUID` and `LAST`.
    ///
    /// # Panics
    /// If there are no tags, or more than fit.
    pub(crate) fn descriptor(&self, tid: Tid, tags: &[Tag]) -> Vec<u8> {
        let fits = (1..=self.tags_per_block()).contains(&tags.len());
        assert!(fits, "{} tags in a descriptor block", tags.len());
        let mut block = Vec::with_capacity(self.block_size);
        block.extend_from_slice(RawHeader::new(kind::DESCRIPTOR, tid).as_bytes());
        let last = tags.len().saturating_sub(1);
        for (index, tag) in tags.iter().enumerate() {
            let same_uuid = if index > 0 { flag::SAME_UUID } else { 0 };
            let end = if index == last { flag::LAST } else { 0 };
            let tag = Tag { flags: tag.flags | same_uuid | end, ..*tag };
            self.tags.encode(&tag, &self.uuid, &mut block);
        }
        self.finish(block)
    }

    /// A revoke block with these records.
    ///
    /// # Panics
    /// If there are more records than fit, or an address has more than 32 bits and the journal
    /// lacks `BITS_64`.
    pub(crate) fn revoke(&self, tid: Tid, records: &[Pba]) -> Vec<u8> {
        let fits = records.len() <= self.revokes_per_block();
        assert!(fits, "{} records in a revoke block", records.len());
        let used = records.len().saturating_mul(self.revoke_size()).saturating_add(REVOKE_HEADER);
        let r_count = u32::try_from(used).unwrap_or(u32::MAX).into();
        let raw = RawRevokeHeader { header: RawHeader::new(kind::REVOKE, tid), r_count };
        let mut block = Vec::with_capacity(self.block_size);
        block.extend_from_slice(raw.as_bytes());
        for pba in records {
            let (high, low) = split(*pba);
            if self.has_wide_addresses() {
                block.extend_from_slice(high.as_bytes());
            } else {
                assert!(high == U32::ZERO, "block {pba} in a 32-bit journal");
            }
            block.extend_from_slice(low.as_bytes());
        }
        self.finish(block)
    }

    /// Pads a descriptor or revoke block and writes its checksum.
    fn finish(&self, mut block: Vec<u8>) -> Vec<u8> {
        block.resize(self.block_size, 0);
        if self.tags.has_checksums()
            && let Some((body, tail)) = block.split_last_chunk_mut::<4>()
        {
            *tail = body_checksum(body, self.seed).to_be_bytes();
        }
        block
    }

    /// The records of a revoke block. `None` if `r_count` is impossible.
    pub(crate) fn revoked(&self, block: &[u8]) -> Option<Vec<Pba>> {
        let (raw, _) = RawRevokeHeader::read_from_prefix(block).ok()?;
        let end = usize::try_from(raw.r_count.get()).ok()?;
        if end > self.block_size.saturating_sub(self.tags.tail()) {
            return None;
        }
        let records = block.get(REVOKE_HEADER..end)?;
        Some(if self.has_wide_addresses() {
            records.as_chunks().0.iter().map(|raw| Pba(u64::from_be_bytes(*raw))).collect()
        } else {
            records.as_chunks().0.iter().map(|raw| Pba(u32::from_be_bytes(*raw).into())).collect()
        })
    }

    /// A commit block. `crc32` is the checksum of the transaction's blocks (`Compat::CHECKSUM`).
    pub(crate) fn commit(&self, tid: Tid, now: Duration, crc32: Option<u32>) -> Vec<u8> {
        let mut raw = RawCommit {
            header: RawHeader::new(kind::COMMIT, tid),
            h_chksum_type: 0,
            h_chksum_size: 0,
            h_padding: [0; 2],
            h_chksum: [U32::ZERO; 8],
            h_commit_sec: now.as_secs().into(),
            h_commit_nsec: now.subsec_nanos().into(),
        };
        if self.tags.has_checksums() {
            raw.h_chksum[0] = self.commit_sum(raw.as_bytes()).into();
        } else if let Some(sum) = crc32 {
            (raw.h_chksum_type, raw.h_chksum_size) = (CRC32, 4);
            raw.h_chksum[0] = sum.into();
        }
        let mut block = Vec::with_capacity(self.block_size);
        block.extend_from_slice(raw.as_bytes());
        block.resize(self.block_size, 0);
        block
    }

    /// True if the checksum of a commit block covers the whole block, or its structure followed by
    /// zeros. A device with small sectors may have kept what stood in the rest of the block.
    pub(crate) fn is_commit_intact(&self, block: &[u8]) -> bool {
        let (stored, computed) = self.commit_checksum(block);
        let structure = block.get(..size_of::<RawCommit>()).unwrap_or(block);
        stored == computed || stored == self.commit_sum(structure)
    }

    /// Stored and computed checksum of a commit block.
    pub(crate) fn commit_checksum(&self, block: &[u8]) -> (u32, u32) {
        let stored = read_commit(block).map_or(0, |raw| raw.h_chksum[0].get());
        (stored, self.commit_sum(block))
    }

    /// Corrects one wrong bit of a commit block. False if more is wrong.
    pub(crate) fn correct_commit(&self, block: &mut [u8]) -> bool {
        let (stored, computed) = self.commit_checksum(block);
        let wrong = one_bit::find(block.len(), stored, computed);
        if !wrong.is_some_and(|wrong| one_bit::correct(block, wrong)) {
            return false;
        }
        let sum = self.commit_sum(block).to_be_bytes();
        block.get_mut(COMMIT_CHECKSUM).is_some_and(|place| {
            place.copy_from_slice(&sum);
            true
        })
    }

    /// Checksum of a commit block that begins with `bytes` and has zeros behind them.
    fn commit_sum(&self, bytes: &[u8]) -> u32 {
        let bytes = bytes.get(..self.block_size).unwrap_or(bytes);
        let head = bytes.get(..COMMIT_CHECKSUM.start).unwrap_or(bytes);
        let rest = bytes.get(COMMIT_CHECKSUM.end..).unwrap_or(&[]);
        let stored = bytes.len().saturating_sub(head.len()).saturating_sub(rest.len());
        let mut sum = crc32c_zeros(crc32c(self.seed, head), stored);
        sum = crc32c(sum, rest);
        crc32c_zeros(sum, self.block_size.saturating_sub(bytes.len()))
    }
}

/// Goes on with a checksum over `count` zeros.
fn crc32c_zeros(mut sum: u32, mut count: usize) -> u32 {
    const ZEROS: [u8; 512] = [0; 512];
    while let Some(left) = count.checked_sub(ZEROS.len()) {
        sum = crc32c(sum, &ZEROS);
        count = left;
    }
    crc32c(sum, ZEROS.get(..count).unwrap_or(&ZEROS))
}

fn read_commit(block: &[u8]) -> Option<RawCommit> {
    RawCommit::read_from_prefix(block).ok().map(|(raw, _)| raw)
}

/// When a commit block was written.
pub(crate) fn commit_time(block: &[u8]) -> CommitTime {
    read_commit(block).map_or((0, 0), |raw| (raw.h_commit_sec.get(), raw.h_commit_nsec.get()))
}

/// The CRC-32 in a commit block.
pub(crate) fn transaction_crc32(block: &[u8]) -> TransactionCrc32 {
    let Some(raw) = read_commit(block) else { return TransactionCrc32::Malformed };
    match (raw.h_chksum_type, raw.h_chksum_size, raw.h_chksum[0].get()) {
        (0, 0, 0) => TransactionCrc32::Absent,
        (CRC32, 4, stored) => TransactionCrc32::Stored(stored),
        _ => TransactionCrc32::Malformed,
    }
}
