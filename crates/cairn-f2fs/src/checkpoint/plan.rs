//! The next checkpoint: its NAT, SIT and pack, encoded.

use cairn_base::sabotage::Safeguard;

use super::{Checkpoints, Reason};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checkpoint::{CHECKSUM_AT, LARGE_CHECKSUM_AT};
use crate::format::layout::Side;
use crate::format::pack::PackMap;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Checkpoint, CheckpointFlags, Nid, orphan};
use crate::nat::NatPlan;
use crate::segment::{SitPlan, Summaries};

/// Everything that the next checkpoint consists of.
pub(super) struct CheckpointPlan {
    pub(super) checkpoint: Checkpoint,
    pub(super) side: Side,
    pub(super) nat: NatPlan,
    pub(super) sit: SitPlan,
    /// The pack's blocks but the last one.
    pub(super) body: Vec<u8>,
    /// The last block: the first one's copy.
    pub(super) end: Vec<u8>,
}

impl Checkpoints {
    /// Plans the next checkpoint, which NAT and SIT count as in flight from now on. The operation
    /// lock is held exclusively, and every dirty node has its address.
    ///
    /// # Errors
    /// A NAT block cannot be read, or there are more orphans than a pack has room for.
    pub(super) fn plan(&self, reason: Reason, last: Checkpoint) -> Result<CheckpointPlan> {
        let parts = &self.parts;
        let (side, raise) = {
            let state = self.state.lock();
            (state.side.other(), state.raise)
        };
        let nat = parts.nat.plan()?;
        let sit = parts.segments.plan();
        let node_summaries = reason == Reason::Umount;
        let summaries = parts.segments.summaries(
            &nat.journal,
            &sit.journal,
            node_summaries,
            self.kbytes_written(),
        );
        let orphans =
            if Safeguard::OrphanBlocks.is_off() { Vec::new() } else { self.orphans.list() };
        let data_blocks = (summaries.data.len() / BLOCK_SIZE) as u32;
        let map = PackMap::plan(&parts.layout, orphans.len(), data_blocks, node_summaries);
        let map = map.ok_or(Corrupt::Orphan {
            what: "more than a pack has room for",
            value: orphans.len() as u64,
        })?;
        let counts = parts.space.counts();
        let mut flags = last.flags.difference(CheckpointFlags::OF_ONE_PACK)
            | raise
            | CheckpointFlags::CRC_RECOVERY;
        flags.set(CheckpointFlags::UMOUNT, reason == Reason::Umount);
        flags.set(CheckpointFlags::TRIMMED, reason == Reason::Umount && self.is_trimmed());
        flags.set(CheckpointFlags::DISABLED, reason == Reason::Pause);
        flags.set(CheckpointFlags::ORPHAN_PRESENT, !orphans.is_empty());
        flags.set(CheckpointFlags::COMPACT_SUM, summaries.compact);
        if parts.space.is_wrong() {
            flags |= CheckpointFlags::FSCK;
        }
        let mut checkpoint = Checkpoint {
            version: last.version.wrapping_add(1),
            valid_block_count: counts.valid_blocks,
            valid_node_count: counts.valid_nodes,
            valid_inode_count: counts.valid_inodes,
            free_segment_count: parts.segments.free_segment_count(),
            logs: summaries.logs,
            flags,
            pack_total_blocks: map.total(),
            pack_start_sum: map.start_sum(),
            next_free_nid: parts.nat.next_free(),
            elapsed_time: parts.segments.elapsed(),
            sit_bitmap: sit.bitmap.clone(),
            nat_bitmap: nat.bitmap.clone(),
            ..last
        };
        let head = checkpoint.encode(&parts.layout);
        debug_assert!([CHECKSUM_AT, LARGE_CHECKSUM_AT].contains(&checkpoint.checksum_offset));
        let end = head[..BLOCK_SIZE].to_vec();
        let body = body(head, &orphans, summaries);
        assert_eq!(
            body.len() / BLOCK_SIZE + 1,
            map.total() as usize,
            "the pack is as long as its head says"
        );
        Ok(CheckpointPlan { checkpoint, side, nat, sit, body, end })
    }

    fn kbytes_written(&self) -> u64 {
        let placed: u64 =
            self.parts.segments.stats.placed.iter().map(cairn_base::stats::Counter::get).sum();
        placed * (BLOCK_BYTES / 1024)
    }
}

/// The pack without its closing block.
fn body(head: Vec<u8>, orphans: &[Nid], summaries: Summaries) -> Vec<u8> {
    let mut body = head;
    orphan::encode(orphans).into_iter().for_each(|block| body.extend(block));
    body.extend(summaries.data);
    body.extend(summaries.nodes);
    body
}
