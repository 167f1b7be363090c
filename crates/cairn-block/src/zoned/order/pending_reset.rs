//! A zone that is about to be reset: it takes no writes until then.

use std::sync::Arc;

use super::Lanes;
use crate::error::Result;

/// A zone that is about to be reset; see [`super::ZoneOrder::claim_reset`].
#[must_use = "the zone takes no writes until it is reset"]
pub struct PendingReset {
    pub(super) lanes: Arc<Lanes>,
    pub(super) index: usize,
}

impl PendingReset {
    /// Resets the zone, and lets writes to it go on. If that fails the next write tries again.
    ///
    /// # Errors
    /// The device's.
    pub fn carry_out(self) -> Result<()> {
        let outcome = self.lanes.zoned().reset(self.lanes.starts[self.index]);
        if outcome.is_ok() {
            self.lanes.lanes[self.index].lock().stale = false;
            self.lanes.end_active(self.index);
        }
        outcome
    }
}

impl Drop for PendingReset {
    fn drop(&mut self) {
        self.lanes.lanes[self.index].lock().busy = false;
        self.lanes.pump(self.index);
    }
}
