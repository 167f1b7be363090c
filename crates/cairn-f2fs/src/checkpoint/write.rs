//! Writing a checkpoint: the snapshot is taken with the operation lock held exclusively, and
//! written after the lock is released.
//!
//! **Snapshot.** Everything dirty gets its place, its bytes are pinned as they are (nodes and
//! directory blocks are copied when they are changed again), NAT, SIT and pack are encoded. Nothing
//! is written. From then on nodes carry the new version, and what NAT, SIT and counters call
//! "changed" is empty again.
//!
//! **In flight.** The blocks are written while operations continue, then the pack's closing block
//! behind a flush. What changes meanwhile belongs to the next checkpoint, which takes its snapshot
//! after this one has completed. A caller that must not return before its changes are durable waits
//! for the completion ([`Checkpoints::wait_for_checkpoint_in_flight`]).
//!
//! **Completed.** The new state is the last checkpoint's: blocks that were freed before the
//! snapshot can be written again.

use std::time::Duration;

use cairn_base::Pba;
use cairn_base::sabotage::Safeguard;
use cairn_base::stats::Histogram;
use cairn_block::{Batch, BlockDeviceExt, Bytes, Durability, Request};

use super::plan::CheckpointPlan;
use super::{Checkpoints, Reason};
use crate::blocks::Writes;
use crate::error::Result;
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{CheckpointFlags, Log};
use crate::node::PlacedNodes;
use crate::operation_lock::CheckpointGuard;
use crate::segment::{BlockRun, QueuedSummary};

/// Node logs in the order they are written: indirect nodes, directories, files.
const ORDER: [Log; 3] = [Log::ColdNode, Log::HotNode, Log::WarmNode];
/// Blocks that are given to the device at once.
const PART: u64 = 2048;
/// Runs of blocks that are discarded at once.
const RUNS_AT_ONCE: usize = 1024;

/// The blocks of a checkpoint, taken with the operation lock held exclusively.
struct Snapshot {
    plan: CheckpointPlan,
    nodes: PlacedNodes,
    summaries: Vec<QueuedSummary>,
    /// All blocks but the closing one: directories, nodes, summaries, NAT, SIT, the pack.
    writes: Writes,
}

/// The result of a call.
enum Outcome {
    Nothing,
    /// Dirty blocks have been written, but without a checkpoint.
    Spilled,
    InFlight(Box<Snapshot>),
}

impl Checkpoints {
    /// Writes everything to the medium that is dirty when the operation lock is held exclusively.
    /// Does nothing if nothing is dirty (at an unmount only if the last checkpoint was one of an
    /// unmount, too), or while checkpoints are disabled. Returns whether a checkpoint was written.
    /// Call it without the operation lock.
    ///
    /// # Errors
    /// The volume has stopped, or stops now because of this error.
    pub fn write(&self, reason: Reason) -> Result<bool> {
        self.parts.operation_lock.check()?;
        // One checkpoint at a time: blocks freed before a snapshot must be free on the medium
        // before the next one.
        let _alone = self.writing.lock();
        self.prepare();
        let asked = self.now();
        let guard = self.parts.operation_lock.lock_all();
        self.parts.operation_lock.check()?;
        let begin = self.now();
        record(&self.stats.closing_ns, begin.saturating_sub(asked));
        let outcome = self.snapshot(&guard, reason);
        if let Err(error) = &outcome {
            self.fail(error);
        }
        record(&self.stats.closed_ns, self.now().saturating_sub(begin));
        drop(guard);
        let completed = match outcome? {
            Outcome::InFlight(snapshot) => {
                self.write_snapshot(*snapshot).inspect_err(|error| self.fail(error)).map(|()| true)
            }
            Outcome::Spilled => Ok(false),
            Outcome::Nothing => {
                self.stats.nothing_to_do.add(1);
                return Ok(false);
            }
        };
        let took = self.now().saturating_sub(asked);
        record(&self.stats.whole_ns, took);
        tracing::debug!("wrote a checkpoint ({reason:?}): {} us", took.as_micros());
        if completed.as_ref().is_ok_and(|completed| *completed) {
            self.stats.written[reason as usize].add(1);
        }
        self.notify_completed();
        completed
    }

    fn now(&self) -> Duration {
        self.parts.runtime.monotonic()
    }

    fn fail(&self, error: &crate::Error) {
        self.stats.failed.add(1);
        self.parts.operation_lock.stop_for("a checkpoint could not be written", error);
    }

    /// Reads the blocks that the snapshot will need, as far as they are known. Errors are ignored
    /// here, because the snapshot meets them again.
    fn prepare(&self) {
        if let Some(hook) = self.hook() {
            hook.prepare();
        }
        self.parts.nat.read_ahead(&self.parts.nodes.dirty_nids());
    }

    /// Takes the snapshot. The operation lock is held exclusively.
    fn snapshot(&self, guard: &CheckpointGuard<'_>, reason: Reason) -> Result<Outcome> {
        let disabled = self.is_disabled() && reason != Reason::Resume;
        if disabled && reason != Reason::Memory {
            return Ok(Outcome::Nothing);
        }
        let mut writes = Writes::new();
        let hook = self.hook();
        if let Some(hook) = &hook {
            let entries = hook.snapshot(guard)?;
            entries
                .into_iter()
                .for_each(|(addr, image)| writes.push(addr.pba(), Bytes::from_owner(image)));
        }
        if disabled {
            return self.spill(writes);
        }
        let last = self.last();
        let wanted = match reason {
            Reason::Umount => {
                !last.flags.contains(CheckpointFlags::UMOUNT) || self.may_say_trimmed(&last)
            }
            Reason::Pause | Reason::Resume | Reason::Resize => true,
            _ => false,
        };
        if !self.is_dirty() && !wanted && !self.asks_for_flags(&last) {
            return Ok(Outcome::Nothing);
        }
        let parts = &self.parts;
        let dirty: Vec<_> = ORDER.into_iter().flat_map(|log| parts.nodes.dirty_in(log)).collect();
        let nodes = parts.nodes.place_plain(&dirty, &mut writes)?;
        let summaries = parts.segments.queued_summaries();
        summaries.iter().for_each(|queued| writes.push(queued.at, queued.block.clone()));
        let plan = match self.plan(reason, last) {
            Ok(plan) => plan,
            Err(error) => {
                parts.nodes.written(nodes, false);
                return Err(error);
            }
        };
        self.push_metadata(&plan, &mut writes);
        self.start_next_epoch(&plan, reason);
        Ok(Outcome::InFlight(Box::new(Snapshot { plan, nodes, summaries, writes })))
    }

    /// The parts begin the next epoch. The operation lock is held exclusively.
    fn start_next_epoch(&self, plan: &CheckpointPlan, reason: Reason) {
        let parts = &self.parts;
        parts.space.committed();
        self.orphans.committed();
        parts.nodes.set_version(plan.checkpoint.node_version());
        parts.segments.keep_all(reason == Reason::Pause);
        parts.operation_lock.begin_checkpoint();
        let mut state = self.state.lock();
        state.newest = plan.checkpoint.clone();
        state.disabled = reason == Reason::Pause;
    }

    /// Adds the NAT and SIT copies and the pack. None of them overwrites the last checkpoint's.
    fn push_metadata(&self, plan: &CheckpointPlan, writes: &mut Writes) {
        for (at, image) in &plan.nat.blocks {
            writes.push(*at, Bytes::from_owner(image.clone()));
        }
        for (at, block) in &plan.sit.blocks {
            writes.push(*at, block.clone());
        }
        writes.push(self.parts.layout.pack_start(plan.side), plan.body.clone());
        self.stats.pack_blocks.add((plan.body.len() / BLOCK_SIZE) as u64 + 1);
    }

    /// Writes the snapshot and completes the checkpoint. The operation lock is free.
    fn write_snapshot(&self, snapshot: Snapshot) -> Result<()> {
        let Snapshot { plan, nodes, summaries, writes } = snapshot;
        let written = writes.write_in_parts(PART, &*self.parts.device);
        self.parts.nodes.written(nodes, written.is_ok());
        written?;
        self.parts.segments.summaries_written(summaries);
        self.entries_written();
        // If the volume has been stopped meanwhile, nothing more may reach the medium.
        self.parts.operation_lock.check()?;
        self.write_end(&plan)?;
        self.discard_freed();
        self.complete(plan);
        Ok(())
    }

    /// Writes dirty blocks to new addresses so that they can leave memory. No checkpoint leads to
    /// them.
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

    /// Writes the closing block, after all other blocks.
    fn write_end(&self, plan: &CheckpointPlan) -> Result<()> {
        let start = self.parts.layout.pack_start(plan.side).get();
        let at = Pba(start + u64::from(plan.checkpoint.pack_total_blocks) - 1);
        let durability = Durability {
            preflush: !Safeguard::PackFlush.is_off(),
            fua: !Safeguard::PackForce.is_off(),
        };
        Ok(self.parts.device.write_durable(at.get() * BLOCK_BYTES, plan.end.clone(), durability)?)
    }

    /// Discards freed blocks, to which nothing is written before the checkpoint has completed. If
    /// the device refuses, these blocks are not tried again.
    fn discard_freed(&self) {
        if !self.parts.discard {
            return;
        }
        if let Err(error) = self.discard(&self.parts.segments.freed_runs()) {
            tracing::debug!(%error, "freed blocks are not discarded");
        }
    }

    /// Discards free blocks and records that. No block may be allocated meanwhile. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn discard(&self, runs: &[BlockRun]) -> Result<u64> {
        let request = |(start, count): &BlockRun| Request::Discard {
            offset: start.bytes(),
            len: u64::from(*count) * BLOCK_BYTES,
        };
        for part in runs.chunks(RUNS_AT_ONCE) {
            let batch = Batch {
                requests: part.iter().map(request).collect(),
                durability: Durability::default(),
            };
            self.parts.device.submit(batch).wait()?;
            self.parts.segments.discarded(part);
        }
        let blocks: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        self.stats.discarded_blocks.add(blocks);
        Ok(blocks * BLOCK_BYTES)
    }

    /// Makes the checkpoint, which is on the medium, the last one.
    fn complete(&self, plan: CheckpointPlan) {
        self.parts.nat.committed(plan.nat);
        self.parts.segments.committed(plan.sit);
        self.parts.segments.reset_free();
        let mut state = self.state.lock();
        state.last = plan.checkpoint;
        state.side = plan.side;
    }

    fn notify_completed(&self) {
        self.parts.operation_lock.complete_checkpoint();
        self.completed.notify();
    }

    /// Waits until the checkpoint in flight, if any, is on the medium. An fsync calls this if its
    /// nodes are part of that checkpoint, or are valid only after it.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn wait_for_checkpoint_in_flight(&self) -> Result<()> {
        if !self.parts.operation_lock.checkpoint_in_flight() {
            return Ok(());
        }
        let version = self.version();
        let completed = || self.state.lock().last.version.wrapping_sub(version) < u64::MAX / 2;
        self.parts.runtime.wait_until(&self.completed, &mut || {
            completed() || !self.parts.operation_lock.checkpoint_in_flight()
        });
        if completed() { Ok(()) } else { self.parts.operation_lock.check() }
    }
}

fn record(histogram: &Histogram, time: Duration) {
    histogram.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}
