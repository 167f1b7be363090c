//! Stops a volume after an error or on request.
//!
//! Every result of a call or a daemon's step passes [`MountState::observe`] once, which decides
//! what the volume does ([`cairn_vfs::error_policy`]).

use cairn_base::told::TOLD;
use std::sync::Arc;

use cairn_vfs::error_policy::verdict;
use cairn_vfs::{Error as VfsError, Verdict};

use crate::error::{Error, Result};
use crate::mount_state::MountState;
use crate::stop_cause::{StopCause, Stopped};
use crate::txn::PartialChange;

impl MountState {
    /// Decides what the volume does after `result`, and returns it. Every result passes here once.
    ///
    /// # Errors
    /// The error of `result`.
    pub(crate) fn observe<T>(&self, result: Result<T>) -> Result<T> {
        let partial_change = PartialChange::take();
        if let Err(error) = &result
            && !self.is_read_only()
        {
            match verdict(error.reach(), partial_change, self.options.on_damage()) {
                Verdict::GoOn => {}
                Verdict::Note => self.note_damage(error),
                Verdict::Stop => self.fail(error),
                Verdict::PowerCut => self.power_cut(error),
            }
        }
        result
    }

    /// Makes the volume read-only because of an error.
    fn fail(&self, error: &Error) {
        tracing::error!(target: TOLD, %error, "volume stopped");
        let mut reason: Arc<str> = error.to_string().into();
        if let Some(journal) = self.journal() {
            journal.abort(&reason);
            // The journal may have been aborted before, with the original reason.
            reason = journal.aborted().unwrap_or(reason);
        }
        if self.stop_for(StopCause::Failed, &format!("stopped after an error: {reason}")) {
            self.record_stop(error);
        }
    }

    /// Stops the volume for `errors=panic`. As in Linux, the error is recorded all the same.
    fn power_cut(&self, error: &Error) {
        tracing::error!(%error, "errors=panic: the volume is shut down");
        if self.abandon(&format!("shut down by errors=panic: {error}")) {
            self.record_stop(error);
        }
    }

    /// Stops as in a power cut, because of a fault. False if the volume had stopped before.
    pub(crate) fn abandon(&self, reason: &str) -> bool {
        if let Some(journal) = self.journal() {
            journal.abort_hard(reason);
        }
        self.stop_for(StopCause::Failed, reason)
    }

    /// Stops as in a power cut. With `flush_log`, all changes so far are committed before.
    ///
    /// # Errors
    /// The journal could not be committed. The volume has stopped all the same.
    pub(crate) fn shutdown(&self, flush_log: bool) -> Result<()> {
        let journal = self.journal();
        if let Some(journal) = journal.as_ref().filter(|_| flush_log) {
            journal.force_commit()?;
        }
        // This comes first, so that calls that find the journal aborted return this reason.
        self.stop("shut down on request");
        if let Some(journal) = &journal {
            journal.abort_hard("shut down on request");
        }
        Ok(())
    }

    /// Fails if the volume was stopped and changes can no longer become durable. A volume that is
    /// read-only on request is in order.
    ///
    /// # Errors
    /// The reason for which the volume was stopped.
    pub(crate) fn check_readable(&self) -> Result<()> {
        let _ = self.check_writable();
        match &*self.stopped.lock() {
            Some(stopped) if stopped.cause.is_final() => {
                Err(VfsError::stopped(&stopped.reason).into())
            }
            _ => Ok(()),
        }
    }

    /// Fails as a write does if the volume was stopped. A volume that is read-only on request is in
    /// order.
    ///
    /// # Errors
    /// As [`Volume::check_writable`].
    pub(crate) fn check_stopped(&self) -> Result<()> {
        let writable = self.check_writable();
        if self.stop_cause().is_some_and(StopCause::is_final) { writable } else { Ok(()) }
    }

    /// Fails if an error stopped the volume.
    pub(crate) fn check_failed(&self) -> Result<()> {
        match self.stop_cause() {
            Some(StopCause::Failed) => self.check_readable(),
            _ => Ok(()),
        }
    }

    /// Fails with the reason if nothing may be written. As in Linux, the error is EIO after a
    /// shutdown and EROFS after an error.
    ///
    /// # Errors
    /// The reason for which nothing may be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(stopped) = &*self.stopped.lock() {
            return Err(match stopped.cause {
                StopCause::Ended => VfsError::stopped(&stopped.reason),
                _ => VfsError::ReadOnly(stopped.reason.clone()),
            }
            .into());
        }
        if let Some(reason) = self.journal().and_then(|journal| journal.aborted()) {
            let error = Error::Journal(cairn_jbd2::Error::Aborted(reason.clone()));
            let reason: Arc<str> = format!("stopped after an error: {reason}").into();
            if self.stop_for(StopCause::Failed, &reason) {
                self.record_stop(&error);
            }
            return Err(VfsError::ReadOnly(reason).into());
        }
        Ok(())
    }

    /// Why nothing may be written; `None` if the volume is writable.
    #[must_use]
    pub(crate) fn read_only_reason(&self) -> Option<Arc<str>> {
        self.stopped.lock().as_ref().map(|stopped| stopped.reason.clone())
    }

    /// True if nothing may be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.stopped.lock().is_some()
    }

    /// Stops writing for good. Later changes fail with this reason. The first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        self.stop_for(StopCause::Ended, reason);
    }

    /// Stops writing. False if the volume was stopped for good before.
    pub(crate) fn stop_for(&self, cause: StopCause, reason: &str) -> bool {
        let mut stopped = self.stopped.lock();
        let first = !stopped.as_ref().is_some_and(|stopped| stopped.cause.is_final());
        if first {
            *stopped = Some(Stopped { reason: reason.into(), cause });
        }
        first
    }

    /// The cause for which nothing may be written.
    pub(crate) fn stop_cause(&self) -> Option<StopCause> {
        self.stopped.lock().as_ref().map(|stopped| stopped.cause)
    }

    /// Turns writing off for a reason, or on. No call writes meanwhile. A volume that was stopped
    /// for good stays stopped.
    pub(crate) fn set_read_only(&self, reason: Option<&str>) {
        let mut stopped = self.stopped.lock();
        if !stopped.as_ref().is_some_and(|stopped| stopped.cause.is_final()) {
            *stopped =
                reason.map(|reason| Stopped { reason: reason.into(), cause: StopCause::Asked });
        }
    }
}
