//! The journal superblock, in the first block of the journal.

use cairn_base::Tid;
use cairn_base::checksum::crc32c;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Compat, Incompat, RawHeader, kind};
use crate::error::{Error, Result};

/// `journal_superblock_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    header: RawHeader,
    s_blocksize: U32,
    s_maxlen: U32,
    s_first: U32,
    s_sequence: U32,
    s_start: U32,
    s_errno: U32,
    s_feature_compat: U32,
    s_feature_incompat: U32,
    s_feature_ro_compat: U32,
    s_uuid: [u8; 16],
    s_nr_users: U32,
    s_dynsuper: U32,
    s_max_transaction: U32,
    s_max_trans_data: U32,
    s_checksum_type: u8,
    s_padding2: [u8; 3],
    s_num_fc_blks: U32,
    s_head: U32,
    s_padding: [U32; 40],
    s_checksum: U32,
    s_users: [u8; 768],
}

const SIZE: usize = size_of::<RawSuperblock>();
const _: () = assert!(SIZE == 1024);
const CHECKSUM_OFFSET: usize = 0xfc;
/// `s_checksum_type` of crc32c.
const CRC32C: u8 = 4;
/// Fast-commit blocks when `s_num_fc_blks` is zero.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// A log shorter than this is not taken (as Linux does).
pub const MIN_BLOCKS: u32 = 1024;

/// A validated journal superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks of the whole journal.
    pub blocks: u32,
    /// First log block.
    pub first: u32,
    /// Transaction expected at `start`, or the next one to be written if the log is empty.
    pub sequence: Tid,
    /// Oldest block of the log still needed; 0: the log is empty.
    pub start: u32,
    /// Error the journal was aborted with.
    pub errno: u32,
    /// Features one must know to replay.
    pub incompat: Incompat,
    /// Features that can be ignored.
    pub compat: Compat,
}

impl Superblock {
    /// Decodes and validates. `area_blocks` is the length of the journal file.
    ///
    /// # Errors
    /// Impossible values, a wrong checksum, unknown features.
    pub fn decode(block: &[u8], block_size: u32, area_blocks: u64) -> Result<Self> {
        let bad = |what, value: u64, expected| Error::Corrupt { block: 0, what, value, expected };
        let (raw, _) =
            RawSuperblock::read_from_prefix(block).map_err(|_| bad("length", block.len() as u64, "1024 bytes"))?;
        let header =
            RawHeader::read(block).ok_or_else(|| bad("h_magic", u64::from(raw.header.h_magic.get()), "0xc03b3998"))?;
        let version2 = match header.h_blocktype.get() {
            kind::SUPERBLOCK_V2 => true,
            kind::SUPERBLOCK_V1 => false,
            other => return Err(bad("h_blocktype", u64::from(other), "3 or 4")),
        };
        let (compat, incompat) =
            if version2 { (raw.s_feature_compat.get(), raw.s_feature_incompat.get()) } else { (0, 0) };
        let unknown = incompat & !Incompat::all().bits();
        if unknown != 0 {
            return Err(Error::UnknownFeatures { bits: unknown });
        }
        let superblock = Self {
            raw,
            block_size: raw.s_blocksize.get(),
            blocks: raw.s_maxlen.get(),
            first: raw.s_first.get(),
            sequence: Tid(raw.s_sequence.get()),
            start: raw.s_start.get(),
            errno: raw.s_errno.get(),
            incompat: Incompat::from_bits_retain(incompat),
            compat: Compat::from_bits_truncate(compat),
        };
        superblock.validate(block_size, area_blocks)?;
        Ok(superblock)
    }

    fn validate(&self, block_size: u32, area_blocks: u64) -> Result<()> {
        let bad = |what, value: u64, expected| Err(Error::Corrupt { block: 0, what, value, expected });
        if self.block_size != block_size {
            return bad("s_blocksize", u64::from(self.block_size), "the volume's block size");
        }
        if u64::from(self.blocks) > area_blocks || self.blocks < 2 {
            return bad("s_maxlen", u64::from(self.blocks), "the length of the journal");
        }
        if self.first == 0 || self.first >= self.blocks {
            return bad("s_first", u64::from(self.first), "a block of the journal");
        }
        if self.fast_commit_blocks() >= self.blocks - self.first {
            return bad("s_num_fc_blks", u64::from(self.fast_commit_blocks()), "less than the log");
        }
        if self.start != 0 && !(self.first..self.end()).contains(&self.start) {
            return bad("s_start", u64::from(self.start), "a block of the log");
        }
        if self.incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3) {
            return bad("s_feature_incompat", u64::from(self.incompat.bits()), "one kind of checksum");
        }
        if self.has_checksums() {
            if self.raw.s_checksum_type != CRC32C {
                return bad("s_checksum_type", u64::from(self.raw.s_checksum_type), "4 (crc32c)");
            }
            let (stored, computed) = (self.raw.s_checksum.get(), checksum(&self.raw));
            if stored != computed {
                return Err(Error::Checksum { block: 0, what: "superblock", stored, computed });
            }
        }
        Ok(())
    }

    /// The bytes, with checksum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = self.raw;
        raw.s_sequence = self.sequence.0.into();
        raw.s_start = self.start.into();
        raw.s_errno = self.errno.into();
        raw.s_feature_compat = self.compat.bits().into();
        raw.s_feature_incompat = self.incompat.bits().into();
        if self.has_checksums() {
            raw.s_checksum_type = CRC32C;
            raw.s_checksum = 0.into();
            raw.s_checksum = checksum(&raw).into();
        }
        raw.as_bytes().to_vec()
    }

    /// True for both checksum layouts that cover every block.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3)
    }

    /// Seed of the log's checksums.
    #[must_use]
    pub fn seed(&self) -> u32 {
        crc32c(!0, &self.raw.s_uuid)
    }

    /// The journal's UUID, as descriptor tags carry it.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Blocks set aside behind the log for fast commits.
    #[must_use]
    pub fn fast_commit_blocks(&self) -> u32 {
        match (self.incompat.contains(Incompat::FAST_COMMIT), self.raw.s_num_fc_blks.get()) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        }
    }

    /// Block after the log's last.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.blocks.saturating_sub(self.fast_commit_blocks())
    }
}

fn checksum(raw: &RawSuperblock) -> u32 {
    let bytes = raw.as_bytes();
    let after = crc32c(!0, bytes.get(..CHECKSUM_OFFSET).unwrap_or_default());
    crc32c(crc32c(after, &[0; 4]), bytes.get(CHECKSUM_OFFSET + 4..).unwrap_or_default())
}
