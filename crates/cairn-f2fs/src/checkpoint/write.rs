//! Writing a checkpoint.

use cairn_base::Pba;
use cairn_block::{Batch, BlockDeviceExt, Bytes, Durability, Request};

use super::{Checkpoints, Reason};
use crate::blocks::Writes;
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::checkpoint::{CHECKSUM_AT, LARGE_CHECKSUM_AT};
use crate::format::layout::Side;
use crate::format::pack::PackMap;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Checkpoint, CheckpointFlags, Log, Nid, orphan};
use crate::nat::NatPlan;
use crate::segment::{SitPlan, Summaries};

/// Flags that describe one pack and not the volume.
const OF_ONE_PACK: CheckpointFlags = CheckpointFlags::UMOUNT
    .union(CheckpointFlags::ORPHAN_PRESENT)
    .union(CheckpointFlags::COMPACT_SUM)
    .union(CheckpointFlags::FASTBOOT)
    .union(CheckpointFlags::NAT_BITS)
    .union(CheckpointFlags::TRIMMED)
    .union(CheckpointFlags::NOCRC_RECOVERY);

/// Node logs in the order they are written: indirect nodes, directories, files.
const ORDER: [Log; 3] = [Log::ColdNode, Log::HotNode, Log::WarmNode];

/// Everything that is going to be the last checkpoint.
struct Next {
    checkpoint: Checkpoint,
    side: Side,
    nat: NatPlan,
    sit: SitPlan,
    /// The pack's blocks but the last one.
    body: Vec<u8>,
    /// The last block: the first one's copy.
    end: Vec<u8>,
}

impl Checkpoints {
    /// Brings everything onto the medium that is dirty when the gate has closed. Does nothing if nothing is (at an unmount:
    /// and the last checkpoint was one, too). Returns whether a checkpoint was written. Call it outside the gate.
    ///
    /// # Errors
    /// The volume has stopped, or stops now because of this error.
    pub fn write(&self, reason: Reason) -> Result<bool> {
        self.parts.gate.check()?;
        let hook = self.hook();
        if let Some(hook) = &hook {
            // Nothing is lost if it fails: what is dirty stays so, and the error comes again.
            hook.prepare()?;
        }
        let cut = self.parts.gate.close();
        self.parts.gate.check()?;
        let begin = self.parts.runtime.monotonic();
        let outcome = hook.as_ref().map_or(Ok(()), |hook| hook.cut(&cut)).and_then(|()| self.write_cut(reason));
        match &outcome {
            Ok(true) => self.stats.written[reason as usize].add(1),
            Ok(false) => self.stats.nothing_to_do.add(1),
            Err(error) => {
                self.stats.failed.add(1);
                self.parts.gate.stop(&format!("a checkpoint could not be written: {error}"));
            }
        }
        let closed = self.parts.runtime.monotonic().saturating_sub(begin);
        self.stats.closed_ns.record(u64::try_from(closed.as_nanos()).unwrap_or(u64::MAX));
        drop(cut);
        outcome
    }

    /// The gate is closed.
    fn write_cut(&self, reason: Reason) -> Result<bool> {
        let last = self.last();
        let closed_cleanly = last.flags.contains(CheckpointFlags::UMOUNT);
        if !self.is_dirty() && (reason != Reason::Umount || closed_cleanly) {
            return Ok(false);
        }
        let parts = &self.parts;
        for log in ORDER {
            parts.nodes.write_plain(&parts.nodes.dirty_in(log))?;
        }
        parts.segments.write_summaries()?;
        let next = self.plan(reason, last)?;
        self.write_body(&next)?;
        if let Some(hook) = self.hook() {
            hook.settle()?;
        }
        self.write_end(&next)?;
        self.discard_freed();
        self.commit(next);
        Ok(true)
    }

    /// Decides what the next checkpoint is. Changes nothing.
    fn plan(&self, reason: Reason, last: Checkpoint) -> Result<Next> {
        let parts = &self.parts;
        let (side, raise) = {
            let state = self.state.lock();
            (state.side.other(), state.raise)
        };
        let umount = reason == Reason::Umount;
        let nat = parts.nat.plan()?;
        let sit = parts.segments.plan();
        let summaries = parts.segments.summaries(&nat.journal, &sit.journal, umount, self.kbytes_written());
        let orphans = self.orphans.list();
        let data_blocks = (summaries.data.len() / BLOCK_SIZE) as u32;
        let map = PackMap::plan(&parts.layout, orphans.len(), data_blocks, umount);
        let map = map.ok_or(Corrupt::Orphan { what: "more than a pack has room for", value: orphans.len() as u64 })?;
        let counts = parts.space.counts();
        let mut flags = last.flags.difference(OF_ONE_PACK) | raise | CheckpointFlags::CRC_RECOVERY;
        flags.set(CheckpointFlags::UMOUNT, umount);
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
        assert_eq!(body.len() / BLOCK_SIZE + 1, map.total() as usize, "the pack is as long as its head says");
        Ok(Next { checkpoint, side, nat, sit, body, end })
    }

    fn kbytes_written(&self) -> u64 {
        let placed: u64 = self.parts.segments.stats.placed.iter().map(cairn_base::stats::Counter::get).sum();
        placed * (BLOCK_BYTES / 1024)
    }

    /// Everything but the closing block. Neither NAT and SIT copies nor the pack are the last checkpoint's.
    fn write_body(&self, next: &Next) -> Result<()> {
        let mut writes = Writes::new();
        for (at, image) in &next.nat.blocks {
            writes.push(*at, Bytes::from_owner(image.clone()));
        }
        for (at, block) in &next.sit.blocks {
            writes.push(*at, block.clone());
        }
        writes.push(self.parts.layout.pack_start(next.side), next.body.clone());
        self.stats.pack_blocks.add((next.body.len() / BLOCK_SIZE) as u64 + 1);
        writes.write(&*self.parts.device)
    }

    /// The closing block, after everything before it.
    fn write_end(&self, next: &Next) -> Result<()> {
        let start = self.parts.layout.pack_start(next.side).get();
        let at = Pba(start + u64::from(next.checkpoint.pack_total_blocks) - 1);
        let durability = Durability { preflush: true, fua: true };
        Ok(self.parts.device.write_durable(at.get() * BLOCK_BYTES, next.end.clone(), durability)?)
    }

    /// Tells the device what is not needed any more. Nothing was placed since the checkpoint is on the medium, so nobody
    /// writes there. A device that refuses is not asked again about these blocks.
    fn discard_freed(&self) {
        if !self.parts.discard {
            return;
        }
        let runs = self.parts.segments.freed_runs();
        let blocks: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        let request = |(start, count): (crate::format::BlockAddr, u32)| Request::Discard {
            offset: start.bytes(),
            len: u64::from(count) * BLOCK_BYTES,
        };
        let batch = Batch { requests: runs.into_iter().map(request).collect(), durability: Durability::default() };
        if !batch.requests.is_empty() && self.parts.device.submit(batch).wait().is_ok() {
            self.stats.discarded_blocks.add(blocks);
        }
    }

    /// The checkpoint is on the medium: it is the last one.
    fn commit(&self, next: Next) {
        let parts = &self.parts;
        let (version, node_version) = (next.checkpoint.version, next.checkpoint.node_version());
        parts.nat.committed(next.nat);
        parts.segments.committed(next.sit);
        parts.space.committed();
        self.orphans.committed();
        parts.nodes.set_version(node_version);
        {
            let mut state = self.state.lock();
            state.last = next.checkpoint;
            state.side = next.side;
        }
        if let Some(hook) = self.hook() {
            hook.committed(version);
        }
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
