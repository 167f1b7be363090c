//! Summaries: who owns each block of a segment; and the journals of NAT and SIT that travel with
//! them.
//!
//! A summary block lies in the summary area for every segment a log has left, and in the checkpoint
//! pack for the six current ones (the pack's copy counts for those). The three data summaries of a
//! pack may be in a compact form, where only what is used is stored ([`super::compact`]). The NAT
//! journal lives in the hot data log's summary, the SIT journal in the cold data log's.

use std::ops::Range;

use cairn_base::units::{as_index, as_u64};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::view;
use super::layout::Layout;
use super::nat::{NatEntry, RawNatEntry};
use super::sit::{RawSitEntry, SitEntry};
use super::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT, Nid, SegNo, stored};
use crate::corrupt::Corrupt;

/// Entries of a summary block: one a block of the segment.
pub(crate) const ENTRIES: usize = as_index(BLOCKS_PER_SEGMENT);
/// Bytes of the journal area.
pub(crate) const JOURNAL_SIZE: usize = 507;
/// Most entries of a NAT journal.
pub(crate) const NAT_JOURNAL_ENTRIES: usize = 38;
/// Most entries of a SIT journal.
pub(crate) const SIT_JOURNAL_ENTRIES: usize = 6;
/// Bytes of a summary block's footer.
pub(super) const FOOTER_SIZE: usize = 5;
/// Bytes of an entry.
pub(super) const ENTRY_SIZE: usize = 7;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSummary {
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
pub(crate) struct Summary {
    /// Data: the inode or direct node that points to the block. Node: its own nid.
    pub(crate) nid: Nid,
    /// Data: the NAT version of that nid when the block was written. Node: 0.
    pub(crate) version: u8,
    /// Data: which pointer of that node, counted from its first data pointer (extra attributes do
    /// not count). Node: 0.
    pub(crate) ofs_in_node: u16,
}

impl From<RawSummary> for Summary {
    fn from(raw: RawSummary) -> Self {
        Self { nid: Nid(raw.nid.get()), version: raw.version, ofs_in_node: raw.ofs_in_node.get() }
    }
}

impl From<Summary> for RawSummary {
    fn from(entry: Summary) -> Self {
        Self {
            nid: entry.nid.get().into(),
            version: entry.version,
            ofs_in_node: entry.ofs_in_node.into(),
        }
    }
}

/// The journal area's bytes. They have no meaning in summaries without a journal.
pub(crate) type JournalBytes = [u8; JOURNAL_SIZE];

/// Where a journal lies in the block that has it: in the first one of the compact form, or in a
/// full summary block.
pub(crate) const fn journal_place(is_compact: bool, is_nat: bool) -> Range<usize> {
    let at = match (is_compact, is_nat) {
        (true, true) => 0,
        (true, false) => JOURNAL_SIZE,
        (false, _) => ENTRIES.strict_mul(ENTRY_SIZE),
    };
    at..at.strict_add(JOURNAL_SIZE)
}

/// A full summary block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SummaryBlock {
    /// True if the segment holds nodes (footer `entry_type` 1), false if it holds data (0).
    pub(crate) is_node: bool,
    /// One entry per block of the segment; exactly [`ENTRIES`].
    pub(crate) entries: Vec<Summary>,
    /// The journal area.
    pub(crate) journal: JournalBytes,
}

impl SummaryBlock {
    /// A block without entries and with an empty journal.
    #[must_use]
    pub(crate) fn empty(is_node: bool) -> Self {
        Self { is_node, entries: vec![Summary::default(); ENTRIES], journal: [0; JOURNAL_SIZE] }
    }

    /// Decodes a whole block.
    ///
    /// # Errors
    /// The footer's type is neither data nor node.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        Ok(Self::decode_as(block, is_of_nodes(block)?))
    }

    /// Decodes a whole block of a known type, whatever its footer says. The type of a log's block
    /// is that of the log.
    #[must_use]
    pub(crate) fn decode_as(block: &[u8], is_node: bool) -> Self {
        let raw: &RawSummaryBlock = view(block);
        let entries = raw.entries.iter().map(|entry| (*entry).into()).collect();
        Self { is_node, entries, journal: raw.journal }
    }

    /// The whole block; its `check_sum` is 0, as Linux and mkfs.f2fs write it.
    ///
    /// # Panics
    /// There are not exactly [`ENTRIES`] entries.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert_eq!(self.entries.len(), ENTRIES, "summary entries");
        let mut raw = RawSummaryBlock::new_zeroed();
        raw.entries.iter_mut().zip(&self.entries).for_each(|(to, entry)| *to = (*entry).into());
        raw.journal = self.journal;
        raw.entry_type = u8::from(self.is_node);
        raw.as_bytes().to_vec()
    }
}

/// Is a whole block that of a segment with nodes?
///
/// # Errors
/// The footer's type is neither data nor node.
pub(crate) fn is_of_nodes(block: &[u8]) -> Result<bool, Corrupt> {
    let what = "the footer's type is neither data nor node";
    match view::<RawSummaryBlock>(block).entry_type {
        known @ (0 | 1) => Ok(known == 1),
        other => Err(Corrupt::Summary { what, value: other.into() }),
    }
}

/// One entry of a whole block.
pub(crate) fn stored_entry(block: &[u8], number: u16) -> Option<Summary> {
    view::<RawSummaryBlock>(block).entries.get(usize::from(number)).map(|entry| (*entry).into())
}

/// NAT entries that override the area, each nid at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatJournal(pub Vec<(Nid, NatEntry)>);

impl NatJournal {
    /// Decodes a journal area.
    ///
    /// # Errors
    /// Too many entries, an nid that cannot be, or one that is there twice.
    pub(crate) fn decode(journal: &JournalBytes, layout: &Layout) -> Result<Self, Corrupt> {
        first_wrong(|wrong| Self::possible(journal, layout, &mut |error, _| wrong(error)))
    }

    /// The entries that are possible. `wrong` gets the errors of the others, with the entries.
    pub(crate) fn possible(
        journal: &JournalBytes,
        layout: &Layout,
        wrong: &mut dyn FnMut(Corrupt, Option<(Nid, NatEntry)>),
    ) -> Self {
        let too_many = "a NAT journal holds at most 38 entries";
        let raw: &[RawNatJournalEntry] = match counted(journal, NAT_JOURNAL_ENTRIES, too_many) {
            Ok(raw) => raw,
            Err(error) => {
                wrong(error, None);
                &[]
            }
        };
        let mut entries: Vec<(Nid, NatEntry)> = Vec::with_capacity(raw.len());
        for entry in raw {
            let (nid, entry) = (Nid(entry.nid.get()), NatEntry::from(entry.ne));
            let what = match () {
                () if !layout.is_nid(nid) => "the journal names an impossible nid",
                () if entries.iter().any(|(known, _)| *known == nid) => {
                    "the journal names the nid twice"
                }
                () => {
                    entries.push((nid, entry));
                    continue;
                }
            };
            wrong(Corrupt::Nat { nid, what, value: nid.get().into() }, Some((nid, entry)));
        }
        Self(entries)
    }

    /// The journal area.
    ///
    /// # Panics
    /// More than `NAT_JOURNAL_ENTRIES`.
    #[must_use]
    pub(crate) fn encode(&self) -> JournalBytes {
        assert!(self.0.len() <= NAT_JOURNAL_ENTRIES, "{} entries in a NAT journal", self.0.len());
        let raw = self
            .0
            .iter()
            .map(|(nid, entry)| RawNatJournalEntry { nid: nid.get().into(), ne: (*entry).into() });
        pack(&raw.collect::<Vec<_>>())
    }
}

/// Sets the entry of a nid in the area of a NAT journal. False, and no change, if the nid is not
/// there exactly once.
pub(crate) fn set_nat_entry(journal: &mut [u8], nid: Nid, entry: NatEntry) -> bool {
    let Ok(raw) = RawJournal::mut_from_bytes(journal) else { return false };
    let count = usize::from(raw.count.get());
    let Ok((entries, _)) = <[RawNatJournalEntry]>::mut_from_prefix_with_elems(&mut raw.body, count)
    else {
        return false;
    };
    let mut places = entries.iter_mut().filter(|entry| entry.nid.get() == nid.get());
    let (Some(place), None) = (places.next(), places.next()) else { return false };
    place.ne = entry.into();
    true
}

/// SIT entries that override the area, each segment at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SitJournal(pub Vec<(SegNo, SitEntry)>);

impl SitJournal {
    /// Decodes a journal area.
    ///
    /// # Errors
    /// Too many entries, a segment that does not exist or is there twice, or an impossible entry.
    pub(crate) fn decode(journal: &JournalBytes, layout: &Layout) -> Result<Self, Corrupt> {
        first_wrong(|wrong| Self::possible(journal, layout, &mut |error, _| wrong(error)))
    }

    /// The entries that are possible. `wrong` gets the errors of the others, with the segments.
    pub(crate) fn possible(
        journal: &JournalBytes,
        layout: &Layout,
        wrong: &mut dyn FnMut(Corrupt, Option<SegNo>),
    ) -> Self {
        let too_many = "a SIT journal holds at most 6 entries";
        let raw: &[RawSitJournalEntry] = match counted(journal, SIT_JOURNAL_ENTRIES, too_many) {
            Ok(raw) => raw,
            Err(error) => {
                wrong(error, None);
                &[]
            }
        };
        let mut entries: Vec<(SegNo, SitEntry)> = Vec::with_capacity(raw.len());
        for entry in raw {
            let segno = SegNo(entry.segno.get());
            let bad = |what| Corrupt::Sit { segno, what, value: segno.get().into() };
            let decoded = match () {
                () if segno.get() >= layout.main_segments => {
                    Err(bad("the journal names a segment that does not exist"))
                }
                () if entries.iter().any(|(known, _)| *known == segno) => {
                    Err(bad("the journal names the segment twice"))
                }
                () => SitEntry::decode(&entry.se, segno),
            };
            match decoded {
                Ok(entry) => entries.push((segno, entry)),
                Err(error) => wrong(error, Some(segno)),
            }
        }
        Self(entries)
    }

    /// The journal area.
    ///
    /// # Panics
    /// More than `SIT_JOURNAL_ENTRIES`.
    #[must_use]
    pub(crate) fn encode(&self) -> JournalBytes {
        assert!(self.0.len() <= SIT_JOURNAL_ENTRIES, "{} entries in a SIT journal", self.0.len());
        let raw = self.0.iter().map(|(segno, entry)| RawSitJournalEntry {
            segno: segno.get().into(),
            se: entry.encode(),
        });
        pack(&raw.collect::<Vec<_>>())
    }
}

/// Bytes of a journal area behind the count.
const JOURNAL_BODY: usize = JOURNAL_SIZE - size_of::<U16>();

/// A journal area.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawJournal {
    count: U16,
    body: [u8; JOURNAL_BODY],
}

/// The journal area of the hot node summary.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInfoJournal {
    count: U16,
    kbytes_written: U64,
    reserved: [u8; JOURNAL_BODY - size_of::<U64>()],
}

/// What `read` gives, if it finds nothing wrong.
fn first_wrong<T>(read: impl FnOnce(&mut dyn FnMut(Corrupt)) -> T) -> Result<T, Corrupt> {
    let mut first = None;
    let found = read(&mut |error| {
        first.get_or_insert(error);
    });
    first.map_or(Ok(found), Err)
}

/// The entries of a journal, by its count.
fn counted<'j, T>(
    journal: &'j JournalBytes,
    most: usize,
    too_many: &'static str,
) -> Result<&'j [T], Corrupt>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let raw: &RawJournal = zerocopy::transmute_ref!(journal);
    let count = usize::from(raw.count.get());
    match <[T]>::ref_from_prefix_with_elems(&raw.body, count) {
        Ok((entries, _)) if count <= most => Ok(entries),
        _ => Err(Corrupt::Summary { what: too_many, value: as_u64(count) }),
    }
}

/// # Panics
/// The entries do not fit.
fn pack<T: IntoBytes + Immutable>(entries: &[T]) -> JournalBytes {
    let mut raw = RawJournal::new_zeroed();
    raw.count = stored::<_, u16>(entries.len()).into();
    let (used, _) = raw.body.split_at_mut(size_of_val(entries));
    used.copy_from_slice(entries.as_bytes());
    zerocopy::transmute!(raw)
}

/// Kilobytes ever written to the volume, kept in the journal area of the hot *node* summary.
#[must_use]
pub(crate) fn kbytes_written(journal: &JournalBytes) -> u64 {
    let raw: &RawInfoJournal = zerocopy::transmute_ref!(journal);
    raw.kbytes_written.get()
}

/// The journal area of a hot node summary.
#[must_use]
pub(crate) fn info_journal(kbytes_written: u64) -> JournalBytes {
    let mut raw = RawInfoJournal::new_zeroed();
    raw.kbytes_written = kbytes_written.into();
    zerocopy::transmute!(raw)
}

#[cfg(test)]
mod tests;
