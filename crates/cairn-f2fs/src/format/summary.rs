//! Summaries: who owns each block of a segment; and the journals of NAT and SIT that travel with them.
//!
//! A summary block lies in the summary area for every segment a log has left, and in the checkpoint pack for the six
//! current ones (the pack's copy counts for those). The three data summaries of a pack may be in a compact form, where
//! only what is used is stored ([`CompactSummaries`]). The NAT journal lives in the hot data log's summary, the SIT journal
//! in the cold data log's.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::Layout;
use super::nat::{NatEntry, RawNatEntry};
use super::sit::{RawSitEntry, SitEntry};
use super::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, SegNo};
use crate::corrupt::Corrupt;

/// Entries of a summary block: one a block of the segment.
pub const ENTRIES: usize = BLOCKS_PER_SEGMENT as usize;
/// Bytes of the journal area.
pub const JOURNAL_SIZE: usize = 507;
/// Most entries of a NAT journal.
pub const NAT_JOURNAL_ENTRIES: usize = 38;
/// Most entries of a SIT journal.
pub const SIT_JOURNAL_ENTRIES: usize = 6;
/// Bytes of a summary block's footer.
const FOOTER_SIZE: usize = 5;
const ENTRY_SIZE: usize = 7;
/// Entries that fit in the first compact block, behind two journals, and in the others.
pub const COMPACT_FIRST: usize = (BLOCK_SIZE - FOOTER_SIZE - 2 * JOURNAL_SIZE) / ENTRY_SIZE;
/// See [`COMPACT_FIRST`].
pub const COMPACT_REST: usize = (BLOCK_SIZE - FOOTER_SIZE) / ENTRY_SIZE;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSummary {
    nid: U32,
    version: u8,
    ofs_in_node: U16,
}

const _: () = assert!(size_of::<RawSummary>() == ENTRY_SIZE);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSummaryBlock {
    entries: [RawSummary; ENTRIES],
    journal: [u8; JOURNAL_SIZE],
    entry_type: u8,
    check_sum: U32,
}

const _: () = assert!(size_of::<RawSummaryBlock>() == BLOCK_SIZE);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawNatJournalEntry {
    nid: U32,
    ne: RawNatEntry,
}

const _: () = assert!(size_of::<RawNatJournalEntry>() == 13);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSitJournalEntry {
    segno: U32,
    se: RawSitEntry,
}

const _: () = assert!(size_of::<RawSitJournalEntry>() == 78);

/// Owner of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Data: the inode or direct node that points to the block. Node: its own nid.
    pub nid: Nid,
    /// Data: the NAT version of that nid when the block was written. Node: 0.
    pub version: u8,
    /// Data: which pointer of that node, counted from its first data pointer (extra attributes do not count). Node: 0.
    pub ofs_in_node: u16,
}

impl From<RawSummary> for Summary {
    fn from(raw: RawSummary) -> Self {
        Self { nid: Nid(raw.nid.get()), version: raw.version, ofs_in_node: raw.ofs_in_node.get() }
    }
}

impl From<Summary> for RawSummary {
    fn from(entry: Summary) -> Self {
        Self { nid: entry.nid.get().into(), version: entry.version, ofs_in_node: entry.ofs_in_node.into() }
    }
}

/// The journal area's bytes: meaningless in summaries that carry no journal.
pub type JournalBytes = [u8; JOURNAL_SIZE];

/// A full summary block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryBlock {
    /// Does the segment hold nodes (footer `entry_type` 1) or data (0)?
    pub is_node: bool,
    /// One entry a block of the segment; exactly [`ENTRIES`].
    pub entries: Vec<Summary>,
    /// The journal area.
    pub journal: JournalBytes,
}

impl SummaryBlock {
    /// A block without entries and with an empty journal.
    #[must_use]
    pub fn empty(is_node: bool) -> Self {
        Self { is_node, entries: vec![Summary::default(); ENTRIES], journal: [0; JOURNAL_SIZE] }
    }

    /// Decodes a whole block.
    ///
    /// # Errors
    /// The footer's type is neither data nor node.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let raw = RawSummaryBlock::ref_from_bytes(block).expect("a whole block");
        if raw.entry_type > 1 {
            return Err(Corrupt::Summary {
                what: "the footer's type is neither data nor node",
                value: raw.entry_type.into(),
            });
        }
        let entries = raw.entries.iter().map(|entry| (*entry).into()).collect();
        Ok(Self { is_node: raw.entry_type == 1, entries, journal: raw.journal })
    }

    /// The whole block; its `check_sum` is 0, as everybody writes it.
    ///
    /// # Panics
    /// There are not exactly [`ENTRIES`] entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.entries.len(), ENTRIES, "summary entries");
        let mut raw = RawSummaryBlock::new_zeroed();
        raw.entries.iter_mut().zip(&self.entries).for_each(|(to, entry)| *to = (*entry).into());
        raw.journal = self.journal;
        raw.entry_type = u8::from(self.is_node);
        raw.as_bytes().to_vec()
    }
}

/// NAT entries that override the area, each nid at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatJournal(pub Vec<(Nid, NatEntry)>);

impl NatJournal {
    /// Decodes a journal area.
    ///
    /// # Errors
    /// Too many entries, an nid that cannot be, or one that is there twice.
    pub fn decode(journal: &JournalBytes, layout: &Layout) -> Result<Self, Corrupt> {
        let raw: &[RawNatJournalEntry] =
            counted(journal, NAT_JOURNAL_ENTRIES, "a NAT journal holds at most 38 entries")?;
        let mut entries: Vec<(Nid, NatEntry)> = Vec::with_capacity(raw.len());
        for entry in raw {
            let nid = Nid(entry.nid.get());
            let bad = |what| Corrupt::Nat { nid, what, value: nid.get().into() };
            if !layout.is_nid(nid) {
                return Err(bad("the journal names an impossible nid"));
            }
            if entries.iter().any(|(known, _)| *known == nid) {
                return Err(bad("the journal names the nid twice"));
            }
            entries.push((nid, entry.ne.into()));
        }
        Ok(Self(entries))
    }

    /// The journal area.
    ///
    /// # Panics
    /// More than [`NAT_JOURNAL_ENTRIES`].
    #[must_use]
    pub fn encode(&self) -> JournalBytes {
        assert!(self.0.len() <= NAT_JOURNAL_ENTRIES, "{} entries in a NAT journal", self.0.len());
        let raw = self.0.iter().map(|(nid, entry)| RawNatJournalEntry { nid: nid.get().into(), ne: (*entry).into() });
        pack(&raw.collect::<Vec<_>>())
    }
}

/// SIT entries that override the area, each segment at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SitJournal(pub Vec<(SegNo, SitEntry)>);

impl SitJournal {
    /// Decodes a journal area.
    ///
    /// # Errors
    /// Too many entries, a segment that does not exist or is there twice, or an impossible entry.
    pub fn decode(journal: &JournalBytes, layout: &Layout) -> Result<Self, Corrupt> {
        let raw: &[RawSitJournalEntry] =
            counted(journal, SIT_JOURNAL_ENTRIES, "a SIT journal holds at most 6 entries")?;
        let mut entries: Vec<(SegNo, SitEntry)> = Vec::with_capacity(raw.len());
        for entry in raw {
            let segno = SegNo(entry.segno.get());
            let bad = |what| Corrupt::Sit { segno, what, value: segno.get().into() };
            if segno.get() >= layout.main_segments {
                return Err(bad("the journal names a segment that does not exist"));
            }
            if entries.iter().any(|(known, _)| *known == segno) {
                return Err(bad("the journal names the segment twice"));
            }
            entries.push((segno, SitEntry::decode(&entry.se, segno)?));
        }
        Ok(Self(entries))
    }

    /// The journal area.
    ///
    /// # Panics
    /// More than [`SIT_JOURNAL_ENTRIES`].
    #[must_use]
    pub fn encode(&self) -> JournalBytes {
        assert!(self.0.len() <= SIT_JOURNAL_ENTRIES, "{} entries in a SIT journal", self.0.len());
        let raw =
            self.0.iter().map(|(segno, entry)| RawSitJournalEntry { segno: segno.get().into(), se: entry.encode() });
        pack(&raw.collect::<Vec<_>>())
    }
}

/// The entries that a journal's count announces.
fn counted<'j, T>(journal: &'j JournalBytes, most: usize, too_many: &'static str) -> Result<&'j [T], Corrupt>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let (count, bytes) = journal.split_at(2);
    let count = usize::from(u16::from_le_bytes([count[0], count[1]]));
    if count > most {
        return Err(Corrupt::Summary { what: too_many, value: count as u64 });
    }
    let (entries, _) = <[T]>::ref_from_prefix_with_elems(bytes, count).expect("the limit fits the area");
    Ok(entries)
}

fn pack<T: IntoBytes + Immutable>(entries: &[T]) -> JournalBytes {
    let mut journal = [0; JOURNAL_SIZE];
    let (count, bytes) = journal.split_at_mut(2);
    count.copy_from_slice(&(entries.len() as u16).to_le_bytes());
    bytes[..size_of_val(entries)].copy_from_slice(entries.as_bytes());
    journal
}

/// Kilobytes ever written to the volume, kept in the journal area of the hot *node* summary.
#[must_use]
pub fn kbytes_written(journal: &JournalBytes) -> u64 {
    journal.get(2..10).and_then(|bytes| U64::read_from_bytes(bytes).ok()).map_or(0, U64::get)
}

/// The journal area of a hot node summary.
#[must_use]
pub fn info_journal(kbytes_written: u64) -> JournalBytes {
    let mut journal = [0; JOURNAL_SIZE];
    journal[2..10].copy_from_slice(&kbytes_written.to_le_bytes());
    journal
}

/// The compact form of a pack's three data summaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactSummaries {
    /// NAT journal area.
    pub nat_journal: JournalBytes,
    /// SIT journal area.
    pub sit_journal: JournalBytes,
    /// First entries of hot, warm and cold data.
    pub entries: [Vec<Summary>; 3],
}

impl CompactSummaries {
    /// Blocks that so many entries in all need; the compact form is used only for fewer than 3 full blocks.
    #[must_use]
    pub const fn blocks_for(entries: usize) -> usize {
        1 + entries.saturating_sub(COMPACT_FIRST).div_ceil(COMPACT_REST)
    }

    /// Decodes the blocks, which lie one after the other in `blocks`. `counts` are the entries of each log: `cur_data_blkoff`
    /// of a log that appends, 512 of one that fills holes.
    ///
    /// # Errors
    /// The blocks hold fewer entries.
    pub fn decode(blocks: &[u8], counts: [u16; 3]) -> Result<Self, Corrupt> {
        let short = || Corrupt::Summary { what: "too few compact summary blocks", value: blocks.len() as u64 };
        let (nat_journal, rest) = blocks.split_first_chunk::<JOURNAL_SIZE>().ok_or_else(short)?;
        let (sit_journal, _) = rest.split_first_chunk::<JOURNAL_SIZE>().ok_or_else(short)?;
        let mut stored = blocks.chunks_exact(BLOCK_SIZE).enumerate().flat_map(|(index, block)| {
            let start = if index == 0 { 2 * JOURNAL_SIZE } else { 0 };
            let bytes = block.get(start..BLOCK_SIZE - FOOTER_SIZE).unwrap_or_default();
            bytes
                .chunks_exact(ENTRY_SIZE)
                .filter_map(|entry| RawSummary::read_from_bytes(entry).ok())
                .map(Summary::from)
        });
        let mut entries: [Vec<Summary>; 3] = Default::default();
        for (entries, count) in entries.iter_mut().zip(counts) {
            entries.extend(stored.by_ref().take(count.into()));
            if entries.len() != usize::from(count) {
                return Err(short());
            }
        }
        Ok(Self { nat_journal: *nat_journal, sit_journal: *sit_journal, entries })
    }

    /// The blocks, one after the other.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let total = self.entries.iter().map(Vec::len).sum();
        let mut blocks = vec![0; Self::blocks_for(total) * BLOCK_SIZE];
        blocks[..JOURNAL_SIZE].copy_from_slice(&self.nat_journal);
        blocks[JOURNAL_SIZE..2 * JOURNAL_SIZE].copy_from_slice(&self.sit_journal);
        let mut entries = self.entries.iter().flatten().map(|entry| RawSummary::from(*entry));
        for (index, block) in blocks.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            let start = if index == 0 { 2 * JOURNAL_SIZE } else { 0 };
            for (place, entry) in block[start..BLOCK_SIZE - FOOTER_SIZE].chunks_exact_mut(ENTRY_SIZE).zip(&mut entries)
            {
                place.copy_from_slice(entry.as_bytes());
            }
        }
        blocks
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
