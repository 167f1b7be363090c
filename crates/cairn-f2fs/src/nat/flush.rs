//! The parts of the NAT that a checkpoint writes.

use std::collections::BTreeMap;

use cairn_base::Pba;
use cairn_base::units::{as_index, as_u64};
use cairn_cache::block::Image;

use super::{Nat, State};
use crate::error::Result;
use crate::format::layout::Side;
use crate::format::summary::{NAT_JOURNAL_ENTRIES, NatJournal};
use crate::format::{Layout, NatEntry, Nid, bits, nat};

type Group = Vec<(Nid, NatEntry)>;

/// The NAT as the next checkpoint will have it.
pub(crate) struct NatPlan {
    /// The journal, for the hot data log's summary.
    pub(crate) journal: NatJournal,
    /// The version bitmap.
    pub(crate) bitmap: Vec<u8>,
    /// Blocks to write: each to the copy that the last checkpoint does not use.
    pub(crate) blocks: Vec<(Pba, Image)>,
}

impl Nat {
    /// Reads the NAT blocks that a checkpoint will have to change if, besides what has changed
    /// already, these nids do. Errors are ignored here, because [`Nat::plan`] meets them again.
    pub(crate) fn read_ahead(&self, nids: &[Nid]) {
        let blocks: BTreeMap<u32, Side> = {
            let state = self.state.lock();
            let entries =
                state.changed.len().saturating_add(state.journal.len()).saturating_add(nids.len());
            if entries <= NAT_JOURNAL_ENTRIES {
                return;
            }
            let all = state.changed.keys().chain(state.journal.keys()).chain(nids);
            let blocks = all.map(|nid| Layout::nat_place(*nid).0);
            blocks.map(|block| (block, state.side(block))).collect()
        };
        for (block, side) in blocks {
            if self.block(block, side).is_err() {
                return;
            }
        }
    }

    /// Decides which entries go to the journal and which to NAT blocks. From then on the changes
    /// are those of the checkpoint in flight. Called with the operation lock held exclusively,
    /// after the last plan has been committed.
    ///
    /// # Errors
    /// A NAT block cannot be read.
    pub(crate) fn plan(&self) -> Result<NatPlan> {
        let (merged, old_bitmap) = {
            let state = self.state.lock();
            assert!(state.in_flight.is_empty(), "one checkpoint at a time");
            let mut merged = state.journal.clone();
            merged.extend(&state.changed);
            (merged, state.bitmap.clone())
        };
        let (journal, overflow) = split(merged);
        let mut plan = NatPlan { journal, bitmap: old_bitmap.clone(), blocks: Vec::new() };
        for (block, entries) in overflow {
            let side = Side::of_bit(bits::test(&old_bitmap, as_index(block)));
            let mut image = self.block(block, side)?;
            let bytes = image.make_mut();
            entries
                .iter()
                .for_each(|(nid, entry)| nat::set_entry(bytes, Layout::nat_place(*nid).1, *entry));
            plan.blocks.push((self.layout.nat_address(block, side.other()), image));
            bits::flip(&mut plan.bitmap, as_index(block));
        }
        let mut state = self.state.lock();
        state.in_flight = std::mem::take(&mut state.changed);
        drop(state);
        Ok(plan)
    }

    /// Commits the planned checkpoint, which is on the medium: its NAT becomes the last one.
    pub(crate) fn committed(&self, plan: NatPlan) {
        self.stats.blocks_written.add(as_u64(plan.blocks.len()));
        // These copies are not read before the bitmap selects them.
        for (at, image) in plan.blocks {
            self.cache.create(at).modify().copy_from_slice(&image);
        }
        let mut state = self.state.lock();
        let State { in_flight, journal, bitmap, generation, free, .. } = &mut *state;
        for (nid, entry) in std::mem::take(in_flight) {
            // The nid has not changed, so no thread has allocated it meanwhile.
            if entry.is_free() {
                free.add(nid, entry.version);
            }
        }
        *journal = plan.journal.0.into_iter().collect();
        *bitmap = plan.bitmap;
        *generation = generation.strict_add(1);
    }
}

/// Fills the journal with as many whole groups (entries of one block) as fit, the smallest first,
/// so that the fewest blocks must be written.
fn split(entries: BTreeMap<Nid, NatEntry>) -> (NatJournal, Vec<(u32, Group)>) {
    let mut groups: Vec<(u32, Group)> = Vec::new();
    for (nid, entry) in entries {
        let (block, _) = Layout::nat_place(nid);
        match groups.last_mut() {
            Some((last, group)) if *last == block => group.push((nid, entry)),
            _ => groups.push((block, vec![(nid, entry)])),
        }
    }
    groups.sort_by_key(|(_, group)| group.len());
    let mut journal = Vec::new();
    let fits = groups.iter().take_while(|(_, group)| {
        let fits = group.len() <= NAT_JOURNAL_ENTRIES.saturating_sub(journal.len());
        if fits {
            journal.extend_from_slice(group);
        }
        fits
    });
    let fitting = fits.count();
    (NatJournal(journal), groups.split_off(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BlockAddr;

    fn entries(nids: impl IntoIterator<Item = u32>) -> BTreeMap<Nid, NatEntry> {
        let entry = NatEntry { version: 0, ino: Nid(3), block_addr: BlockAddr(4096) };
        nids.into_iter().map(|nid| (Nid(nid), entry)).collect()
    }

    #[test]
    fn small_groups_stay_in_the_journal() {
        let (journal, blocks) = split(entries(4..42));
        assert_eq!((journal.0.len(), blocks.len()), (38, 0));
        let (journal, blocks) = split(entries((4..43).chain([455, 456, 910])));
        assert_eq!(journal.0.iter().map(|(nid, _)| nid.get()).collect::<Vec<_>>(), [910, 455, 456]);
        assert_eq!(
            blocks.iter().map(|(block, group)| (*block, group.len())).collect::<Vec<_>>(),
            [(0, 39)]
        );
        assert_eq!(split(BTreeMap::new()).1.len(), 0);
    }
}
