//! Applies the error policy to a volume ([`cairn_vfs::error_policy`]).
//!
//! Every result passes [`MountState::observe`] on its way out of a call or a daemon's step, and
//! [`MountState::stop_after`] at the end of an operation under the operation lock, whose error has
//! left the operation half done.

use cairn_base::told::TOLD;
use cairn_vfs::error_policy::verdict;
use cairn_vfs::{Reach, Verdict};

use crate::error::{Error, Result};
use crate::mount_state::MountState;

impl MountState {
    /// Examines the result of a call before it is returned.
    ///
    /// # Errors
    /// That of `result`.
    pub(crate) fn observe<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.judge(error, false);
        }
        result
    }

    /// Examines the result of an operation under the operation lock.
    pub(crate) fn stop_after<T>(&self, outcome: &Result<T>) {
        if let Err(error) = outcome {
            self.judge(error, true);
        }
    }

    /// Stops as a power cut would, because of a fault.
    pub(crate) fn abandon(&self, reason: &str) {
        match &self.disk.store {
            Some(store) => {
                store.operation_lock.stop(reason);
                // As after a power cut, nothing is recorded on the disk.
                store.operation_lock.take_failure();
            }
            None => self.set_read_only(Some(reason.into())),
        }
    }

    fn judge(&self, error: &Error, half_done: bool) {
        let Some(store) = &self.disk.store else { return };
        if self.read_only_reason().is_none() {
            match verdict(self.reach(error), half_done, self.options().on_damage) {
                Verdict::GoOn => {}
                Verdict::Note => self.note_damage(store, error),
                Verdict::Stop => {
                    tracing::error!(target: TOLD, %error, "volume stopped");
                    store.operation_lock.stop_for("stopped after an error", error);
                }
                Verdict::PowerCut => {
                    tracing::error!(%error, "errors=panic: the volume is shut down");
                    store.operation_lock.stop_for("shut down by errors=panic", error);
                }
            }
        }
        // Checkpoints, fsyncs and cleaning stop a volume before their error comes here.
        if store.operation_lock.take_failure() {
            self.record_stop(error);
        }
    }

    /// Zones are written in order, so after a failed write no later block of the zone can be
    /// written.
    fn reach(&self, error: &Error) -> Reach {
        match error.reach() {
            Reach::File if self.disk.device.as_zoned().is_some() => Reach::Volume,
            reach => reach,
        }
    }
}
