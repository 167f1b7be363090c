//! Tags of a descriptor block: the home location of each metadata block that follows in the log.
//!
//! | checksums | bytes |
//! |---|---|
//! | none, 32-bit addresses | 8 (`journal_block_tag_t` without `t_blocknr_high`) |
//! | none, 64-bit addresses | 12 (`journal_block_tag_t`) |
//! | version 2 | 2 more, unused |
//! | version 3 | 16 (`journal_block_tag3_t`) |
//!
//! The journal's 16-byte UUID follows the first tag of a descriptor block, and every other tag
//! that lacks `SAME_UUID`.

use cairn_base::checksum::crc32c;
use cairn_base::{Pba, Tid};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Incompat;

/// `t_flags`.
pub(crate) mod flag {
    /// The block begins with the journal's magic number; the log holds zeros in its place.
    pub(crate) const ESCAPE: u32 = 1;
    /// No UUID follows the tag.
    pub(crate) const SAME_UUID: u32 = 2;
    /// Last tag of the descriptor block.
    pub(crate) const LAST: u32 = 8;
}

/// `journal_block_tag3_t`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag3 {
    t_blocknr: U32,
    t_flags: U32,
    t_blocknr_high: U32,
    t_checksum: U32,
}
const _: () = assert!(size_of::<RawTag3>() == 16);

/// `journal_block_tag_t` up to `t_blocknr_high`, which only journals with `BITS_64` have.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag {
    t_blocknr: U32,
    t_checksum: U16,
    t_flags: U16,
}
const _: () = assert!(size_of::<RawTag>() == 8);

/// One tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Home location of the block.
    pub(crate) pba: Pba,
    /// See [`flag`].
    pub(crate) flags: u32,
    /// Checksum of the block: 32 bits (version 3), the low 16 bits (version 2), or 0.
    pub(crate) checksum: u32,
}

/// The form of the tags in one journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagLayout {
    incompat: Incompat,
}

/// Bytes of the journal's UUID.
pub(crate) const UUID: usize = 16;

impl TagLayout {
    /// The form that these features ask for.
    pub(crate) const fn new(incompat: Incompat) -> Self {
        Self { incompat }
    }

    /// Bytes of a tag without its UUID.
    pub(crate) fn size(self) -> usize {
        let has = |feature| self.incompat.contains(feature);
        match (has(Incompat::CSUM_V3), has(Incompat::CSUM_V2), has(Incompat::BITS_64)) {
            (true, _, _) => 16,
            (false, true, true) => 14,
            (false, true, false) => 10,
            (false, false, true) => 12,
            (false, false, false) => 8,
        }
    }

    /// Bytes of the checksum at the end of descriptor and revoke blocks.
    pub(crate) fn tail(self) -> usize {
        if self.has_checksums() { 4 } else { 0 }
    }

    /// True if every block of the log has a checksum.
    pub(crate) fn has_checksums(self) -> bool {
        self.incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3)
    }

    /// True if the checksum of a copy has 32 bits.
    pub(crate) fn has_whole_checksums(self) -> bool {
        self.incompat.contains(Incompat::CSUM_V3)
    }

    /// The tag at the start of `bytes`, and its length with the UUID. `None` if it does not fit.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<(Tag, usize)> {
        let size = self.size();
        let raw = bytes.get(..size)?;
        let tag = if self.incompat.contains(Incompat::CSUM_V3) {
            let raw = RawTag3::read_from_bytes(raw).ok()?;
            let pba = self.address(raw.t_blocknr_high, raw.t_blocknr);
            Tag { pba, flags: raw.t_flags.get(), checksum: raw.t_checksum.get() }
        } else {
            let (raw, rest) = RawTag::read_from_prefix(raw).ok()?;
            let high = U32::read_from_prefix(rest).map_or(U32::ZERO, |(high, _)| high);
            let pba = self.address(high, raw.t_blocknr);
            Tag { pba, flags: raw.t_flags.get().into(), checksum: raw.t_checksum.get().into() }
        };
        let uuid = if tag.flags & flag::SAME_UUID == 0 { UUID } else { 0 };
        let length = size.checked_add(uuid)?;
        bytes.get(..length)?;
        Some((tag, length))
    }

    fn address(self, high: U32, low: U32) -> Pba {
        let high = if self.incompat.contains(Incompat::BITS_64) { high.get() } else { 0 };
        Pba(u64::from(high) << 32 | u64::from(low.get()))
    }

    /// Appends a tag, and the UUID if the flags ask for it.
    ///
    /// # Panics
    /// If the address has more than 32 bits and the journal lacks `BITS_64`.
    pub(crate) fn encode(self, tag: &Tag, uuid: &[u8; UUID], out: &mut Vec<u8>) {
        let wide = self.incompat.contains(Incompat::BITS_64);
        let (t_blocknr_high, t_blocknr) = split(tag.pba);
        assert!(wide || t_blocknr_high == U32::ZERO, "block {} in a 32-bit journal", tag.pba);
        if self.incompat.contains(Incompat::CSUM_V3) {
            let (t_flags, t_checksum) = (tag.flags.into(), tag.checksum.into());
            let raw = RawTag3 { t_blocknr, t_flags, t_blocknr_high, t_checksum };
            out.extend_from_slice(raw.as_bytes());
        } else {
            let (t_checksum, t_flags) = (low_half(tag.checksum), low_half(tag.flags));
            out.extend_from_slice(RawTag { t_blocknr, t_checksum, t_flags }.as_bytes());
            if wide {
                out.extend_from_slice(t_blocknr_high.as_bytes());
            }
            if self.incompat.contains(Incompat::CSUM_V2) {
                out.extend_from_slice(&[0; 2]);
            }
        }
        if tag.flags & flag::SAME_UUID == 0 {
            out.extend_from_slice(uuid);
        }
    }

    /// Checksum of a block as its tag holds it. `data` is the block as it stands in the log.
    pub(crate) fn data_checksum(self, seed: u32, tid: Tid, data: &[u8]) -> u32 {
        let sum = crc32c(crc32c(seed, &tid.0.to_be_bytes()), data);
        if self.incompat.contains(Incompat::CSUM_V3) {
            sum
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            sum & 0xffff
        } else {
            0
        }
    }
}

/// The high and the low half of an address.
pub(super) fn split(pba: Pba) -> (U32, U32) {
    let [a, b, c, d, e, f, g, h] = pba.get().to_be_bytes();
    (U32::from_bytes([a, b, c, d]), U32::from_bytes([e, f, g, h]))
}

fn low_half(value: u32) -> U16 {
    let [_, _, high, low] = value.to_be_bytes();
    U16::from_bytes([high, low])
}
