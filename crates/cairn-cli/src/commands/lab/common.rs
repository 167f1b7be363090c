//! What the experiments and the crash search share.

use std::path::Path;

use crate::failure::{Failure, Outcome};
use crate::signals;

/// Makes the report's file before the measurement, so that a wrong path fails at once.
pub(super) fn reserve(path: &Path) -> Outcome {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(|error| Failure::host(path, &error))
}

/// A file that was made before a search, and is removed if nothing was written to it.
pub(super) struct Reserved<'a> {
    path: &'a Path,
    is_new: bool,
}

impl<'a> Reserved<'a> {
    /// Makes the file.
    ///
    /// # Errors
    /// The host refuses it.
    pub(super) fn new(path: &'a Path) -> Outcome<Self> {
        let is_new = !path.exists();
        reserve(path).map(|()| Self { path, is_new })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let is_empty = self.path.metadata().is_ok_and(|found| found.len() == 0);
        if self.is_new && is_empty {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// The command that repeats this one.
pub(super) fn command_line() -> String {
    let words = std::env::args()
        .enumerate()
        .map(|(index, word)| if index == 0 { "cairn".to_owned() } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// From now on the first signal ends the search, whose report is still printed.
///
/// # Errors
/// Signals cannot be handled.
pub(super) fn stop_at_a_signal() -> Outcome {
    signals::on_ending(cairn_lab::crash::stop)
}
