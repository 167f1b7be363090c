//! The end of a search before it is done.

use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends the searches of this process. What they have looked at is reported.
pub fn stop() {
    STOPPED.store(true, Ordering::Relaxed);
}

pub(super) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
