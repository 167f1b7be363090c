//! Tags: which block each copy in the log belongs to.
//!
//! | layout | bytes |
//! |---|---|
//! | no checksum, 32-bit | 8 (address, checksum half, flags) |
//! | no checksum, 64-bit | 12 (and the high address) |
//! | v2 | 2 more, unused |
//! | v3 | 16 (address, flags as 32 bits, high address, whole checksum) |
//!
//! The first tag of a descriptor, and any without SAME_UUID, is followed by the journal's 16-byte UUID.

use cairn_base::checksum::crc32c;
use cairn_base::{Pba, Tid};

use super::Incompat;

/// `t_flags`.
pub mod flag {
    /// The copy's first four bytes were the magic number and are stored as zeros.
    pub const ESCAPE: u32 = 1;
    /// No UUID follows.
    pub const SAME_UUID: u32 = 2;
    /// The block was deleted (never written by Linux).
    pub const DELETED: u32 = 4;
    /// Last tag of the descriptor.
    pub const LAST: u32 = 8;
}

/// One tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Home of the block.
    pub pba: Pba,
    /// See [`flag`].
    pub flags: u32,
    /// Stored checksum: 32 bits (v3) or the low 16 (v2); 0 without.
    pub checksum: u32,
}

/// How tags look in this journal.
#[derive(Clone, Copy, Debug)]
pub struct TagLayout {
    incompat: Incompat,
}

const UUID: usize = 16;

impl TagLayout {
    /// For these features.
    #[must_use]
    pub const fn new(incompat: Incompat) -> Self {
        Self { incompat }
    }

    /// Bytes of one tag, without UUID.
    #[must_use]
    pub fn size(self) -> usize {
        if self.incompat.contains(Incompat::CSUM_V3) {
            return 16;
        }
        // The second checksum layout is two bytes longer than what it uses.
        let unused = if self.incompat.contains(Incompat::CSUM_V2) { 2 } else { 0 };
        unused + if self.incompat.contains(Incompat::BITS_64) { 12 } else { 8 }
    }

    /// Bytes at the end of descriptor and revoke blocks that hold their checksum.
    #[must_use]
    pub fn tail(self) -> usize {
        if self.incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3) { 4 } else { 0 }
    }

    /// The tag at the start of `bytes` and the number of bytes it takes (with its UUID).
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Option<(Tag, usize)> {
        let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk::<4>()?));
        let half = |at: usize| Some(u32::from(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?)));
        let size = self.size();
        let low = word(0)?;
        let (flags, checksum) =
            if self.incompat.contains(Incompat::CSUM_V3) { (word(4)?, word(12)?) } else { (half(6)?, half(4)?) };
        let high = if self.incompat.contains(Incompat::BITS_64) { word(8)? } else { 0 };
        bytes.get(..size)?;
        let taken = if flags & flag::SAME_UUID == 0 { size + UUID } else { size };
        bytes.get(..taken)?;
        Some((Tag { pba: Pba(u64::from(high) << 32 | u64::from(low)), flags, checksum }, taken))
    }

    /// Appends a tag (and the UUID where the flags ask for it).
    ///
    /// # Panics
    /// If the address does not fit a journal without 64-bit tags.
    pub fn encode(self, tag: &Tag, uuid: &[u8; UUID], out: &mut Vec<u8>) {
        let address = tag.pba.get();
        let low = u32::try_from(address & 0xffff_ffff).expect("masked");
        let high = u32::try_from(address >> 32).expect("an address has 64 bits");
        assert!(high == 0 || self.incompat.contains(Incompat::BITS_64), "block {address} in a 32-bit journal");
        out.extend_from_slice(&low.to_be_bytes());
        if self.incompat.contains(Incompat::CSUM_V3) {
            out.extend_from_slice(&tag.flags.to_be_bytes());
            out.extend_from_slice(&high.to_be_bytes());
            out.extend_from_slice(&tag.checksum.to_be_bytes());
        } else {
            let half = |value: u32| u16::try_from(value & 0xffff).expect("masked").to_be_bytes();
            out.extend_from_slice(&half(tag.checksum));
            out.extend_from_slice(&half(tag.flags));
            if self.incompat.contains(Incompat::BITS_64) {
                out.extend_from_slice(&high.to_be_bytes());
            }
            if self.incompat.contains(Incompat::CSUM_V2) {
                out.extend_from_slice(&[0; 2]);
            }
        }
        if tag.flags & flag::SAME_UUID == 0 {
            out.extend_from_slice(uuid);
        }
    }

    /// Checksum of a copy as its tag holds it; `data` is what stands in the log.
    #[must_use]
    pub fn data_checksum(self, seed: u32, tid: Tid, data: &[u8]) -> u32 {
        let sum = crc32c(crc32c(seed, &tid.0.to_be_bytes()), data);
        if self.incompat.contains(Incompat::CSUM_V3) {
            sum
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            sum & 0xffff
        } else {
            0
        }
    }

    /// True if copies are checksummed.
    #[must_use]
    pub fn checks_data(self) -> bool {
        self.tail() != 0
    }
}
