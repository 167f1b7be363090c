//! Commits a transaction (`jbd2_journal_commit_transaction`): freezes its buffers, writes it to the
//! log, and puts it on the checkpoint list.
//!
//! The log gets revoke blocks, descriptor blocks with their metadata blocks, and behind a flush the
//! commit block.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use cairn_base::checksum::crc32_be;
use cairn_base::sabotage::Safeguard;
use cairn_base::stats::Counter;
use cairn_base::{Pba, Tid};
use cairn_block::{Batch, Durability};
use cairn_cache::block::{Buffer, Image};

use crate::checkpoint::list::{CheckpointTransaction, JournalHead};
use crate::checkpoint::parts::CheckpointParts;
use crate::error::Result;
use crate::format::MAGIC;
use crate::format::tags::{Tag, flag};
use crate::journal::Journal;
use crate::stats::nanoseconds;
use crate::transaction::{CommitCallback, RunningTransaction};

/// A buffer and its contents at the end of the transaction.
struct FrozenBuffer {
    pba: Pba,
    /// Later changes of the buffer do not show in it (`b_frozen_data`).
    data: Image,
    buffer: Arc<Buffer>,
}

/// A transaction whose contents no longer change.
struct FrozenTransaction {
    tid: Tid,
    /// In the order of their home locations.
    buffers: Vec<FrozenBuffer>,
    /// In order.
    revokes: Vec<Pba>,
    callbacks: Vec<CommitCallback>,
}

/// The transaction's place in the log.
struct LogPlace {
    start: u32,
    blocks: u32,
    /// Completions of checkpoint writes that the commit's flush has covered.
    flushed: u64,
}

/// The blocks before the commit block.
struct Body {
    blocks: Vec<Bytes>,
    /// CRC-32 of descriptor and metadata blocks.
    crc32: u32,
}

impl Journal {
    /// Commits the transaction. The caller is the leader.
    pub(super) fn commit_transaction(&self, running: RunningTransaction) -> Result<()> {
        let started = self.runtime.monotonic();
        self.count_stages(&running, started);
        let (locked_at, waiters) = (running.locked_at, running.waiters);
        let frozen = self.freeze_buffers(running);
        // An empty transaction gets a commit block, too: recovery needs consecutive numbers.
        match self.write_to_log(&frozen) {
            Ok(place) => {
                let logged = self.runtime.monotonic();
                self.wait_for_forgotten(&frozen.revokes);
                self.stats.transactions.add(1);
                self.stats.logging_ns.add(nanoseconds(logged.saturating_sub(started)));
                let took = logged.saturating_sub(locked_at);
                self.stats.commit_ns.record(nanoseconds(took));
                let blocks = frozen.buffers.len();
                tracing::debug!(
                    "committed transaction {}: {blocks} blocks, {} us",
                    frozen.tid,
                    took.as_micros()
                );
                self.state.lock().batching.record(waiters, took);
                self.finish_commit(frozen, &place);
                self.wake_checkpoint_daemon();
                Ok(())
            }
            Err(error) => {
                self.abort(&format!("writing transaction {} failed: {error}", frozen.tid));
                self.state.lock().committing.fail();
                for callback in frozen.callbacks {
                    callback(false);
                }
                self.changed.notify();
                Err(error)
            }
        }
    }

    /// Counts the times of the stages before the commit.
    fn count_stages(&self, running: &RunningTransaction, started: Duration) {
        let stats = &self.stats;
        let add = |counter: &Counter, time: Duration| counter.add(nanoseconds(time));
        stats.commit_waits.add(running.waiters.into());
        add(&stats.waiting_ns, running.max_wait);
        add(&stats.running_ns, running.locked_at.saturating_sub(running.started));
        add(&stats.locked_ns, started.saturating_sub(running.locked_at));
        if let Some(requested_at) = running.requested_at {
            stats.requested.add(1);
            add(&stats.request_delay_ns, running.locked_at.saturating_sub(requested_at));
        }
    }

    /// Takes the contents of every buffer. No handle is open and none can start, so no buffer
    /// changes meanwhile.
    fn freeze_buffers(&self, running: RunningTransaction) -> FrozenTransaction {
        let RunningTransaction { tid, buffers, revokes, callbacks, .. } = running;
        let mut emptied = buffers;
        let mut buffers: Vec<_> = emptied
            .drain()
            .map(|(pba, buffer)| {
                buffer.set_joined(0);
                FrozenBuffer { pba, data: buffer.image(), buffer }
            })
            .collect();
        {
            let mut state = self.state.lock();
            state.running.reuse(emptied);
            state.committing.end_freeze();
        }
        self.changed.notify();
        buffers.sort_by_key(|frozen| frozen.pba);
        let mut revokes: Vec<Pba> = revokes.into_iter().collect();
        revokes.sort_unstable();
        FrozenTransaction { tid, buffers, revokes, callbacks }
    }

    fn write_to_log(&self, frozen: &FrozenTransaction) -> Result<LogPlace> {
        let Body { blocks, crc32 } = self.encode_body(frozen);
        let body = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let homes = frozen.buffers.iter().map(|frozen| frozen.pba).collect();
        let now = self.runtime.monotonic();
        let (start, runs, commit_block) = {
            let mut state = self.state.lock();
            let start = state.log.head();
            let runs = state.log.allocate(body);
            let [(commit_block, _), _] = state.log.allocate(1);
            state.committing.write(start, homes);
            state.checkpointing.pace.committed(body + 1, now);
            (start, runs, commit_block)
        };
        // The checkpoint daemon can work while the commit waits for the device.
        self.wake_checkpoint_daemon();
        self.write_body(blocks, &runs)?;
        let flushed = self.write_commit_block(frozen.tid, commit_block, crc32)?;
        self.stats.blocks_logged.add(frozen.buffers.len() as u64);
        self.stats.log_blocks.add(u64::from(body) + 1);
        self.stats.revokes.add(frozen.revokes.len() as u64);
        Ok(LogPlace { start, blocks: body + 1, flushed })
    }

    /// Revoke blocks, then descriptor blocks, each followed by its metadata blocks.
    fn encode_body(&self, frozen: &FrozenTransaction) -> Body {
        let mut blocks: Vec<Bytes> = Vec::with_capacity(frozen.buffers.len() + 8);
        let revokes: &[Pba] = if Safeguard::Revoke.is_off() { &[] } else { &frozen.revokes };
        for records in revokes.chunks(self.layout.revokes_per_block()) {
            blocks.push(self.layout.revoke(frozen.tid, records).into());
        }
        let mut crc32 = !0;
        let per_block = self.layout.tags_per_block();
        let mut tags = Vec::with_capacity(frozen.buffers.len().min(per_block));
        for group in frozen.buffers.chunks(per_block) {
            // The descriptor block stands before its blocks and is known after them.
            let place = blocks.len();
            blocks.push(Bytes::new());
            tags.clear();
            for buffer in group {
                let (tag, data) = self.encode_buffer(frozen.tid, buffer);
                tags.push(tag);
                blocks.push(data);
            }
            blocks[place] = self.layout.descriptor(frozen.tid, &tags).into();
            if self.has_transaction_crc32 {
                crc32 = blocks[place..].iter().fold(crc32, |sum, block| crc32_be(sum, block));
            }
        }
        Body { blocks, crc32 }
    }

    /// A metadata block as it stands in the log, and its tag. The log escapes the magic number at
    /// the start of a block, so that the block does not look like one of the journal's own.
    fn encode_buffer(&self, tid: Tid, frozen: &FrozenBuffer) -> (Tag, Bytes) {
        let escaped = frozen.data.first_chunk::<4>() == Some(&MAGIC.to_be_bytes());
        let (flags, data) = if escaped {
            let mut copy = frozen.data.to_vec();
            copy[..4].fill(0);
            (flag::ESCAPE, Bytes::from(copy))
        } else {
            (0, Bytes::from_owner(frozen.data.clone()))
        };
        let checksum = self.layout.tags.data_checksum(self.layout.seed, tid, &data);
        (Tag { pba: frozen.pba, flags, checksum }, data)
    }

    fn write_body(&self, mut blocks: Vec<Bytes>, runs: &[(u32, u32)]) -> Result<()> {
        let mut requests = Vec::with_capacity(runs.len());
        for (start, count) in runs.iter().copied().filter(|(_, count)| *count > 0) {
            let rest = blocks.split_off((count as usize).min(blocks.len()));
            self.area.add_write_requests(start, blocks, &mut requests)?;
            blocks = rest;
        }
        if !requests.is_empty() {
            self.area
                .device
                .submit(Batch { requests, durability: Durability::default() })
                .wait()?;
        }
        Ok(())
    }

    /// Writes the commit block behind a flush. The flush covers file data, checkpoint writes and an
    /// update of the log tail, too. Returns the completions of checkpoint writes that it covers.
    fn write_commit_block(&self, tid: Tid, block: u32, crc32: u32) -> Result<u64> {
        let now = self.runtime.now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let commit = self.layout.commit(tid, now, self.has_transaction_crc32.then_some(crc32));
        let flushed = {
            let state = self.state.lock();
            state.check_aborted()?;
            state.checkpointing.list.queued()
        };
        if !Arc::ptr_eq(&self.area.device, self.buffers.device()) {
            let started = self.runtime.monotonic();
            self.buffers.device().flush()?;
            self.stats
                .flushing_ns
                .add(nanoseconds(self.runtime.monotonic().saturating_sub(started)));
        }
        let tail = self.begin_tail_update_with_commit()?;
        let durability = Durability {
            preflush: !Safeguard::CommitFlush.is_off(),
            fua: !Safeguard::CommitForce.is_off(),
        };
        let written = self.area.write(block, vec![commit.into()], durability);
        if let Some(update) = tail {
            self.end_tail_update(&update, written.is_ok());
        }
        written?;
        Ok(flushed)
    }

    /// Waits until no older version of a revoked block is being written to its home location: the
    /// block may be reused as soon as the transaction's callbacks have run.
    fn wait_for_forgotten(&self, revokes: &[Pba]) {
        if revokes.is_empty() || Safeguard::Forget.is_off() {
            return;
        }
        {
            let mut state = self.state.lock();
            for pba in revokes {
                state.checkpointing.list.forget(*pba);
            }
        }
        self.wait(|state| !revokes.iter().any(|pba| state.checkpointing.is_writing(*pba)));
    }

    fn finish_commit(&self, frozen: FrozenTransaction, place: &LogPlace) {
        let FrozenTransaction { tid, buffers, callbacks, .. } = frozen;
        let heads: BTreeMap<Pba, JournalHead> = buffers
            .into_iter()
            .map(|frozen| (frozen.pba, JournalHead::new(frozen.data, frozen.buffer)))
            .collect();
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let committed = CheckpointTransaction::new(tid, place.start, place.blocks, heads);
            let superseded = state.checkpointing.list.push(committed);
            self.stats.superseded.add(superseded);
            state.committing.finish();
            if state.aborted.is_none() {
                let parts = state.checkpointing.parts;
                let covers = parts.contains(CheckpointParts::WITH_COMMITS);
                let flushed = if covers { place.flushed } else { 0 };
                let cleaned = state.checkpointing.complete_flushed(flushed);
                self.stats.count_cleaning(&cleaned);
            }
            state.checkpointing.sample_length();
        }
        for callback in callbacks {
            callback(true);
        }
        self.changed.notify();
    }
}
