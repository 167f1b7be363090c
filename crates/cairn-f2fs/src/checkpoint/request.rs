//! Requests for checkpoints, and the daemon that serves them: see [`super::merge`].

use std::sync::{Arc, Weak};

use cairn_base::runtime::{Daemon, Progress};

use super::coming::Announced;
use super::merge::Request;
use super::{Checkpoints, Reason};
use crate::error::Result;

struct MergeDaemon(Weak<Checkpoints>);

impl Daemon for MergeDaemon {
    fn step(&self) -> Progress {
        let Some(checkpoints) = self.0.upgrade() else { return Progress::Done };
        checkpoints.serve_when_due()
    }
}

impl Checkpoints {
    /// Announces a call that is likely to request a checkpoint: others' checkpoints may wait for
    /// it.
    pub(crate) fn announce(&self) -> Announced<'_> {
        self.merge.coming.announce()
    }

    /// Requests a checkpoint of all changes before this call, and waits for it. Returns whether
    /// anything had to be written. The request is merged with others if its reason allows that and
    /// there is a daemon. Call it without the operation lock. `announced` is this call's.
    ///
    /// # Errors
    /// The volume has stopped, or stops now because of this error: all requests of a batch get the
    /// same.
    pub(crate) fn request(&self, reason: Reason, announced: Announced<'_>) -> Result<bool> {
        let merges = matches!(reason, Reason::Sync | Reason::Fsync);
        if !merges || !self.is_merging() {
            return self.write(reason);
        }
        let runtime = &self.parts.runtime;
        self.merge.stats.queued.add(1);
        let request = Request { reason, since: runtime.monotonic() };
        let answer = self.merge.queue.ask(
            request,
            |event, ready| runtime.wait_until(event, ready),
            || self.serve(),
        );
        // Until here the call is one of those that wait, or is on its way to its caller, who may
        // be back soon.
        drop(announced);
        answer
    }

    /// True if there is a daemon.
    #[must_use]
    pub fn is_merging(&self) -> bool {
        self.merge.queue.has_daemon()
    }

    /// Starts the daemon if there is none. If the system refuses its thread, each caller writes its
    /// own checkpoints.
    pub(crate) fn start_merging(self: &Arc<Self>) {
        let mut daemon = self.merge.daemon.lock();
        if daemon.is_none() {
            let body = Arc::new(MergeDaemon(Arc::downgrade(self)));
            match self.parts.runtime.spawn("f2fs_ckpt", self.merge.queue.arrived.clone(), body) {
                Ok(started) => {
                    *daemon = Some(started);
                    self.merge.queue.daemon_started();
                }
                Err(error) => tracing::warn!("checkpoints are not merged: {error}"),
            }
        }
    }

    /// Ends the daemon if there is one. Waiting requests are served before this returns.
    pub(crate) fn stop_merging(&self) {
        let mut slot = self.merge.daemon.lock();
        let Some(daemon) = slot.take() else { return };
        self.merge.queue.daemon_stopped();
        daemon.stop();
        // A requester may serve them first.
        self.serve();
        let empty = || self.merge.queue.is_empty();
        self.parts.runtime.wait_until(&self.merge.queue.changed, &mut || empty());
    }

    /// The daemon's step.
    fn serve_when_due(&self) -> Progress {
        let waiting = self.merge.queue.waiting();
        if waiting == 0 {
            return Progress::Idle(None);
        }
        let signs = self.merge.coming.signs(waiting);
        let now = self.parts.runtime.monotonic();
        let patience = self.merge.gather.lock().patience(waiting, signs, now);
        if patience.is_some() {
            return Progress::Idle(patience);
        }
        self.serve();
        Progress::Worked
    }

    /// Writes one checkpoint for all waiting requests, unless another thread does.
    fn serve(&self) {
        let Some(batch) = self.merge.queue.detach() else { return };
        let runtime = &self.parts.runtime;
        let begin = runtime.monotonic();
        let for_all = batch.iter().any(|ticket| ticket.request.reason == Reason::Sync);
        let outcome = self.write(if for_all { Reason::Sync } else { Reason::Fsync });
        let end = runtime.monotonic();
        let waiting = self.merge.queue.waiting();
        let mut arrivals: Vec<_> = batch.iter().map(|ticket| ticket.request.since).collect();
        let gathered =
            self.merge.gather.lock().served(&mut arrivals, waiting, end.saturating_sub(begin));
        let waits: Vec<_> =
            batch.iter().map(|ticket| end.saturating_sub(ticket.request.since)).collect();
        let stats = &self.merge.stats;
        stats.gathered.add(gathered.into());
        stats.issued.add(1);
        stats.answered(&waits);
        self.merge.queue.answer(batch, &outcome);
    }
}
