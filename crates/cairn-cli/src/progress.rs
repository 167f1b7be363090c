//! A progress line for copies: on a terminal only, never in a pipe or a log.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// Counts files and bytes; shows them if standard error is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    files: u64,
}

impl Progress {
    /// Starts a line that begins with `verb`.
    #[must_use]
    pub fn start(verb: &'static str) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        set_style(&bar, "{spinner} {prefix} {msg}, {bytes} ({bytes_per_sec})");
        bar.set_prefix(verb);
        bar.set_message("0 files");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { bar, files: 0 }
    }

    /// Is it shown?
    #[must_use]
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Sets the total of bytes: the line then shows what is left and how long it will take.
    pub fn expect(&self, bytes: u64) {
        self.bar.set_length(bytes);
        set_style(
            &self.bar,
            "{spinner} {prefix} {msg}, {bytes} of {total_bytes} ({bytes_per_sec}, {eta} left)",
        );
    }

    /// Adds copied bytes.
    pub fn bytes(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Adds an entry.
    pub fn entry(&mut self) {
        self.files += 1;
        self.bar.set_message(format!("{} files", self.files));
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.files
    }

    /// Prints a line above the progress.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| output::complain(text));
    }
}

/// Shows the steps of work that has phases, with an estimate of what is left of the phase. Several
/// threads may call it.
#[derive(Debug)]
pub struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Starts a line that begins with `verb`.
    #[must_use]
    pub fn start(verb: &'static str) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        set_style(&bar, "{prefix} {msg} [{bar:30}] {percent}% ({eta} left)");
        bar.set_prefix(verb);
        Self { bar }
    }

    /// Begins a phase of so many steps.
    pub fn begin(&self, what: &str, total: u64) {
        self.bar.reset();
        self.bar.set_length(total);
        self.bar.set_message(what.to_owned());
    }

    /// So many steps of the phase are done.
    pub fn set(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Takes the line away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
