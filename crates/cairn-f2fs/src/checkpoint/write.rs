//! Writing a checkpoint: the cut with the gate closed, the flight with the gate open.
//!
//! **Cut.** Everything dirty gets its place, its bytes are pinned as they are (nodes and directory blocks are copied when they
//! are changed again), NAT, SIT and pack are encoded. Nothing is written. From then on nodes carry the new version, and
//! what NAT, SIT and counters call "changed" begins anew.
//!
//! **Flight.** The blocks are written while operations go on, then the pack's closing block behind a flush. What changes
//! meanwhile belongs to the next checkpoint, and none is cut before this one has landed. Whoever must not return before his
//! changes are durable waits for the landing ([`Checkpoints::wait_for_flight`]).
//!
//! **Landing.** The parts take the new state for the last one: what was freed before the cut can be written again.

use std::time::Duration;

use cairn_base::Pba;
use cairn_base::stats::Histogram;
use cairn_block::{Batch, BlockDeviceExt, Bytes, Durability, Request};

use super::plan::Next;
use super::{Checkpoints, Reason};
use crate::blocks::Writes;
use crate::error::Result;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{BlockAddr, CheckpointFlags, Log};
use crate::gate::Cut;
use crate::node::PlacedNodes;
use crate::segment::QueuedSummary;

/// Node logs in the order they are written: indirect nodes, directories, files.
const ORDER: [Log; 3] = [Log::ColdNode, Log::HotNode, Log::WarmNode];
/// Blocks that are given to the device at once.
const PART: u64 = 2048;

/// A checkpoint that has been cut.
struct Flight {
    next: Next,
    nodes: PlacedNodes,
    summaries: Vec<QueuedSummary>,
    /// All blocks but the closing one: directories, nodes, summaries, NAT, SIT, the pack.
    writes: Writes,
}

/// What a call came to.
enum Outcome {
    Nothing,
    /// What was dirty has been written, but not as a checkpoint.
    Spilled,
    Flying(Box<Flight>),
}

impl Checkpoints {
    /// Brings everything onto the medium that is dirty when the gate has closed. Does nothing if nothing is (at an unmount:
    /// and the last checkpoint was one, too), or while checkpoints are disabled. Returns whether a checkpoint was written.
    /// Call it outside the gate.
    ///
    /// # Errors
    /// The volume has stopped, or stops now because of this error.
    pub fn write(&self, reason: Reason) -> Result<bool> {
        self.parts.gate.check()?;
        // One after the other: what was freed before a cut must have landed before the next one.
        let _alone = self.writing.lock();
        self.prepare();
        let asked = self.now();
        let cut = self.parts.gate.close();
        self.parts.gate.check()?;
        let begin = self.now();
        record(&self.stats.closing_ns, begin.saturating_sub(asked));
        let outcome = self.cut(&cut, reason);
        if let Err(error) = &outcome {
            self.fail(error);
        }
        record(&self.stats.closed_ns, self.now().saturating_sub(begin));
        drop(cut);
        let flown = match outcome? {
            Outcome::Flying(flight) => self.fly(*flight).inspect_err(|error| self.fail(error)).map(|()| true),
            Outcome::Spilled => Ok(false),
            Outcome::Nothing => {
                self.stats.nothing_to_do.add(1);
                return Ok(false);
            }
        };
        record(&self.stats.whole_ns, self.now().saturating_sub(asked));
        if flown.as_ref().is_ok_and(|flown| *flown) {
            self.stats.written[reason as usize].add(1);
        }
        self.end_flight();
        flown
    }

    fn now(&self) -> Duration {
        self.parts.runtime.monotonic()
    }

    fn fail(&self, error: &crate::Error) {
        self.stats.failed.add(1);
        self.parts.gate.stop(&format!("a checkpoint could not be written: {error}"));
    }

    /// Reads what the cut is going to need, as far as that can be told now. What fails here fails again there.
    fn prepare(&self) {
        if let Some(hook) = self.hook() {
            hook.prepare();
        }
        self.parts.nat.read_ahead(&self.parts.nodes.dirty_nids());
    }

    /// The gate is closed.
    fn cut(&self, cut: &Cut<'_>, reason: Reason) -> Result<Outcome> {
        let disabled = self.is_disabled() && reason != Reason::Resume;
        if disabled && reason != Reason::Memory {
            return Ok(Outcome::Nothing);
        }
        let mut writes = Writes::new();
        let hook = self.hook();
        if let Some(hook) = &hook {
            let entries = hook.cut(cut)?;
            entries.into_iter().for_each(|(addr, image)| writes.push(addr.pba(), Bytes::from_owner(image)));
        }
        if disabled {
            return self.spill(writes);
        }
        let last = self.last();
        let wanted = match reason {
            Reason::Umount => !last.flags.contains(CheckpointFlags::UMOUNT) || self.asks_for_fsck(&last),
            Reason::Pause | Reason::Resume => true,
            _ => false,
        };
        if !self.is_dirty() && !wanted {
            return Ok(Outcome::Nothing);
        }
        let parts = &self.parts;
        let dirty: Vec<_> = ORDER.into_iter().flat_map(|log| parts.nodes.dirty_in(log)).collect();
        let nodes = parts.nodes.place_plain(&dirty, &mut writes)?;
        let summaries = parts.segments.queued_summaries();
        summaries.iter().for_each(|queued| writes.push(queued.at, queued.block.clone()));
        let next = match self.plan(reason, last) {
            Ok(next) => next,
            Err(error) => {
                parts.nodes.written(nodes, false);
                return Err(error);
            }
        };
        self.push_metadata(&next, &mut writes);
        self.depart(&next, reason);
        Ok(Outcome::Flying(Box::new(Flight { next, nodes, summaries, writes })))
    }

    /// The parts begin the next epoch. The gate is closed.
    fn depart(&self, next: &Next, reason: Reason) {
        let parts = &self.parts;
        parts.space.committed();
        self.orphans.committed();
        parts.nodes.set_version(next.checkpoint.node_version());
        parts.segments.keep_all(reason == Reason::Pause);
        parts.gate.depart();
        let mut state = self.state.lock();
        state.newest = next.checkpoint.clone();
        state.disabled = reason == Reason::Pause;
    }

    /// Neither NAT and SIT copies nor the pack are the last checkpoint's.
    fn push_metadata(&self, next: &Next, writes: &mut Writes) {
        for (at, image) in &next.nat.blocks {
            writes.push(*at, Bytes::from_owner(image.clone()));
        }
        for (at, block) in &next.sit.blocks {
            writes.push(*at, block.clone());
        }
        writes.push(self.parts.layout.pack_start(next.side), next.body.clone());
        self.stats.pack_blocks.add((next.body.len() / BLOCK_SIZE) as u64 + 1);
    }

    /// The gate is open.
    fn fly(&self, flight: Flight) -> Result<()> {
        let Flight { next, nodes, summaries, writes } = flight;
        let written = writes.write_in_parts(PART, &*self.parts.device);
        self.parts.nodes.written(nodes, written.is_ok());
        written?;
        self.parts.segments.summaries_written(summaries);
        self.entries_written();
        // Whoever stopped the volume meanwhile wants nothing more to become visible.
        self.parts.gate.check()?;
        self.write_end(&next)?;
        self.discard_freed();
        self.land(next);
        Ok(())
    }

    /// What is dirty gets its place and is written, so that it can leave memory. No checkpoint leads to it.
    fn spill(&self, writes: Writes) -> Result<Outcome> {
        writes.write_in_parts(PART, &*self.parts.device)?;
        for log in ORDER {
            self.parts.nodes.write_plain(&self.parts.nodes.dirty_in(log))?;
        }
        self.entries_written();
        Ok(Outcome::Spilled)
    }

    fn entries_written(&self) {
        if let Some(hook) = self.hook() {
            hook.written();
        }
    }

    /// The closing block, after everything before it.
    fn write_end(&self, next: &Next) -> Result<()> {
        let start = self.parts.layout.pack_start(next.side).get();
        let at = Pba(start + u64::from(next.checkpoint.pack_total_blocks) - 1);
        let durability = Durability { preflush: true, fua: true };
        Ok(self.parts.device.write_durable(at.get() * BLOCK_BYTES, next.end.clone(), durability)?)
    }

    /// Tells the device what is not needed any more: it is not written again before the landing. A device that refuses is not
    /// asked again about these blocks.
    fn discard_freed(&self) {
        if !self.parts.discard {
            return;
        }
        let runs = self.parts.segments.freed_runs();
        let blocks: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        let request = |(start, count): (BlockAddr, u32)| Request::Discard {
            offset: start.bytes(),
            len: u64::from(count) * BLOCK_BYTES,
        };
        let batch = Batch { requests: runs.into_iter().map(request).collect(), durability: Durability::default() };
        if !batch.requests.is_empty() && self.parts.device.submit(batch).wait().is_ok() {
            self.stats.discarded_blocks.add(blocks);
        }
    }

    /// The checkpoint is on the medium: it is the last one.
    fn land(&self, next: Next) {
        self.parts.nat.committed(next.nat);
        self.parts.segments.committed(next.sit);
        self.parts.segments.reset_free();
        let mut state = self.state.lock();
        state.last = next.checkpoint;
        state.side = next.side;
    }

    fn end_flight(&self) {
        self.parts.gate.land();
        self.landed.notify();
    }

    /// Waits until the checkpoint that is under way, if any, is on the medium: before an fsync returns whose nodes count only
    /// from that checkpoint on, or are part of it.
    ///
    /// # Errors
    /// It failed.
    pub fn wait_for_flight(&self) -> Result<()> {
        if !self.parts.gate.is_flying() {
            return Ok(());
        }
        let version = self.version();
        let landed = || self.state.lock().last.version.wrapping_sub(version) < u64::MAX / 2;
        self.parts.runtime.wait_until(&self.landed, &mut || landed() || !self.parts.gate.is_flying());
        if landed() { Ok(()) } else { self.parts.gate.check() }
    }
}

fn record(histogram: &Histogram, time: Duration) {
    histogram.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}
