//! The daemon of an open volume: checkpoints, repacking, and removing what nobody needs.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::runtime::{Daemon, Progress};

use super::core::Core;

/// A failed step is tried again after this long.
const AGAIN: Duration = Duration::from_secs(10);

/// The daemon.
pub(super) struct Background(pub(super) Arc<Core>);

impl Background {
    fn work(&self) -> cairn_block::Result<Progress> {
        let core = &self.0;
        if core.send_logged()? {
            return Ok(Progress::Worked);
        }
        if core.checkpoint_is_due() {
            core.checkpoint(false)?;
            return Ok(Progress::Worked);
        }
        if core.reclaim && core.reclaim()? {
            return Ok(Progress::Worked);
        }
        Ok(Progress::Idle(None))
    }
}

impl Daemon for Background {
    fn step(&self) -> Progress {
        if self.0.state.lock().stopped.is_some() {
            return Progress::Done;
        }
        // What fails here is tried again. What a caller needs fails in the caller's thread.
        self.work().unwrap_or(Progress::Idle(Some(AGAIN)))
    }
}
