//! A progress bar, if standard error is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// The finished steps of an experiment.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar, which is visible on a terminal only.
    #[must_use]
    pub fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left: {eta}) {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar }
    }

    /// Adds steps to the total.
    pub(crate) fn expect(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    /// Shows the current work.
    pub(crate) fn show(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Counts a finished step.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
