//! Entries of the NAT and the SIT that are written where they are, without a new checkpoint: what
//! was fsynced behind the last one can still be recovered then, and a newer checkpoint that is
//! damaged stays.

use std::ops::Range;

use cairn_base::units::as_index;
use cairn_check::{Finding, Kind};

use super::super::context::Totals;
use super::super::kinds;
use super::edit::Edit;
use crate::checkpoint::summaries;
use crate::error::Result;
use crate::format::layout::Side;
use crate::format::summary::{SitJournal, set_nat_entry};
use crate::format::units::{BLOCK_SIZE, Nid, SegNo};
use crate::format::{Checkpoint, Layout, Log, NodeFooter, bits, inode, nat, sit};
use crate::recovery::chain::{self, ChainNode};

/// A block with a journal: where it is, its bytes, and the place of the journal in them.
type Journal = (u64, Vec<u8>, Range<usize>);

impl Edit<'_> {
    /// The block with the journal of the NAT (with the hot data) or of the SIT (with the cold).
    fn journal(&self, log: Log) -> Result<Option<Journal>> {
        let loaded = &self.context.volume.loaded;
        let Some((at, place)) = summaries::journal_place(loaded, &self.layout, log) else {
            return Ok(None);
        };
        Ok(Some((at.get(), self.read(at.get())?, place)))
    }

    /// Writes the journal of the NAT without its impossible entries, if what lies behind the
    /// checkpoint waits for that. The checkpoint counts no node beside those that are known.
    pub(super) fn mend_nat_journal(&mut self, found: &[Finding]) -> Result<bool> {
        let is_one = |finding: &&Finding, kinds: &[&Kind]| {
            kinds.iter().any(|kind| kind.code == finding.kind.code)
        };
        let Some(lost) = found.iter().find(|one| is_one(one, &[&kinds::CHECKPOINT_JOURNAL_LOST]))
        else {
            return Ok(false);
        };
        let behind = [&kinds::RECOVERY, &kinds::RECOVERY_WAITS, &kinds::CHECKPOINT_PACK];
        let context = self.context.clone();
        let (totals, checkpoint) = (&context.totals, &context.volume.loaded.checkpoint);
        let is_complete = Totals::get(&totals.nodes) == u64::from(checkpoint.valid_node_count)
            && Totals::get(&totals.inodes) == u64::from(checkpoint.valid_inode_count);
        let waits = found.iter().any(|one| is_one(&one, &behind));
        if !waits || !is_complete || !self.scope.allows(lost.kind) {
            return Ok(false);
        }
        let Some((at, mut bytes, place)) = self.journal(Log::HotData)? else { return Ok(false) };
        let right = context.volume.journals.nat.encode();
        bytes.get_mut(place).unwrap_or_default().copy_from_slice(&right);
        self.write(at, bytes)?;
        let what = "what the journal said of nodes, if it said anything";
        self.lost((lost.kind, lost.place.clone()), Nid::default(), what);
        Ok(true)
    }

    /// Writes entries of the NAT that change. False if other tables must change, too.
    pub(super) fn write_nat_in_place(&self) -> Result<bool> {
        if !self.taken.is_empty() {
            return Ok(false);
        }
        let volume = &self.context.volume;
        let in_journal = |nid: &Nid| volume.journals.nat.0.iter().any(|(known, _)| known == nid);
        let (journaled, others): (Vec<_>, Vec<_>) =
            self.nat.iter().partition(|(nid, _)| in_journal(nid));
        if !journaled.is_empty() {
            let Some((at, mut bytes, place)) = self.journal(Log::HotData)? else {
                return Ok(false);
            };
            let journal = bytes.get_mut(place).unwrap_or_default();
            if !journaled.into_iter().all(|(nid, entry)| set_nat_entry(journal, *nid, *entry)) {
                return Ok(false);
            }
            self.write(at, bytes)?;
        }
        for (nid, entry) in others {
            let (block, index) = Layout::nat_place(*nid);
            let side =
                Side::of_bit(bits::test(&volume.loaded.checkpoint.nat_bitmap, as_index(block)));
            let at = self.layout.nat_address(block, side).get();
            let mut bytes = self.read(at)?;
            nat::set_entry(&mut bytes, index, *entry);
            self.write(at, bytes)?;
        }
        Ok(true)
    }

    /// Writes the entries of the SIT as they must be; `keeps` as in a new checkpoint. False if they
    /// are so already, or if other tables must change, too.
    pub(super) fn write_sit_in_place(&self, keeps: bool) -> Result<bool> {
        let volume = &self.context.volume;
        let checkpoint = &volume.loaded.checkpoint;
        let Some((at, mut bytes, place)) = self.journal(Log::ColdData)? else { return Ok(false) };
        if !self.taken.is_empty() {
            return Ok(false);
        }
        let in_journal = |segno| volume.journals.sit.0.iter().any(|(known, _)| *known == segno);
        let mut journal = SitJournal::default();
        let mut is_changed = false;
        for block in 0..self.layout.sit_blocks_used() {
            let at = self.layout.sit_address(block, checkpoint.sit_side(block)).get();
            let old = self.read(at)?;
            let mut new = old.clone();
            let first = block.saturating_mul(sit::SEGMENTS_PER_BLOCK);
            let end = first.saturating_add(sit::SEGMENTS_PER_BLOCK);
            for segno in (first..end.min(self.layout.main_segments)).map(SegNo) {
                let entry = self.right_segment(segno, &checkpoint.logs, keeps)?;
                sit::set_entry(&mut new, Layout::sit_place(segno).1, &entry);
                if in_journal(segno) {
                    journal.0.push((segno, entry));
                }
            }
            if new != old {
                self.write(at, new)?;
                is_changed = true;
            }
        }
        let stored = bytes.get_mut(place).unwrap_or_default();
        let right = journal.encode();
        if *stored != right {
            stored.copy_from_slice(&right);
            self.write(at, bytes)?;
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Writes the counts of nodes and blocks into the pack in use, if more was found than it
    /// counts, and the new checkpoint's version into what was fsynced behind it: with another SIT
    /// alone, that could not be recovered any more.
    pub(super) fn write_counts_in_place(&self) -> Result<()> {
        let (totals, loaded) = (&self.context.totals, &self.context.volume.loaded);
        let number = |count| u32::try_from(Totals::get(count)).unwrap_or(u32::MAX);
        let last = &loaded.checkpoint;
        let blocks = Totals::get(&totals.blocks).max(last.valid_block_count);
        let mut checkpoint = Checkpoint {
            valid_block_count: blocks,
            valid_node_count: number(&totals.nodes).max(last.valid_node_count),
            valid_inode_count: number(&totals.inodes).max(last.valid_inode_count),
            ..last.clone()
        };
        if checkpoint == *last {
            return Ok(());
        }
        let followed = chain::follow(&self.context.volume.buffers, &self.layout, last)?;
        let bytes = checkpoint.encode(&self.layout);
        // They carry the checksum of the checkpoint.
        for ChainNode { addr, footer } in followed.nodes {
            let mut image = self.read(addr.get().into())?;
            NodeFooter { cp_ver: checkpoint.node_version(), ..footer }.write(&mut image);
            if footer.is_inode() {
                inode::seal(&mut image, &self.layout);
            }
            self.write(addr.get().into(), image)?;
        }
        let start = self.layout.pack_start(loaded.side).get();
        let end = start.saturating_add(last.pack_total_blocks.saturating_sub(1).into());
        for (at, block) in (start..).zip(bytes.chunks(BLOCK_SIZE)) {
            self.write(at, block.to_vec())?;
        }
        self.write(end, bytes.into_iter().take(BLOCK_SIZE).collect())
    }
}
