//! Runs calls without Python's lock.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pyo3::prelude::*;

/// Runs a call on a volume. A panic stops the volume, as a power cut would, because its memory may
/// be in the middle of a change; Python gets a `PanicException`.
pub(crate) fn on<T: Send>(
    py: Python<'_>,
    volume: &cairn::Volume,
    call: impl FnOnce() -> T + Send,
) -> T {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
            let stop = || volume.filesystem().abandon("a panic in a call from Python");
            // It has stopped whatever this returns, or panics with.
            let _ = catch_unwind(AssertUnwindSafe(stop));
            resume_unwind(panic)
        })
    })
}
