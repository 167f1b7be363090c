//! The figures of a run, and the rates at which home blocks have to be written and can be.

use std::time::Duration;

use crate::fs_mark::Marks;

/// The marks of one run, and the growth of its counters.
pub(in crate::experiments) struct Run {
    pub(in crate::experiments) marks: Marks,
    /// Time that the device spent serving.
    pub(in crate::experiments) busy: Duration,
    pub(in crate::experiments) transactions: f64,
    pub(in crate::experiments) stalls: f64,
    pub(in crate::experiments) stall_ms: f64,
    /// Metadata blocks logged, and those that a newer version superseded before they were written
    /// home.
    pub(in crate::experiments) logged: f64,
    pub(in crate::experiments) superseded: f64,
    /// Blocks written home, and the time that checkpoints took.
    pub(in crate::experiments) written: f64,
    pub(in crate::experiments) writing_s: f64,
}

impl Run {
    /// The figures beside those of a journal that never fills.
    pub(super) fn figures(&self, never: &Self) -> Vec<(&'static str, f64)> {
        let mut figures = self.own_figures().to_vec();
        let (own, yardstick) = (&self.marks, &never.marks);
        figures.push(("efficiency", own.files_per_s() / yardstick.files_per_s()));
        if !own.syncs.is_empty() {
            figures.push(("fsync_p99_ms", ms(own.syncs.value_at_quantile(0.99))));
        }
        figures
    }

    pub(super) fn own_figures(&self) -> [(&'static str, f64); 7] {
        let marks = &self.marks;
        [
            ("files_per_s", marks.files_per_s()),
            ("transactions", self.transactions),
            ("stalls", self.stalls),
            ("stall_ms", self.stall_ms),
            ("op_p99_ms", ms(marks.changes.value_at_quantile(0.99))),
            ("op_p999_ms", ms(marks.changes.value_at_quantile(0.999))),
            ("op_max_ms", ms(marks.changes.max())),
        ]
    }

    fn home_rate(&self) -> Option<f64> {
        (self.written > 0.0 && self.writing_s > 0.0).then(|| self.written / self.writing_s)
    }
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// Home blocks a second.
pub(super) struct Rates {
    needed: f64,
    /// Unknown if the journal never filled.
    possible: Option<f64>,
    /// The part of the speed with a journal that never fills which the device allows.
    bound: Option<f64>,
}

impl Rates {
    pub(super) fn of(off: &Run, on: &Run, never: &Run) -> Self {
        let files = never.marks.files as f64;
        let seconds = never.marks.elapsed.as_secs_f64();
        let busy = never.busy.as_secs_f64();
        let needed = (on.logged - on.superseded) / seconds;
        // Checkpoints of the option off have the device for themselves.
        let alone = off.home_rate().or(on.home_rate());
        let possible = alone.map(|rate| rate * (1.0 - busy / seconds).max(0.0));
        let bound = alone.map(|rate| {
            let each = seconds / files;
            each / (busy / files + (on.logged - on.superseded) / files / rate).max(each)
        });
        Self { needed, possible, bound }
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![("fill_per_s", self.needed)];
        figures.extend(self.possible.map(|rate| ("home_per_s", rate)));
        figures.extend(self.bound.map(|bound| ("bound", bound)));
        figures
    }
}
