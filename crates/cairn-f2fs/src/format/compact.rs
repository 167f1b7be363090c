//! The compact form of the data summaries of a checkpoint pack: two journals and the entries in use
//! of three logs, one after the other.

use cairn_base::units::as_u64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::view;
use super::summary::{ENTRY_SIZE, FOOTER_SIZE, JOURNAL_SIZE, JournalBytes, RawSummary, Summary};
use super::units::BLOCK_SIZE;
use crate::corrupt::Corrupt;

/// Entries that fit in the first compact block, behind two journals, and in the others.
pub(crate) const COMPACT_FIRST: usize = (BLOCK_SIZE - FOOTER_SIZE - 2 * JOURNAL_SIZE) / ENTRY_SIZE;
pub(crate) const COMPACT_REST: usize = (BLOCK_SIZE - FOOTER_SIZE) / ENTRY_SIZE;

/// The first block of the compact form.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFirstCompact {
    nat_journal: JournalBytes,
    sit_journal: JournalBytes,
    entries: [RawSummary; COMPACT_FIRST],
    unused: [u8; BLOCK_SIZE - 2 * JOURNAL_SIZE - COMPACT_FIRST * ENTRY_SIZE],
}

/// Another block of the compact form.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCompact {
    entries: [RawSummary; COMPACT_REST],
    unused: [u8; BLOCK_SIZE - COMPACT_REST * ENTRY_SIZE],
}

/// The compact form of a pack's three data summaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactSummaries {
    /// NAT journal area.
    pub(crate) nat_journal: JournalBytes,
    /// SIT journal area.
    pub(crate) sit_journal: JournalBytes,
    /// First entries of hot, warm and cold data.
    pub(crate) entries: [Vec<Summary>; 3],
}

impl CompactSummaries {
    /// The number of blocks for this total of entries. The compact form is used only if these are
    /// fewer than 3.
    #[must_use]
    pub(crate) const fn blocks_for(entries: usize) -> usize {
        entries.saturating_sub(COMPACT_FIRST).div_ceil(COMPACT_REST).strict_add(1)
    }

    /// Decodes the blocks, which lie one after the other in `blocks`. `counts` are the entries of
    /// each log: `cur_data_blkoff` of a log that appends, 512 of one that fills holes.
    ///
    /// # Errors
    /// The blocks hold fewer entries.
    pub(crate) fn decode(blocks: &[u8], counts: [u16; 3]) -> Result<Self, Corrupt> {
        let short = || Corrupt::Summary {
            what: "too few compact summary blocks",
            value: as_u64(blocks.len()),
        };
        let (blocks, _) = blocks.as_chunks::<BLOCK_SIZE>();
        let (first, rest) = blocks.split_first().ok_or_else(short)?;
        let first: &RawFirstCompact = view(first);
        let rest = rest.iter().flat_map(|block| &view::<RawCompact>(block).entries);
        let mut stored = first.entries.iter().chain(rest).map(|raw| Summary::from(*raw));
        let mut entries: [Vec<Summary>; 3] = Default::default();
        for (entries, count) in entries.iter_mut().zip(counts) {
            entries.extend(stored.by_ref().take(count.into()));
            if entries.len() != usize::from(count) {
                return Err(short());
            }
        }
        Ok(Self { nat_journal: first.nat_journal, sit_journal: first.sit_journal, entries })
    }

    /// The blocks, one after the other.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut entries = self.entries.iter().flatten().map(|entry| RawSummary::from(*entry));
        let mut fill = |to: &mut [RawSummary]| {
            to.iter_mut().zip(&mut entries).for_each(|(to, entry)| *to = entry)
        };
        let mut first = RawFirstCompact::new_zeroed();
        (first.nat_journal, first.sit_journal) = (self.nat_journal, self.sit_journal);
        fill(&mut first.entries);
        let mut blocks = first.as_bytes().to_vec();
        let total = self.entries.iter().map(Vec::len).sum();
        for _ in 1..Self::blocks_for(total) {
            let mut block = RawCompact::new_zeroed();
            fill(&mut block.entries);
            blocks.extend_from_slice(block.as_bytes());
        }
        blocks
    }
}
