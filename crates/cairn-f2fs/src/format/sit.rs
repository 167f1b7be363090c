//! The segment information table: which blocks of each segment are valid.
//!
//! The area has two copies of each block (see
//! [`Layout::sit_address`](super::layout::Layout::sit_address)); the journal in the summary of the
//! cold data log (`super::summary::SitJournal`) holds recent entries and overrides the area.

use cairn_base::units::as_index;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits;
use super::block::{self, view, view_mut};
use super::log::Log;
use super::units::{BLOCK_SIZE, SegNo, stored};
use crate::corrupt::Corrupt;

/// Entries per block, as a number of segments; 26 bytes at the block's end are unused.
pub(crate) const SEGMENTS_PER_BLOCK: u32 = 55;
/// Entries per block.
pub(crate) const ENTRIES_PER_BLOCK: usize = as_index(SEGMENTS_PER_BLOCK);
/// Bytes of a segment's bitmap.
pub(crate) const VALID_MAP_SIZE: usize = 64;
/// Bits of `vblocks` that count; the type stands above them.
const COUNT_BITS: u16 = 10;
const COUNT_MASK: u16 = (1 << COUNT_BITS) - 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSitEntry {
    vblocks: U16,
    valid_map: [u8; VALID_MAP_SIZE],
    mtime: U64,
}

const _: () = assert!(size_of::<RawSitEntry>() == 74);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSitBlock {
    entries: [RawSitEntry; ENTRIES_PER_BLOCK],
    unused: [u8; 26],
}

const _: () = assert!(size_of::<RawSitBlock>() == BLOCK_SIZE);

/// A segment's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitEntry {
    /// The log that filled it.
    pub log: Log,
    /// Valid blocks, bits from the most significant one.
    pub valid_map: [u8; VALID_MAP_SIZE],
    /// When its blocks were written, in seconds of the volume's mounted time; the mean over them.
    pub(crate) mtime: u64,
}

impl SitEntry {
    /// A segment without valid blocks.
    #[must_use]
    pub(crate) const fn empty(log: Log) -> Self {
        Self { log, valid_map: [0; VALID_MAP_SIZE], mtime: 0 }
    }

    /// A segment whose first `blocks` blocks are valid.
    #[must_use]
    pub(crate) fn filled(log: Log, blocks: usize) -> Self {
        let mut entry = Self::empty(log);
        (0..blocks).for_each(|block| {
            bits::set(&mut entry.valid_map, block);
        });
        entry
    }

    /// Number of valid blocks.
    #[must_use]
    pub(crate) fn valid_blocks(&self) -> u32 {
        bits::count(&self.valid_map)
    }

    /// Is the block (below 512) valid?
    #[must_use]
    pub(crate) fn is_valid(&self, block: u16) -> bool {
        bits::test(&self.valid_map, block.into())
    }

    pub(super) fn decode(raw: &RawSitEntry, segno: SegNo) -> Result<Self, Corrupt> {
        let (count, kind) = (raw.vblocks.get() & COUNT_MASK, raw.vblocks.get() >> COUNT_BITS);
        let bad = |what, value: u16| Corrupt::Sit { segno, what, value: value.into() };
        let log = u8::try_from(kind).ok().and_then(Log::from_raw);
        let log = log.ok_or_else(|| bad("the type is none of the six logs", kind))?;
        let entry = Self { log, valid_map: raw.valid_map, mtime: raw.mtime.get() };
        if entry.valid_blocks() != u32::from(count) {
            return Err(bad("the count differs from the bits set", count));
        }
        Ok(entry)
    }

    pub(super) fn encode(&self) -> RawSitEntry {
        let count: u16 = stored(self.valid_blocks());
        let vblocks = count | u16::from(self.log.raw()) << COUNT_BITS;
        RawSitEntry { vblocks: vblocks.into(), valid_map: self.valid_map, mtime: self.mtime.into() }
    }
}

/// The entry of `segno`, which stands at `index` of this SIT block.
///
/// # Errors
/// Its count or type is impossible.
///
/// # Panics
/// `index` is not below `ENTRIES_PER_BLOCK`: the caller's bug.
pub fn entry(block: &[u8], index: usize, segno: SegNo) -> Result<SitEntry, Corrupt> {
    SitEntry::decode(block::entry(&view::<RawSitBlock>(block).entries, index), segno)
}

/// Replaces the entry at `index` of a SIT block.
///
/// # Panics
/// As [`entry`].
pub fn set_entry(block: &mut [u8], index: usize, entry: &SitEntry) {
    *block::entry_mut(&mut view_mut::<RawSitBlock>(block).entries, index) = entry.encode();
}

/// Makes the entry at `index` of a SIT block that of a segment that was never used.
///
/// # Panics
/// As [`entry`].
pub(crate) fn clear_entry(block: &mut [u8], index: usize) {
    *block::entry_mut(&mut view_mut::<RawSitBlock>(block).entries, index) =
        RawSitEntry::new_zeroed();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_type_share_a_word() {
        let mut block = vec![0; BLOCK_SIZE];
        let mut full = SitEntry { log: Log::ColdNode, valid_map: [0xff; 64], mtime: 9 };
        set_entry(&mut block, 1, &full);
        assert_eq!(block[74..76], (512_u16 | 5 << 10).to_le_bytes());
        assert_eq!(entry(&block, 1, SegNo(1)).unwrap(), full);
        assert_eq!(entry(&block, 0, SegNo(0)).unwrap(), SitEntry::empty(Log::HotData));
        full.valid_map[0] = 0x7f;
        assert!(!full.is_valid(0) && full.is_valid(1) && full.valid_blocks() == 511);
    }

    #[test]
    fn contradictions_are_named() {
        let mut block = vec![0; BLOCK_SIZE];
        block[0] = 1;
        assert!(matches!(entry(&block, 0, SegNo(4)), Err(Corrupt::Sit { segno: SegNo(4), .. })));
        block[..2].copy_from_slice(&(6_u16 << 10).to_le_bytes());
        assert!(entry(&block, 0, SegNo(4)).is_err());
    }
}
