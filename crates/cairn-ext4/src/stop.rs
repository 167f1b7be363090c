//! How a volume ends before its time: what an error means for it, shutting down, and who is told why.
//!
//! Every result passes [`Volume::observe`] once, on its way out of a call or a daemon's step: there, and nowhere else, it is decided
//! what becomes of the volume ([`cairn_vfs::error_policy`]).

use std::sync::Arc;

use cairn_vfs::error_policy::verdict;
use cairn_vfs::{Error as VfsError, Verdict};

use crate::error::{Error, Result};
use crate::stop_cause::{StopCause, Stopped};
use crate::txn::PartialChange;
use crate::volume::Volume;

impl Volume {
    /// Looks at a result on its way out: see the module.
    pub fn observe<T>(&self, result: Result<T>) -> Result<T> {
        let partial_change = PartialChange::take();
        if let Err(error) = &result
            && !self.is_read_only()
        {
            match verdict(error.reach(), partial_change, self.options.on_damage()) {
                Verdict::GoOn => {}
                Verdict::Note => self.note_damage(error),
                Verdict::Stop => self.fail(error),
                Verdict::PowerCut => self.cut(error),
            }
        }
        result
    }

    /// Nothing is changed any more, because of this error.
    fn fail(&self, error: &Error) {
        tracing::error!(%error, "volume stopped");
        let mut reason: Arc<str> = error.to_string().into();
        if let Some(journal) = self.journal() {
            journal.abort(&reason);
            // It may have stopped before, and knows better why.
            reason = journal.aborted().unwrap_or(reason);
        }
        self.stop_for(StopCause::Failed, &format!("stopped after an error: {reason}"));
    }

    /// `errors=panic`.
    fn cut(&self, error: &Error) {
        tracing::error!(%error, "errors=panic: the volume is shut down");
        self.abandon(&format!("shut down by errors=panic: {error}"));
    }

    /// Stops as a power cut would, because of a fault.
    pub(crate) fn abandon(&self, reason: &str) {
        if let Some(journal) = self.journal() {
            journal.abort_hard(reason);
        }
        self.stop_for(StopCause::Failed, reason);
    }

    /// Stops as a power cut would; with `flush_log` what was changed so far is committed before.
    pub fn shutdown(&self, flush_log: bool) -> Result<()> {
        let journal = self.journal();
        if let Some(journal) = journal.as_ref().filter(|_| flush_log) {
            journal.force_commit()?;
        }
        // First: whoever finds the journal stopped is to know that it was asked for.
        self.stop("shut down on request");
        if let Some(journal) = &journal {
            journal.abort_hard("shut down on request");
        }
        Ok(())
    }

    /// Fails if the volume ended before its time: nothing more becomes durable. One that is read-only by wish is in order.
    pub fn check_readable(&self) -> Result<()> {
        let _ = self.check_writable();
        match &*self.stopped.lock() {
            Some(stopped) if stopped.cause.is_final() => Err(VfsError::stopped(&stopped.reason).into()),
            _ => Ok(()),
        }
    }

    /// Fails if an error stopped the volume.
    pub(crate) fn check_failed(&self) -> Result<()> {
        match self.stop_cause() {
            Some(StopCause::Failed) => self.check_readable(),
            _ => Ok(()),
        }
    }

    /// Fails if nothing may be written, with the reason: as in Linux one that was shut down is no longer there (EIO), and one that
    /// an error stopped is read-only.
    pub fn check_writable(&self) -> Result<()> {
        if let Some(stopped) = &*self.stopped.lock() {
            return Err(match stopped.cause {
                StopCause::Ended => VfsError::stopped(&stopped.reason),
                _ => VfsError::ReadOnly(stopped.reason.clone()),
            }
            .into());
        }
        if let Some(reason) = self.journal().and_then(|journal| journal.aborted()) {
            let reason: Arc<str> = format!("stopped after an error: {reason}").into();
            self.stop_for(StopCause::Failed, &reason);
            return Err(VfsError::ReadOnly(reason).into());
        }
        Ok(())
    }

    /// Why nothing may be written, if that is so.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.stopped.lock().as_ref().map(|stopped| stopped.reason.clone())
    }

    /// True if nothing may be written.
    pub fn is_read_only(&self) -> bool {
        self.stopped.lock().is_some()
    }

    /// From now on nothing is written, for good, and every later change fails with this reason. The first one stays.
    pub fn stop(&self, reason: &str) {
        self.stop_for(StopCause::Ended, reason);
    }

    pub(crate) fn stop_for(&self, cause: StopCause, reason: &str) {
        let mut stopped = self.stopped.lock();
        if !stopped.as_ref().is_some_and(|stopped| stopped.cause.is_final()) {
            *stopped = Some(Stopped { reason: reason.into(), cause });
        }
    }

    /// Why nothing may be written, as far as that decides whether it can be undone.
    pub(crate) fn stop_cause(&self) -> Option<StopCause> {
        self.stopped.lock().as_ref().map(|stopped| stopped.cause)
    }

    /// Turns writing off, for a reason, or on, at a moment when nobody writes. What ended for good stays ended.
    pub(crate) fn set_read_only(&self, reason: Option<&str>) {
        let mut stopped = self.stopped.lock();
        if !stopped.as_ref().is_some_and(|stopped| stopped.cause.is_final()) {
            *stopped = reason.map(|reason| Stopped { reason: reason.into(), cause: StopCause::Asked });
        }
    }
}
