//! Writes the tables anew: NAT, SIT, summaries, and the checkpoint in the pack that is not in use.

use std::collections::{BTreeMap, BTreeSet};

use cairn_base::units::as_index;

use super::super::claims::Use;
use super::super::context::Totals;
use super::super::nodes::{DAMAGED, NodeState, QUOTA};
use super::edit::Edit;
use crate::error::{Error, Result};
use crate::format::checkpoint::LogPosition;
use crate::format::layout::Side;
use crate::format::log::AllocType;
use crate::format::pack::PackMap;
use crate::format::summary::{ENTRIES, Summary, SummaryBlock, info_journal};
use crate::format::units::{BLOCK_SIZE, Nid, SegNo};
use crate::format::{Checkpoint, CheckpointFlags, Layout, Log, SitEntry, bits, nat, orphan, sit};

/// Data summaries of a pack in full.
const DATA_SUMMARIES: u32 = 3;

/// Flags that describe one pack, or that a repair makes untrue. A change of the size that was
/// interrupted is the next mount's to end.
const DROPPED: CheckpointFlags = CheckpointFlags::OF_ONE_PACK
    .difference(CheckpointFlags::RESIZEFS)
    .union(CheckpointFlags::ERROR)
    .union(CheckpointFlags::FSCK);

/// The logs, and the summary blocks of their segments.
struct Logs {
    positions: [LogPosition; Log::COUNT],
    summaries: BTreeMap<SegNo, SummaryBlock>,
}

impl Edit<'_> {
    /// Writes all tables. `keeps` if blocks that the SIT calls used may be in use by what the walk
    /// could not read; the counts that say so stay, too, if they may.
    pub(super) fn write_tables(&mut self, keeps: bool) -> Result<()> {
        let logs = self.logs()?;
        let (sit_bitmap, free) = self.write_sit(&logs, keeps)?;
        let nat_bitmap = self.write_nat()?;
        let volume = self.context.clone();
        let last = &volume.volume.loaded.checkpoint;
        let orphans = self.orphans()?;
        let map = PackMap::plan(&self.layout, orphans.len(), DATA_SUMMARIES, true)
            .ok_or_else(|| Error::Option("a checkpoint has no room for the orphans".into()))?;
        let totals = &self.context.totals;
        let least = |stored: u64| if keeps && self.keeps_counts { stored } else { 0 };
        let number = |count, stored: u32| {
            u32::try_from(Totals::get(count).max(least(stored.into()))).unwrap_or(u32::MAX)
        };
        let mut flags = last.flags.difference(DROPPED)
            | CheckpointFlags::CRC_RECOVERY
            | CheckpointFlags::UMOUNT;
        flags.set(CheckpointFlags::ORPHAN_PRESENT, !orphans.is_empty());
        if !self.is_quota_wrong {
            flags.remove(CheckpointFlags::QUOTA_NEED_FSCK);
        }
        let next = Some(last.next_free_nid).filter(|nid| self.layout.is_nid(*nid));
        let mut checkpoint = Checkpoint {
            version: last.version.wrapping_add(1),
            valid_block_count: Totals::get(&totals.blocks).max(least(last.valid_block_count)),
            valid_node_count: number(&totals.nodes, last.valid_node_count),
            valid_inode_count: number(&totals.inodes, last.valid_inode_count),
            free_segment_count: free,
            logs: logs.positions,
            flags,
            pack_total_blocks: map.total(),
            pack_start_sum: map.start_sum(),
            next_free_nid: next.unwrap_or(Nid::ROOT),
            sit_bitmap,
            nat_bitmap,
            ..last.clone()
        };
        let mut pack = checkpoint.encode(&self.layout);
        let end: Vec<u8> = pack.iter().copied().take(BLOCK_SIZE).collect();
        pack.extend(orphan::encode(&orphans).into_iter().flatten());
        let kbytes = self.context.current.as_ref().map_or(0, |current| current.kbytes_written);
        for log in Log::ALL {
            let segno = log.of(&logs.positions).segno;
            let empty = SummaryBlock::empty(log.is_node());
            let mut block = logs.summaries.get(&segno).cloned().unwrap_or(empty);
            block.is_node = log.is_node();
            let journal = if log == Log::HotNode { info_journal(kbytes) } else { [0; _] };
            pack.extend(SummaryBlock { journal, ..block }.encode());
        }
        pack.extend(end);
        let mut at = self.layout.pack_start(volume.volume.loaded.side.other()).get();
        for block in pack.chunks(BLOCK_SIZE) {
            self.write(at, block.to_vec())?;
            at = at.saturating_add(1);
        }
        Ok(())
    }

    /// Where the logs go on, and the summary blocks that change. Those of no log are written.
    fn logs(&mut self) -> Result<Logs> {
        let context = self.context.clone();
        let old = context.volume.loaded.checkpoint.logs;
        let mut positions = old;
        let mut left = BTreeSet::new();
        for log in Log::ALL {
            let position = *log.of(&old);
            if !self.can_go_on(log, position) {
                let what = if log.is_node() { Use::Node } else { Use::Data };
                let segno = self.take_segment(what)?.ok_or(Error::NO_SPACE)?;
                left.insert(position.segno);
                let fresh = LogPosition { segno, blkoff: 0, alloc: AllocType::Lfs };
                *log.of_mut(&mut positions) = fresh;
            }
        }
        let mut wrong: BTreeMap<SegNo, Vec<(u16, Use, Summary)>> = BTreeMap::new();
        for (addr, (what, summary)) in &self.owners {
            if let Some((segno, offset)) = self.layout.segment_of(*addr) {
                wrong.entry(segno).or_default().push((offset, *what, *summary));
            }
        }
        let now: BTreeSet<SegNo> = positions.iter().map(|position| position.segno).collect();
        left.extend(wrong.keys().copied().chain(now.iter().copied()));
        let mut summaries = BTreeMap::new();
        for segno in left {
            let mut block = self.summary(segno)?;
            for (offset, what, summary) in wrong.remove(&segno).unwrap_or_default() {
                block.is_node = what == Use::Node;
                if let Some(entry) = block.entries.get_mut(usize::from(offset)) {
                    *entry = summary;
                }
            }
            if !now.contains(&segno) {
                self.write(self.layout.summary_address(segno).get(), block.encode())?;
            }
            summaries.insert(segno, block);
        }
        Ok(Logs { positions, summaries })
    }

    /// Can the log take its next blocks where it is?
    fn can_go_on(&self, log: Log, position: LogPosition) -> bool {
        let segno = position.segno;
        let claims = &self.context.claims;
        let other = if log.is_node() { Use::Data } else { Use::Node };
        if segno.get() >= self.layout.main_segments
            || claims.has(segno, other)
            || position.blkoff >= self.layout.usable_blocks(segno)
        {
            return false;
        }
        let from = usize::from(position.blkoff);
        let end = match position.alloc {
            AllocType::Lfs => ENTRIES,
            AllocType::Ssr => from.saturating_add(1),
        };
        let is_kept = self.sit_entry(segno).ok().flatten().map(|entry| entry.valid_map);
        let is_used = |map: &[u8]| bits::next_set(map, from, end).is_some();
        !is_used(&claims.valid_map(segno)) && !is_kept.is_some_and(|map| is_used(&map))
    }

    /// The summary block of a segment as it is now.
    fn summary(&self, segno: SegNo) -> Result<SummaryBlock> {
        let checkpoint = &self.context.volume.loaded.checkpoint;
        let log = Log::ALL.into_iter().find(|log| checkpoint.log(*log).segno == segno);
        if let (Some(log), Some(current)) = (log, &self.context.current) {
            let entries = log.of(&current.entries).clone();
            return Ok(SummaryBlock { entries, ..SummaryBlock::empty(log.is_node()) });
        }
        let image = self.read(self.layout.summary_address(segno).get())?;
        let is_node = self.context.claims.has(segno, Use::Node);
        Ok(SummaryBlock::decode(&image).unwrap_or_else(|_| SummaryBlock::empty(is_node)))
    }

    /// Writes SIT blocks that change. Returns which copies are current then, and how many segments
    /// are free.
    fn write_sit(&self, logs: &Logs, keeps: bool) -> Result<(Vec<u8>, u32)> {
        let checkpoint = &self.context.volume.loaded.checkpoint;
        let mut bitmap = checkpoint.sit_bitmap.clone();
        let mut free = 0_u32;
        for block in 0..self.layout.sit_blocks_used() {
            let side = checkpoint.sit_side(block);
            let old = self.read(self.layout.sit_address(block, side).get())?;
            let mut new = old.clone();
            let first = block.saturating_mul(sit::SEGMENTS_PER_BLOCK);
            let end = first.saturating_add(sit::SEGMENTS_PER_BLOCK);
            for segno in (first..end.min(self.layout.main_segments)).map(SegNo) {
                let entry = self.right_segment(segno, &logs.positions, keeps)?;
                let is_current = logs.positions.iter().any(|log| log.segno == segno);
                let is_usable = self.layout.usable_blocks(segno) > 0;
                if entry.valid_blocks() == 0 && !is_current && is_usable {
                    free = free.saturating_add(1);
                }
                sit::set_entry(&mut new, Layout::sit_place(segno).1, &entry);
            }
            if new != old {
                bits::flip(&mut bitmap, as_index(block));
                self.write(self.layout.sit_address(block, side.other()).get(), new)?;
            }
        }
        Ok((bitmap, free))
    }

    /// The entry that a segment must have. `logs` says where the logs go on.
    pub(super) fn right_segment(
        &self,
        segno: SegNo,
        logs: &[LogPosition; Log::COUNT],
        keeps: bool,
    ) -> Result<SitEntry> {
        let claims = &self.context.claims;
        let old = self.sit_entry(segno)?;
        let mut valid_map = claims.valid_map(segno);
        if let Some(old) = old.as_ref().filter(|_| keeps) {
            valid_map.iter_mut().zip(old.valid_map).for_each(|(to, bits)| *to |= bits);
        }
        let new_blocks = (0_u16..).take(ENTRIES).filter(|offset| {
            self.taken.contains_key(&segno)
                && self.owners.contains_key(&self.layout.address(segno, *offset))
        });
        for offset in new_blocks {
            bits::set(&mut valid_map, offset.into());
        }
        for addr in &self.undecided {
            if let Some((_, offset)) = self.layout.segment_of(*addr).filter(|at| at.0 == segno) {
                bits::clear(&mut valid_map, offset.into());
            }
        }
        let current = Log::ALL.into_iter().find(|log| log.of(logs).segno == segno);
        let is_node = claims.has(segno, Use::Node) || self.taken.get(&segno) == Some(&Use::Node);
        let is_data = claims.has(segno, Use::Data) || self.taken.get(&segno) == Some(&Use::Data);
        let stored = old.as_ref().map(|entry| entry.log);
        let fits = |log: &Log| match (is_node, is_data) {
            (false, false) => true,
            (true, _) => log.is_node(),
            (false, true) => !log.is_node(),
        };
        let usual = if is_node { Log::WarmNode } else { Log::WarmData };
        let log = current.or(stored.filter(fits)).unwrap_or(usual);
        Ok(SitEntry { log, valid_map, mtime: old.map_or(0, |entry| entry.mtime) })
    }

    /// Writes NAT blocks that change, with the journal. Returns which copies are current then.
    fn write_nat(&self) -> Result<Vec<u8>> {
        let volume = &self.context.volume;
        let mut bitmap = volume.loaded.checkpoint.nat_bitmap.clone();
        let mut entries: BTreeMap<Nid, _> = volume.journals.nat.0.iter().copied().collect();
        entries.extend(self.nat.iter().map(|(nid, entry)| (*nid, *entry)));
        let blocks: BTreeSet<u32> = entries.keys().map(|nid| Layout::nat_place(*nid).0).collect();
        for block in blocks {
            let side = Side::of_bit(bits::test(&bitmap, as_index(block)));
            let old = self.read(self.layout.nat_address(block, side).get())?;
            let mut new = old.clone();
            for (nid, entry) in &entries {
                let (place, index) = Layout::nat_place(*nid);
                if place == block {
                    nat::set_entry(&mut new, index, *entry);
                }
            }
            if new != old {
                bits::flip(&mut bitmap, as_index(block));
                self.write(self.layout.nat_address(block, side.other()).get(), new)?;
            }
        }
        Ok(bitmap)
    }

    /// The inodes that wait for their deletion: without a name and a link.
    fn orphans(&self) -> Result<Vec<Nid>> {
        let volume = &self.context.volume;
        let listed = match volume.loaded.orphans(&volume.buffers, &self.layout) {
            Ok(listed) => listed,
            Err(Error::Corrupt(_)) => self.without_links(),
            Err(error) => return Err(error),
        };
        let is_orphan = |node: &NodeState| {
            let is_directory = node.kind() == Some(cairn_vfs::FileKind::Directory);
            node.links() == 0 && (node.other() == 0 || is_directory || node.is(DAMAGED))
        };
        let is_kept = |ino: &Nid| {
            let node = self.context.nodes.inode(*ino).filter(|node| !node.is(QUOTA));
            *ino != Nid::ROOT && node.is_some_and(is_orphan) && !self.nat.contains_key(ino)
        };
        let kept: BTreeSet<Nid> = listed.into_iter().filter(is_kept).collect();
        Ok(kept.into_iter().collect())
    }

    fn without_links(&self) -> Vec<Nid> {
        let inodes = self.context.nodes.iter().filter(|(nid, node)| node.ino() == *nid);
        let without = inodes.filter(|(nid, node)| {
            let is_file = node.kind().is_some_and(|kind| kind != cairn_vfs::FileKind::Directory);
            *nid != Nid::ROOT && is_file && node.links() == 0 && node.other() == 0
        });
        without.map(|(nid, _)| nid).collect()
    }
}
