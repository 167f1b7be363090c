//! The journal superblock, in the first block of the journal.

use std::ops::Range;

use cairn_base::checksum::crc32c;
use cairn_base::{Tid, one_bit};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Compat, Incompat, RawHeader, kind};
use crate::error::{Error, Result};

/// `journal_superblock_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
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

const _: () = assert!(size_of::<RawSuperblock>() == 1024);
/// `s_checksum_type` of crc32c.
const CRC32C: u8 = 4;
/// `s_first` of a journal in a file.
const FIRST: u32 = 1;
/// Blocks of the fast-commit area if `s_num_fc_blks` is zero.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// Fewest blocks of a log that Linux accepts (`JBD2_MIN_JOURNAL_BLOCKS`).
///
/// A transaction may take a quarter of the log, and the largest operations of ext4 change some
/// hundred blocks in one transaction.
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;

/// A validated journal superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    /// Bytes of a block (`s_blocksize`).
    pub(crate) block_size: u32,
    /// Blocks of the whole journal (`s_maxlen`).
    pub blocks: u32,
    /// First block of the log (`s_first`).
    pub first: u32,
    /// Transaction at `start`; if the log is empty, the next transaction (`s_sequence`).
    pub sequence: Tid,
    /// Tail of the log, which recovery starts from; 0 if the log is empty (`s_start`).
    pub start: u32,
    /// Error that the journal was aborted with (`s_errno`).
    pub errno: u32,
    /// Features that a program must know to replay the log (`s_feature_incompat`).
    pub incompat: Incompat,
    /// Features that a program may ignore (`s_feature_compat`).
    pub(crate) compat: Compat,
    /// Volumes that have their journal here (`s_nr_users`).
    pub users: u32,
}

impl Superblock {
    /// Decodes and validates. `area_blocks` is the length of the journal file.
    ///
    /// # Errors
    /// A value is impossible, the checksum is wrong, or a feature is unknown.
    pub(crate) fn decode(block: &[u8], block_size: u32, area_blocks: u64) -> Result<Self> {
        let bad = |what, value: u64, expected| Error::Corrupt { block: 0, what, value, expected };
        let length = u64::try_from(block.len()).unwrap_or(u64::MAX);
        let (raw, _) = RawSuperblock::read_from_prefix(block)
            .map_err(|_| bad("length", length, "1024 bytes"))?;
        let header = RawHeader::read(block)
            .ok_or_else(|| bad("h_magic", u64::from(raw.header.h_magic.get()), "0xc03b3998"))?;
        let version2 = match header.h_blocktype.get() {
            kind::SUPERBLOCK_V2 => true,
            kind::SUPERBLOCK_V1 => false,
            other => return Err(bad("h_blocktype", u64::from(other), "3 or 4")),
        };
        let (compat, incompat) = if version2 {
            (raw.s_feature_compat.get(), raw.s_feature_incompat.get())
        } else {
            (0, 0)
        };
        let ro_compat = if version2 { raw.s_feature_ro_compat.get() } else { 0 };
        for (field, bits) in [
            ("s_feature_incompat", incompat & !Incompat::all().bits()),
            // There is none so far. A journal is always written, so all of them must be known.
            ("s_feature_ro_compat", ro_compat),
        ] {
            if bits != 0 {
                return Err(Error::UnknownFeatures { field, bits });
            }
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
            users: if version2 { raw.s_nr_users.get() } else { 1 },
        };
        superblock.validate(block_size, area_blocks)?;
        Ok(superblock)
    }

    fn validate(&self, block_size: u32, area_blocks: u64) -> Result<()> {
        let bad =
            |what, value: u64, expected| Err(Error::Corrupt { block: 0, what, value, expected });
        if self.block_size != block_size {
            return bad("s_blocksize", u64::from(self.block_size), "the volume's block size");
        }
        if u64::from(self.blocks) > area_blocks || self.blocks < 2 {
            return bad("s_maxlen", u64::from(self.blocks), "the length of the journal");
        }
        if self.first == 0 || self.first >= self.blocks {
            return bad("s_first", u64::from(self.first), "a block of the journal");
        }
        // A log in use goes round through the first block.
        if self.start != 0 && self.first != FIRST {
            return bad("s_first", u64::from(self.first), "1, as in every journal in a file");
        }
        if self.fast_commit_blocks() >= self.blocks.saturating_sub(self.first) {
            return bad("s_num_fc_blks", u64::from(self.fast_commit_blocks()), "less than the log");
        }
        if self.start != 0 && !(self.first..self.end()).contains(&self.start) {
            return bad("s_start", u64::from(self.start), "a block of the log");
        }
        if self.incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3) {
            return bad(
                "s_feature_incompat",
                u64::from(self.incompat.bits()),
                "one kind of checksum",
            );
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

    /// The structure's bytes, with their checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut raw = self.raw;
        raw.s_first = self.first.into();
        raw.s_sequence = self.sequence.0.into();
        raw.s_start = self.start.into();
        raw.s_errno = self.errno.into();
        raw.s_feature_compat = self.compat.bits().into();
        raw.s_feature_incompat = self.incompat.bits().into();
        if self.has_checksums() {
            raw.s_checksum_type = CRC32C;
            raw.s_checksum = checksum(&raw).into();
        }
        raw.as_bytes().to_vec()
    }

    /// The superblock with the fields right that readers pass over and Linux does not mount: a
    /// kind of checksum beside another, and an empty log that begins elsewhere than those of all
    /// files. `None` if there are none.
    pub(crate) fn mountable(&self) -> Option<(Self, WrongField)> {
        let mut right = self.clone();
        if self.has_checksums() && self.compat.contains(Compat::CHECKSUM) {
            right.compat.remove(Compat::CHECKSUM);
            let (stored, computed) = (self.compat.bits(), right.compat.bits());
            return Some((right, WrongField { field: "s_feature_compat", stored, computed }));
        }
        if self.start == 0 && self.first != FIRST {
            right.first = FIRST;
            let (stored, computed) = (self.first, FIRST);
            return Some((right, WrongField { field: "s_first", stored, computed }));
        }
        None
    }

    /// True if every block of the log has a checksum (version 2 or 3).
    pub(crate) fn has_checksums(&self) -> bool {
        self.incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3)
    }

    /// Seed of the log's checksums.
    pub(crate) fn seed(&self) -> u32 {
        crc32c(!0, &self.raw.s_uuid)
    }

    /// The journal's UUID.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Blocks of the fast-commit area behind the log (`s_num_fc_blks`).
    pub(crate) fn fast_commit_blocks(&self) -> u32 {
        match (self.incompat.contains(Incompat::FAST_COMMIT), self.raw.s_num_fc_blks.get()) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        }
    }

    /// The blocks of the fast-commit area that have records: all but the first.
    pub(crate) fn fast_commit_area(&self) -> Range<u32> {
        self.end().saturating_add(1)..self.blocks
    }

    /// True if Linux can write fast commits: their area leaves it the smallest log.
    #[must_use]
    pub fn has_room_for_fast_commits(&self) -> bool {
        let wish = match self.raw.s_num_fc_blks.get() {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            blocks => blocks,
        };
        self.blocks.checked_sub(wish).is_some_and(|left| left >= MIN_JOURNAL_BLOCKS)
    }

    /// Block after the last one of the log, where the fast-commit area begins.
    #[must_use]
    pub fn end_of_log(&self) -> u32 {
        self.end()
    }

    /// Block after the last one of the log (jbd2's `j_last`).
    pub(crate) fn end(&self) -> u32 {
        self.blocks.saturating_sub(self.fast_commit_blocks())
    }
}

/// A field of a superblock that is otherwise valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongField {
    /// Its name.
    pub field: &'static str,
    /// Its value.
    pub stored: u32,
    /// The right one.
    pub computed: u32,
}

/// What was wrong in a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// One bit, which the checksum tells.
    Bit,
    /// Fields that every journal in a file has alike, or that its file tells.
    Fields,
}

/// An invalid superblock with what is wrong corrected. `None` if nothing proves what it was.
pub(crate) fn corrected(
    block: &[u8],
    block_size: u32,
    area_blocks: u64,
) -> Option<(Vec<u8>, Correction)> {
    let (raw, rest) = RawSuperblock::read_from_prefix(block).ok()?;
    let (found, correction) = match with_bit(raw) {
        Some(found) => (found, Correction::Bit),
        None => (with_fields(raw, block_size, area_blocks)?, Correction::Fields),
    };
    let mut bytes = found.as_bytes().to_vec();
    bytes.extend_from_slice(rest);
    let valid = Superblock::decode(&bytes, block_size, area_blocks).ok()?;
    // Without a checksum, an empty log may be one whose tail is damaged, too.
    let is_proved = valid.has_checksums() || valid.start != 0;
    is_proved.then_some((bytes, correction))
}

/// Without the one wrong bit by which the checksum does not hold.
fn with_bit(mut raw: RawSuperblock) -> Option<RawSuperblock> {
    let (stored, computed) = (raw.s_checksum.get(), checksum(&raw));
    if stored == 0 || stored == computed {
        return None;
    }
    let wrong = one_bit::find(size_of::<RawSuperblock>(), stored, computed)?;
    if !one_bit::correct(raw.as_mut_bytes(), wrong) {
        return None;
    }
    raw.s_checksum = checksum(&raw).into();
    Some(raw)
}

/// With the fields of a journal in a file. If there is a checksum, it must hold then.
fn with_fields(raw: RawSuperblock, block_size: u32, area_blocks: u64) -> Option<RawSuperblock> {
    let length = U32::new(u32::try_from(area_blocks).unwrap_or(u32::MAX));
    let mut usual = raw;
    usual.s_blocksize = block_size.into();
    usual.s_first = FIRST.into();
    if raw.s_checksum.get() == 0 {
        let kinds = [kind::SUPERBLOCK_V1, kind::SUPERBLOCK_V2];
        if !kinds.contains(&raw.header.h_blocktype.get()) {
            usual.header.h_blocktype = kind::SUPERBLOCK_V2.into();
        }
        if u64::from(raw.s_maxlen.get()) > area_blocks || raw.s_maxlen.get() < 2 {
            usual.s_maxlen = length;
        }
        return Some(usual);
    }
    usual.header = RawHeader::new(kind::SUPERBLOCK_V2, Tid(0));
    usual.s_feature_ro_compat = U32::ZERO;
    usual.s_checksum_type = CRC32C;
    let unused = |raw: &mut RawSuperblock| {
        (raw.s_dynsuper, raw.s_max_transaction, raw.s_max_trans_data) = Default::default();
        (raw.s_padding2, raw.s_padding) = ([0; 3], [U32::ZERO; 40]);
        (raw.s_nr_users, raw.s_users) = (1.into(), [0; 768]);
    };
    let variants = [(false, false), (true, false), (false, true), (true, true)];
    let variants = variants.map(|(is_long, is_plain)| {
        let mut other = usual;
        if is_long {
            other.s_maxlen = length;
        }
        if is_plain {
            unused(&mut other);
        }
        other
    });
    variants.into_iter().find(|other| checksum(other) == raw.s_checksum.get())
}

fn checksum(raw: &RawSuperblock) -> u32 {
    let mut raw = *raw;
    raw.s_checksum = U32::ZERO;
    crc32c(!0, raw.as_bytes())
}
