//! Descriptor, revoke and commit blocks.

use std::time::Duration;

use cairn_base::checksum::crc32c;
use cairn_base::{Pba, Tid};
use zerocopy::IntoBytes;

use super::superblock::Superblock;
use super::tags::{Tag, TagLayout, flag};
use super::{HEADER, Incompat, RawHeader, kind};

/// Offsets in a commit block, after the header.
mod commit {
    /// `h_chksum_type`.
    pub const CHECKSUM_TYPE: usize = 12;
    /// `h_chksum_size`.
    pub const CHECKSUM_SIZE: usize = 13;
    /// `h_chksum[0]`.
    pub const CHECKSUM: usize = 16;
    /// `h_commit_sec`.
    pub const SECONDS: usize = 48;
    /// `h_commit_nsec`.
    pub const NANOSECONDS: usize = 56;
    /// Bytes of the structure.
    pub const END: usize = 60;
}

/// `h_chksum_type` of the legacy checksum.
const LEGACY_CRC32: u8 = 1;

/// Writes the block's checksum into its last four bytes.
fn seal_tail(block: &mut [u8], seed: u32) {
    let tail = block.len() - 4;
    block[tail..].fill(0);
    let sum = crc32c(seed, block);
    block[tail..].copy_from_slice(&sum.to_be_bytes());
}

/// Stored and computed checksum of a descriptor or revoke block.
#[must_use]
pub fn tail_checksum(block: &[u8], seed: u32) -> Option<(u32, u32)> {
    let (body, stored) = block.split_last_chunk::<4>()?;
    Some((u32::from_be_bytes(*stored), crc32c(crc32c(seed, body), &[0; 4])))
}

/// How the blocks of one journal look.
#[derive(Clone, Copy, Debug)]
pub struct BlockLayout {
    /// Bytes a block.
    pub block_size: usize,
    /// Tags.
    pub tags: TagLayout,
    /// Features.
    pub incompat: Incompat,
    /// Checksum seed.
    pub seed: u32,
    /// UUID in the first tag.
    pub uuid: [u8; 16],
}

impl BlockLayout {
    /// As a journal's superblock says.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            block_size: superblock.block_size as usize,
            tags: TagLayout::new(superblock.incompat),
            incompat: superblock.incompat,
            seed: superblock.seed(),
            uuid: superblock.uuid(),
        }
    }

    /// Tags that fit a descriptor block.
    #[must_use]
    pub fn tags_per_block(&self) -> usize {
        (self.block_size - HEADER - 16 - self.tags.tail()) / self.tags.size()
    }

    /// Bytes of a revoke record.
    #[must_use]
    pub fn revoke_size(&self) -> usize {
        if self.incompat.contains(Incompat::BITS_64) { 8 } else { 4 }
    }

    /// Revoke records that fit a block.
    #[must_use]
    pub fn revokes_per_block(&self) -> usize {
        (self.block_size - HEADER - 4 - self.tags.tail()) / self.revoke_size()
    }

    /// A descriptor block of these tags; the last one gets its mark here.
    ///
    /// # Panics
    /// If there are none, or more than fit.
    #[must_use]
    pub fn descriptor(&self, tid: Tid, tags: &[Tag]) -> Vec<u8> {
        assert!(!tags.is_empty() && tags.len() <= self.tags_per_block(), "{} tags in a descriptor", tags.len());
        let mut block = Vec::with_capacity(self.block_size);
        block.extend_from_slice(RawHeader::new(kind::DESCRIPTOR, tid).as_bytes());
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = tag.flags;
            if index > 0 {
                flags |= flag::SAME_UUID;
            }
            if index + 1 == tags.len() {
                flags |= flag::LAST;
            }
            self.tags.encode(&Tag { flags, ..*tag }, &self.uuid, &mut block);
        }
        self.finish(block)
    }

    /// A revoke block.
    ///
    /// # Panics
    /// If there are more records than fit, or an address does not fit.
    #[must_use]
    pub fn revoke(&self, tid: Tid, records: &[Pba]) -> Vec<u8> {
        assert!(records.len() <= self.revokes_per_block(), "{} records in a revoke block", records.len());
        let mut block = Vec::with_capacity(self.block_size);
        block.extend_from_slice(RawHeader::new(kind::REVOKE, tid).as_bytes());
        let bytes = HEADER + 4 + records.len() * self.revoke_size();
        block.extend_from_slice(&u32::try_from(bytes).expect("a block is smaller than 4 GiB").to_be_bytes());
        for pba in records {
            if self.revoke_size() == 8 {
                block.extend_from_slice(&pba.get().to_be_bytes());
            } else {
                block.extend_from_slice(&u32::try_from(pba.get()).expect("address in a 32-bit journal").to_be_bytes());
            }
        }
        self.finish(block)
    }

    fn finish(&self, mut block: Vec<u8>) -> Vec<u8> {
        block.resize(self.block_size, 0);
        if self.tags.tail() != 0 {
            seal_tail(&mut block, self.seed);
        }
        block
    }

    /// The records of a revoke block, or the offending length.
    ///
    /// # Errors
    /// `r_count` beyond the block.
    pub fn revoked(&self, block: &[u8]) -> Result<Vec<Pba>, u64> {
        let count =
            block.get(HEADER..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |raw| u32::from_be_bytes(*raw));
        let end = usize::try_from(count).map_err(|_| u64::from(count))?;
        if end > self.block_size - self.tags.tail() || end < HEADER + 4 {
            return Err(u64::from(count));
        }
        let records = block.get(HEADER + 4..end).unwrap_or_default();
        Ok(if self.revoke_size() == 8 {
            records.as_chunks::<8>().0.iter().map(|raw| Pba(u64::from_be_bytes(*raw))).collect()
        } else {
            records.as_chunks::<4>().0.iter().map(|raw| Pba(u64::from(u32::from_be_bytes(*raw)))).collect()
        })
    }

    /// A commit block. `legacy` is the checksum over the transaction's blocks for journals of the first checksum kind.
    #[must_use]
    pub fn commit(&self, tid: Tid, now: Duration, legacy: Option<u32>) -> Vec<u8> {
        let mut block = vec![0; self.block_size];
        block[..HEADER].copy_from_slice(RawHeader::new(kind::COMMIT, tid).as_bytes());
        block[commit::SECONDS..commit::SECONDS + 8].copy_from_slice(&now.as_secs().to_be_bytes());
        block[commit::NANOSECONDS..commit::NANOSECONDS + 4].copy_from_slice(&now.subsec_nanos().to_be_bytes());
        if self.tags.tail() != 0 {
            let sum = crc32c(self.seed, &block);
            block[commit::CHECKSUM..commit::CHECKSUM + 4].copy_from_slice(&sum.to_be_bytes());
        } else if let Some(sum) = legacy {
            block[commit::CHECKSUM_TYPE] = LEGACY_CRC32;
            block[commit::CHECKSUM_SIZE] = 4;
            block[commit::CHECKSUM..commit::CHECKSUM + 4].copy_from_slice(&sum.to_be_bytes());
        }
        block
    }

    /// True if a commit block has its checksum, over the whole block or over its first sector (the rest being what was there
    /// before: a device with small sectors had not come further).
    #[must_use]
    pub fn commit_is_whole(&self, block: &[u8]) -> bool {
        let (stored, computed) = self.commit_checksum(block);
        stored == computed || stored == self.commit_sum(block, commit::END)
    }

    /// Stored and computed checksum of a commit block.
    #[must_use]
    pub fn commit_checksum(&self, block: &[u8]) -> (u32, u32) {
        let stored = block.get(commit::CHECKSUM..).and_then(<[u8]>::first_chunk::<4>);
        (stored.map_or(0, |raw| u32::from_be_bytes(*raw)), self.commit_sum(block, self.block_size))
    }

    /// The checksum of a commit block of which only the first bytes are known, the rest being zeros.
    fn commit_sum(&self, block: &[u8], known: usize) -> u32 {
        let mut whole = vec![0; self.block_size];
        for (to, from) in whole.iter_mut().zip(block.iter().take(known)) {
            *to = *from;
        }
        whole[commit::CHECKSUM..commit::CHECKSUM + 4].fill(0);
        crc32c(self.seed, &whole)
    }

    /// When the transaction was committed, in nanoseconds.
    #[must_use]
    pub fn commit_time(&self, block: &[u8]) -> u128 {
        let seconds = block.get(commit::SECONDS..).and_then(<[u8]>::first_chunk::<8>);
        let nanoseconds = block.get(commit::NANOSECONDS..).and_then(<[u8]>::first_chunk::<4>);
        u128::from(seconds.map_or(0, |raw| u64::from_be_bytes(*raw))) * 1_000_000_000
            + u128::from(nanoseconds.map_or(0, |raw| u32::from_be_bytes(*raw)))
    }

    /// The legacy checksum in a commit block: `None` if the block says that it has none, `Some(None)` if what it says is
    /// neither.
    #[must_use]
    pub fn legacy_checksum(&self, block: &[u8]) -> Option<Option<u32>> {
        let stored = block.get(commit::CHECKSUM..).and_then(<[u8]>::first_chunk::<4>);
        let kind = (block.get(commit::CHECKSUM_TYPE).copied(), block.get(commit::CHECKSUM_SIZE).copied());
        match (kind, stored.map(|raw| u32::from_be_bytes(*raw))) {
            ((Some(0), Some(0)), Some(0)) => None,
            ((Some(LEGACY_CRC32), Some(4)), stored) => Some(stored),
            _ => Some(None),
        }
    }
}
