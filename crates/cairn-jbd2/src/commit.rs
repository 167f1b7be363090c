//! Committing: pins, log writes, the commit record, and what follows from its being durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use cairn_base::checksum::crc32_be;
use cairn_base::stats::Counter;
use cairn_base::{Pba, Tid};
use cairn_block::{Batch, Durability};
use cairn_cache::block::{Buffer, Image};

use crate::checkpoint::list::{Entry, Logged};
use crate::error::{Error, Result};
use crate::format::MAGIC;
use crate::format::tags::{Tag, flag};
use crate::journal::Journal;
use crate::stats::nanoseconds;
use crate::transaction::{Hook, Running};

/// A transaction whose contents can no longer change.
struct Pinned {
    tid: Tid,
    images: Vec<(Pba, Image, Arc<Buffer>)>,
    revokes: Vec<Pba>,
    hooks: Vec<Hook>,
}

/// What was put into the log, and what its flush covered.
struct Written {
    start: u32,
    blocks: u32,
    /// Completions of home writes that the commit's flush covered.
    completions: u64,
}

impl Journal {
    /// Commits the transaction that [`Journal::try_lead`] took. The caller is the only committer.
    pub(crate) fn commit(&self, running: Running) -> Result<()> {
        let started = self.runtime.monotonic();
        self.count_life(&running, started);
        let (closed, waiters) = (running.closed, running.waiters);
        let pinned = self.pin(running);
        let tid = pinned.tid;
        // Even an empty transaction gets its commit record: recovery wants consecutive numbers.
        match self.write_log(&pinned) {
            Ok(written) => {
                let logged = self.runtime.monotonic();
                self.wait_for_cancelled(&pinned.revokes);
                self.stats().transactions.add(1);
                self.stats().logging_ns.add(nanoseconds(logged.saturating_sub(started)));
                let took = logged.saturating_sub(closed);
                self.stats().commit_ns.record(nanoseconds(took));
                {
                    let mut state = self.state.lock();
                    state.last_waiters = waiters;
                    state.commit_mean =
                        if state.commit_mean.is_zero() { took } else { (state.commit_mean * 3 + took) / 4 };
                }
                self.end_commit(pinned, &written);
                self.tidy();
                Ok(())
            }
            Err(error) => {
                self.abort(&format!("writing transaction {tid} failed: {error}"));
                self.state.lock().committing = None;
                for hook in pinned.hooks {
                    hook(false);
                }
                self.changed.notify();
                Err(error)
            }
        }
    }

    /// Counts how long the transaction was open and waited for.
    fn count_life(&self, running: &Running, started: Duration) {
        let stats = self.stats();
        let add = |counter: &Counter, time: Duration| counter.add(nanoseconds(time));
        stats.commit_waits.add(running.waiters.into());
        add(&stats.waiting_ns, running.longest_wait);
        add(&stats.running_ns, running.closed.saturating_sub(running.started));
        add(&stats.locked_ns, started.saturating_sub(running.closed));
        if let Some(requested) = running.requested {
            stats.requested.add(1);
            add(&stats.request_delay_ns, running.closed.saturating_sub(requested));
        }
    }

    /// Holds every image. No handle is open and none is admitted, so no image changes meanwhile.
    fn pin(&self, running: Running) -> Pinned {
        let Running { tid, buffers, revokes, hooks, .. } = running;
        let mut images: Vec<_> = buffers
            .into_values()
            .map(|buffer| {
                buffer.set_joined(0);
                (buffer.pba(), buffer.image(), buffer)
            })
            .collect();
        self.state.lock().pinning = false;
        self.changed.notify();
        images.sort_by_key(|(pba, _, _)| *pba);
        let mut revokes: Vec<Pba> = revokes.into_iter().collect();
        revokes.sort_unstable();
        Pinned { tid, images, revokes, hooks }
    }

    /// Revokes, descriptors and images, then the commit record behind a flush.
    fn write_log(&self, pinned: &Pinned) -> Result<Written> {
        let mut blocks: Vec<Bytes> = Vec::with_capacity(pinned.images.len() + 8);
        for records in pinned.revokes.chunks(self.layout.revokes_per_block()) {
            blocks.push(self.layout.revoke(pinned.tid, records).into());
        }
        let mut legacy = !0;
        for group in pinned.images.chunks(self.layout.tags_per_block()) {
            let (tags, data): (Vec<Tag>, Vec<Bytes>) =
                group.iter().map(|(pba, image, _)| self.tag(pinned.tid, *pba, image)).unzip();
            let descriptor = self.layout.descriptor(pinned.tid, &tags);
            if self.legacy_checksum {
                legacy = data.iter().fold(crc32_be(legacy, &descriptor), |sum, block| crc32_be(sum, block));
            }
            blocks.push(descriptor.into());
            blocks.extend(data);
        }
        let body = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let addresses = pinned.images.iter().map(|(pba, _, _)| *pba).collect();
        let (runs, commit_at) = {
            let mut state = self.state.lock();
            state.committing_blocks = addresses;
            state.writing_from = Some(state.log.head());
            let runs = state.log.take(body);
            let [(commit_at, _), _] = state.log.take(1);
            state.committing_needs = 0;
            (runs, commit_at)
        };
        // Now, not at the end of the commit: the daemon can use the time.
        self.wake_checkpointer();
        let mut requests = Vec::new();
        let mut blocks = blocks.into_iter();
        for (start, count) in runs.into_iter().filter(|(_, count)| *count > 0) {
            let part = blocks.by_ref().take(count as usize).collect();
            requests.extend(self.area.write_requests(start, part)?);
        }
        if !requests.is_empty() {
            self.area.device.submit(Batch { requests, durability: Durability::default() }).wait()?;
        }
        let now = self.runtime.now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let commit = self.layout.commit(pinned.tid, now, self.legacy_checksum.then_some(legacy));
        let completions = {
            let state = self.state.lock();
            if state.aborted.is_some() {
                return Err(Error::Aborted("stopped before the commit record".into()));
            }
            state.checkpoint.queued()
        };
        // One round trip: everything before is on the medium, then the record is. It covers file data written so far, too.
        if !Arc::ptr_eq(&self.area.device, self.buffers.device()) {
            let started = self.runtime.monotonic();
            self.buffers.device().flush()?;
            self.stats().flushing_ns.add(nanoseconds(self.runtime.monotonic().saturating_sub(started)));
        }
        self.area.write(commit_at, vec![commit.into()], Durability { preflush: true, fua: true })?;
        self.stats().blocks_logged.add(pinned.images.len() as u64);
        self.stats().log_blocks.add(u64::from(body) + 1);
        self.stats().revokes.add(pinned.revokes.len() as u64);
        let start = if body == 0 { commit_at } else { runs[0].0 };
        Ok(Written { start, blocks: body + 1, completions })
    }

    /// A copy as it stands in the log: one that starts with the magic number is escaped, lest it look like a log block.
    fn tag(&self, tid: Tid, pba: Pba, image: &Image) -> (Tag, Bytes) {
        let escaped = image.first_chunk::<4>() == Some(&MAGIC.to_be_bytes());
        let (flags, data) = if escaped {
            let mut copy = image.to_vec();
            copy[..4].fill(0);
            (flag::ESCAPE, Bytes::from(copy))
        } else {
            (0, Bytes::from_owner(image.clone()))
        };
        let checksum = self.layout.tags.data_checksum(self.layout.seed, tid, &data);
        (Tag { pba, flags, checksum }, data)
    }

    /// Freed blocks may be reused once this transaction's hooks have run: by then no older version of them may be on its way home.
    fn wait_for_cancelled(&self, revokes: &[Pba]) {
        if revokes.is_empty() {
            return;
        }
        {
            let mut state = self.state.lock();
            for pba in revokes {
                state.checkpoint.cancel(*pba);
            }
        }
        self.wait(|state| revokes.iter().all(|pba| !state.going_home.contains(pba)));
    }

    fn end_commit(&self, pinned: Pinned, written: &Written) {
        let Pinned { tid, images, hooks, .. } = pinned;
        let entries: BTreeMap<Pba, Entry> =
            images.into_iter().map(|(pba, image, buffer)| (pba, Entry::new(image, buffer))).collect();
        {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let superseded = state.checkpoint.push(Logged::new(tid, written.start, written.blocks, entries));
            self.stats().superseded.add(superseded);
            state.committed = tid;
            state.committing = None;
            state.committing_needs = 0;
            state.committing_blocks = Vec::new();
            state.writing_from = None;
            if state.aborted.is_none() {
                self.settle(state, written.completions);
            }
            state.count_pending();
        }
        for hook in hooks {
            hook(true);
        }
        self.changed.notify();
    }
}
