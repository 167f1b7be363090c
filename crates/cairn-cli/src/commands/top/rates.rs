//! What happened between two reports of a mount.

use std::collections::VecDeque;

use cairn_base::stats::{Report, Value};

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A count.
    Count,
    /// A count for each second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Bytes for each second.
    BytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Of a hundred.
    Percent,
}

/// How it follows from two reports. A path may lead to a section: then its numbers are added up.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The growth of these counters.
    Growth(&'static [&'static str]),
    /// The present value.
    Now(&'static str),
    /// What so many of a hundred new values of a distribution do not exceed.
    Quantile(&'static str, u64),
    /// The share of the first in both, of what is new.
    Share(&'static str, &'static str),
    /// The share of the first in the second, now.
    Part(&'static str, &'static str),
}

/// A figure of a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// Its name in JSON.
    pub key: &'static str,
    /// Its name on the screen.
    pub title: &'static str,
    /// Its unit.
    pub unit: Unit,
    rule: Rule,
}

const fn figure(key: &'static str, title: &'static str, unit: Unit, rule: Rule) -> Figure {
    Figure { key, title, unit, rule }
}

use Rule::{Growth, Now, Part, Quantile, Share};
use Unit::{Bytes, BytesPerSecond, Count, Nanoseconds, PerSecond, Percent};

/// The figures, in the order of the screen. A volume has those that its report has.
const FIGURES: &[Figure] = &[
    figure("requests_per_s", "requests", PerSecond, Growth(&["fuse.requests_total"])),
    figure("errors_per_s", "errors", PerSecond, Growth(&["fuse.errors"])),
    figure("read_bytes_per_s", "read", BytesPerSecond, Growth(&["fuse.read_bytes"])),
    figure("written_bytes_per_s", "written", BytesPerSecond, Growth(&["fuse.written_bytes"])),
    figure("request_p50_ns", "latency p50", Nanoseconds, Quantile("fuse.request_ns", 50)),
    figure("request_p99_ns", "latency p99", Nanoseconds, Quantile("fuse.request_ns", 99)),
    figure("requests_in_progress", "in progress", Count, Now("fuse.queue_now")),
    figure("cache_hit_percent", "cache hits", Percent, Share("cache.hits", "cache.misses")),
    figure("dirty_bytes", "dirty", Bytes, Now("cache.budget.dirty_bytes")),
    figure("commits_per_s", "commits", PerSecond, Growth(&["journal.transactions"])),
    figure("commit_p99_ns", "commit p99", Nanoseconds, Quantile("journal.commit_ns", 99)),
    figure("checkpointed_per_s", "checkpointed", PerSecond, Growth(&["journal.checkpointed"])),
    figure(
        "journal_free_percent",
        "journal free",
        Percent,
        Part("journal.free_blocks", "journal.blocks"),
    ),
    figure("fsyncs_per_s", "fsyncs", PerSecond, Growth(&["fsync.calls"])),
    figure("checkpoints_per_s", "checkpoints", PerSecond, Growth(&["store.ckpt.written"])),
    figure("checkpoint_p99_ns", "checkpoint p99", Nanoseconds, Quantile("store.ckpt.whole_ns", 99)),
    figure("free_sections", "free sections", Count, Now("store.segments.free_sections")),
    figure(
        "cleaned_sections_per_s",
        "cleaned sections",
        PerSecond,
        Growth(&["gc.data_sections", "gc.node_sections"]),
    ),
    figure(
        "moved_blocks_per_s",
        "moved blocks",
        PerSecond,
        Growth(&["gc.data_blocks_moved", "gc.node_blocks_moved"]),
    ),
];

/// A figure over time; the newest value is the last. A moment at which it had none is `None`.
#[derive(Debug)]
pub(super) struct Series {
    /// What it is.
    pub figure: &'static Figure,
    /// Its values.
    pub values: VecDeque<Option<f64>>,
}

impl Series {
    /// The newest value.
    #[must_use]
    pub(super) fn now(&self) -> Option<f64> {
        self.values.back().copied().flatten()
    }

    /// The greatest of the newest `last` values.
    #[must_use]
    pub(super) fn peak(&self, last: usize) -> Option<f64> {
        self.values.iter().rev().take(last).flatten().copied().reduce(f64::max)
    }
}

/// Most values that are kept of a figure: more than a screen has columns.
const KEPT: usize = 512;

/// All figures of one mount since it is watched.
#[derive(Debug, Default)]
pub(super) struct History {
    newest: Option<Report>,
    series: Vec<Series>,
}

impl History {
    /// Takes the next report, which was made this many seconds after the one before.
    pub(super) fn push(&mut self, report: Report, seconds: f64) {
        // Another daemon, after an unmount and a mount, counts from zero.
        let is_same = |old: &&Report| old.u64("mount.pid") == report.u64("mount.pid");
        let old = self.newest.as_ref().filter(is_same);
        for figure in FIGURES.iter().filter(|figure| is_there(figure, &report)) {
            let value = old
                .and_then(|old| value(figure, old, &report, seconds))
                .or_else(|| value_now(figure, &report));
            let known = self.series.iter_mut().find(|series| series.figure.key == figure.key);
            match known {
                Some(series) => {
                    series.values.push_back(value);
                    if series.values.len() > KEPT {
                        series.values.pop_front();
                    }
                }
                None => self.series.push(Series { figure, values: [value].into() }),
            }
        }
        self.newest = Some(report);
    }

    /// The last report.
    #[must_use]
    pub(super) fn newest(&self) -> Option<&Report> {
        self.newest.as_ref()
    }

    /// The figures.
    #[must_use]
    pub(super) fn series(&self) -> &[Series] {
        &self.series
    }
}

/// The sum of the numbers at a path.
fn number(report: &Report, path: &str) -> Option<u64> {
    match report.get(path)? {
        Value::U64(value) => Some(*value),
        Value::Section(parts) => Some(
            parts
                .iter()
                .filter_map(
                    |(_, part)| if let Value::U64(part) = part { Some(*part) } else { None },
                )
                .fold(0, u64::saturating_add),
        ),
        _ => None,
    }
}

fn is_there(figure: &Figure, report: &Report) -> bool {
    let path = match figure.rule {
        Growth(paths) => paths[0],
        Now(path) | Quantile(path, _) | Share(path, _) | Part(path, _) => path,
    };
    report.get(path).is_some()
}

fn growth(old: &Report, new: &Report, path: &str) -> Option<u64> {
    Some(number(new, path)?.saturating_sub(number(old, path)?))
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

fn value(figure: &Figure, old: &Report, new: &Report, seconds: f64) -> Option<f64> {
    match figure.rule {
        Growth(paths) => {
            let grown: Option<u64> = paths.iter().map(|path| growth(old, new, path)).sum();
            grown.map(|grown| grown as f64 / seconds.max(1e-6))
        }
        Quantile(path, percent) => quantile(old, new, path, percent),
        Share(part, rest) => {
            let (part, rest) = (growth(old, new, part)?, growth(old, new, rest)?);
            percent(part, part.saturating_add(rest))
        }
        Now(_) | Part(..) => None,
    }
}

fn value_now(figure: &Figure, report: &Report) -> Option<f64> {
    match figure.rule {
        Now(path) => number(report, path).map(|value| value as f64),
        Part(part, whole) => percent(number(report, part)?, number(report, whole)?),
        Growth(_) | Quantile(..) | Share(..) => None,
    }
}

/// New values of a distribution by their upper bounds; within a bucket they are taken as evenly
/// spread.
fn quantile(old: &Report, new: &Report, path: &str, percent: u64) -> Option<f64> {
    let Some(Value::Section(buckets)) = new.get(&format!("{path}.buckets")) else { return None };
    let before = |bound: &str| old.u64(&format!("{path}.buckets.{bound}")).unwrap_or(0);
    let fresh: Vec<(u64, u64)> = buckets
        .iter()
        .filter_map(|(bound, count)| match count {
            Value::U64(count) => Some((bound.parse().ok()?, count.saturating_sub(before(bound)))),
            _ => None,
        })
        .collect();
    let all = fresh.iter().fold(0_u64, |all, (_, count)| all.saturating_add(*count));
    let wanted = all as f64 * percent as f64 / 100.0;
    let most = new.u64(&format!("{path}.max")).unwrap_or(u64::MAX) as f64;
    let mut seen = 0.0;
    for (bound, count) in fresh.into_iter().filter(|(_, count)| *count > 0) {
        let count = count as f64;
        if seen + count >= wanted {
            let low = (bound / 2) as f64;
            let high = bound as f64;
            return Some((low + (high - low) * (wanted - seen) / count).min(most));
        }
        seen += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(pid: u64, requests: u64, buckets: &[(&str, u64)]) -> Report {
        let mut report = Report::new();
        report.section("mount").set("pid", pid);
        let mut counts = Report::new();
        for (bound, count) in buckets {
            counts.set(bound, *count);
        }
        let times = Report::new().with("max", 5_000_u64).with("buckets", counts);
        report.section("fuse").set("requests_total", requests).set("request_ns", times);
        report.section("fuse").set("queue_now", 2_u64);
        report.section("cache").set("hits", requests).set("misses", 100_u64);
        report
    }

    fn now(history: &History, key: &str) -> Option<f64> {
        history.series().iter().find(|series| series.figure.key == key).unwrap().now()
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let mut history = History::default();
        history.push(report(1, 100, &[("1023", 100)]), 0.0);
        assert_eq!(now(&history, "requests_per_s"), None);
        assert_eq!(now(&history, "requests_in_progress"), Some(2.0));
        history.push(report(1, 300, &[("1023", 100), ("4095", 200)]), 2.0);
        assert_eq!(now(&history, "requests_per_s"), Some(100.0));
        assert_eq!(now(&history, "cache_hit_percent"), Some(100.0));
        // Between 2047 and 4095, evenly.
        assert_eq!(now(&history, "request_p50_ns"), Some(3071.0));
        history.push(report(1, 300, &[("1023", 100), ("4095", 200)]), 1.0);
        assert_eq!(now(&history, "requests_per_s"), Some(0.0));
        assert_eq!(now(&history, "request_p99_ns"), None);
        assert!(history.series().iter().all(|series| series.figure.key != "commits_per_s"));
    }

    #[test]
    fn another_daemon_begins_anew() {
        let mut history = History::default();
        history.push(report(1, 100, &[]), 0.0);
        history.push(report(2, 3, &[]), 1.0);
        assert_eq!(now(&history, "requests_per_s"), None);
        history.push(report(2, 5, &[]), 1.0);
        assert_eq!(now(&history, "requests_per_s"), Some(2.0));
    }

    #[test]
    fn a_long_watch_keeps_so_many_values() {
        let mut history = History::default();
        (0..2 * KEPT).for_each(|n| history.push(report(1, n as u64, &[]), 1.0));
        assert!(history.series().iter().all(|series| series.values.len() == KEPT));
        assert_eq!(history.series()[0].peak(5), Some(1.0));
    }
}
