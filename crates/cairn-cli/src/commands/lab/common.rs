//! What the experiments and the crash search share.

use crate::failure::Outcome;
use crate::signals;

/// The command that repeats this one.
pub(super) fn command_line() -> String {
    let words = std::env::args()
        .enumerate()
        .map(|(index, word)| if index == 0 { "cairn".to_owned() } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// From now on a signal ends the program, and nothing of an experiment is left: no mount, no
/// program, no directory.
///
/// # Errors
/// Signals cannot be handled.
pub(super) fn leave_nothing() -> Outcome {
    signals::end_after(|| {
        cairn_lab::take_away();
        cairn_build::abandon();
    })
}

/// From now on the first signal ends the search, whose report is still printed.
///
/// # Errors
/// Signals cannot be handled.
pub(super) fn stop_at_a_signal() -> Outcome {
    signals::on_ending(cairn_lab::crash::stop, cairn_lab::take_away)
}
