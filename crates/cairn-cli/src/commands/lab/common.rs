//! What the experiments and the crash search share.

use std::path::Path;

use crate::failure::{Failure, Outcome};

/// Makes the report's file before the measurement, so that a wrong path fails at once.
pub(super) fn reserve(path: &Path) -> Outcome {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(|error| Failure::host(path, &error))
}

/// The command that repeats this one.
pub(super) fn command_line() -> String {
    let words = std::env::args()
        .enumerate()
        .map(|(index, word)| if index == 0 { "cairn".to_owned() } else { word });
    words.collect::<Vec<_>>().join(" ")
}
