//! Counters of live mounts as text for Prometheus: its own text format, which node_exporter takes
//! from files, and OpenMetrics. Both have the same samples; the lines that describe them differ.

mod families;

use std::fmt::Write as _;
use std::path::Path;

use cairn_base::stats::{Report, Value};

pub use families::{FAMILIES, Family, Kind, Source};

use super::build::failure;
use crate::failure::Outcome;

/// The text's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus' text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// What one mount answered: its mount point, and its report if its daemon gave one.
#[derive(Debug)]
pub struct Answer {
    /// Where it is mounted.
    pub mountpoint: String,
    /// Its counters.
    pub report: Option<Report>,
}

impl Answer {
    /// The same mount, whose daemon no longer answers.
    #[must_use]
    pub fn down(self) -> Self {
        Self { report: None, ..self }
    }
}

/// Upper bounds of the buckets of times, as powers of two in nanoseconds: 1 µs to 34 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=35;

/// The metrics of these mounts.
#[must_use]
pub fn text(answers: &[Answer], form: Form) -> String {
    let mut text = String::new();
    let up = "1 if the daemon of the mount answers.";
    head(&mut text, form, "up", Kind::Gauge, up);
    for answer in answers {
        let labels = Labels::of(answer);
        sample(&mut text, "up", &labels, &u8::from(answer.report.is_some()).to_string());
    }
    info(&mut text, answers, form);
    for family in FAMILIES {
        let mut samples = String::new();
        for answer in answers {
            if let Some(report) = &answer.report {
                of_family(&mut samples, family, report, &Labels::of(answer));
            }
        }
        if !samples.is_empty() {
            head(&mut text, form, family.name, family.kind, family.help);
            text += &samples;
        }
    }
    if form == Form::OpenMetrics {
        text += "# EOF\n";
    }
    text
}

/// What the mounts are, in labels.
fn info(text: &mut String, answers: &[Answer], form: Form) {
    head(text, form, "mount_info", Kind::Gauge, "What is mounted, in labels; the value is 1.");
    for answer in answers {
        let Some(report) = &answer.report else { continue };
        let mut labels = Labels::of(answer);
        for (label, path) in [
            ("image", "mount.image"),
            ("format", "state.format"),
            ("transport", "fuse.transport"),
            ("version", "mount.version"),
        ] {
            labels = labels.with(label, report.text(path).unwrap_or_default());
        }
        sample(text, "mount_info", &labels, "1");
    }
}

/// The lines before the samples of a family.
fn head(text: &mut String, form: Form, name: &str, kind: Kind, help: &str) {
    let family = match (form, kind) {
        (Form::Prometheus, Kind::Counter) => format!("cairn_{name}_total"),
        _ => format!("cairn_{name}"),
    };
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    let unit = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit));
    if let (Form::OpenMetrics, Some(unit)) = (form, unit) {
        let _ = writeln!(text, "# UNIT {family} {unit}");
    }
}

fn sample(text: &mut String, name: &str, labels: &Labels, value: &str) {
    let _ = writeln!(text, "cairn_{name}{{{}}} {value}", labels.0);
}

/// The samples of one family and mount.
fn of_family(text: &mut String, family: &Family, report: &Report, labels: &Labels) {
    let name = match family.kind {
        Kind::Counter => format!("{}_total", family.name),
        _ => family.name.to_owned(),
    };
    let mut put = |labels: &Labels, path: &str, value: &Value| {
        if let Some(number) = number(path, value) {
            sample(text, &name, labels, &number);
        }
    };
    match family.source {
        Source::At(path) => match report.get(path) {
            Some(Value::Section(times)) => histogram(text, &name, labels, times),
            Some(value) => put(labels, path, value),
            None => {}
        },
        Source::Several(label, parts) => {
            for (value, path) in parts {
                if let Some(found) = report.get(path) {
                    put(&labels.with(label, value), path, found);
                }
            }
        }
        Source::Each(path, label) => {
            if let Some(Value::Section(parts)) = report.get(path) {
                parts
                    .iter()
                    .for_each(|(value, found)| put(&labels.with(label, value), path, found));
            }
        }
        Source::Blocks(path) => {
            let bytes = report.u64(path).zip(report.u64("state.block_size"));
            if let Some((blocks, size)) = bytes {
                put(labels, path, &Value::U64(blocks.saturating_mul(size)));
            }
        }
        Source::Is(path, wanted) => {
            if let Some(found) = report.text(path) {
                put(labels, path, &Value::Bool(found == wanted));
            }
        }
    }
}

/// A distribution of nanoseconds.
fn histogram(text: &mut String, name: &str, labels: &Labels, times: &Report) {
    let count = times.u64("count").unwrap_or(0);
    let up_to = |most: u64| -> u64 {
        let Some(Value::Section(buckets)) = times.get("buckets") else { return 0 };
        let counts = buckets.iter().filter_map(|(bound, count)| {
            let is_below = bound.parse::<u64>().is_ok_and(|bound| bound <= most);
            match count {
                Value::U64(count) if is_below => Some(*count),
                _ => None,
            }
        });
        counts.sum()
    };
    let bucket = format!("{name}_bucket");
    for power in POWERS {
        let bound = (1_u64 << power) - 1;
        let labels = labels.with("le", &seconds(bound));
        // The buckets and the count are not read at one moment.
        sample(text, &bucket, &labels, &up_to(bound).min(count).to_string());
    }
    sample(text, &bucket, &labels.with("le", "+Inf"), &count.to_string());
    let total = times.u64("total").unwrap_or(0);
    sample(text, &format!("{name}_sum"), labels, &seconds(total));
    sample(text, &format!("{name}_count"), labels, &count.to_string());
}

fn number(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::U64(value) if path.ends_with("_ns") => Some(seconds(*value)),
        Value::U64(value) => Some(value.to_string()),
        Value::F64(value) => Some(value.to_string()),
        Value::Bool(on) => Some(u8::from(*on).to_string()),
        Value::Text(_) | Value::List(_) | Value::Section(_) => None,
    }
}

/// Nanoseconds as seconds, exactly, and always with a point.
fn seconds(nanoseconds: u64) -> String {
    let text = format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    match text.trim_end_matches('0') {
        whole if whole.ends_with('.') => format!("{whole}0"),
        exact => exact.to_owned(),
    }
}

/// Labels of a sample, as they are written.
#[derive(Clone, Debug)]
struct Labels(String);

impl Labels {
    fn of(answer: &Answer) -> Self {
        Self(String::new()).with("mountpoint", &answer.mountpoint)
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        Self(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

/// Puts text into a file that others read at any time: see [`cairn_build::replace`].
///
/// # Errors
/// As [`cairn_build::replace`].
pub fn replace(path: &Path, text: &str) -> Outcome {
    cairn_build::replace(path, text.as_bytes()).map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn answer() -> Answer {
        let mut report = Report::new();
        report.section("mount").set("image", "a \"b\"\\c\nd").set("uptime_s", 3_u64);
        report.section("state").set("blocks", 10_u64).set("block_size", 4096_u64);
        report.section("state").set("mode", "ro").set("frozen", false);
        let buckets = Report::new().with("1023", 2_u64).with("2047", 1_u64);
        let times = Report::new().with("count", 4_u64).with("total", 1_500_000_000_u64);
        let times = times.with("p99", 1_u64).with("buckets", buckets);
        let requests = Report::new().with("lookup", 4_u64);
        report.section("fuse").set("request_ns", times).set("requests", requests);
        Answer { mountpoint: "/mnt".into(), report: Some(report) }
    }

    #[test]
    fn samples_have_units_labels_and_buckets() {
        let gone = Answer { mountpoint: "/gone".into(), report: None };
        let text = text(&[answer(), gone], Form::Prometheus);
        for line in [
            "cairn_up{mountpoint=\"/mnt\"} 1\n",
            "cairn_up{mountpoint=\"/gone\"} 0\n",
            "cairn_mount_info{mountpoint=\"/mnt\",image=\"a \\\"b\\\"\\\\c\\nd\",",
            "# TYPE cairn_requests_total counter\n",
            "cairn_requests_total{mountpoint=\"/mnt\",operation=\"lookup\"} 4\n",
            "cairn_size_bytes{mountpoint=\"/mnt\"} 40960\n",
            "cairn_read_only{mountpoint=\"/mnt\"} 1\n",
            "cairn_frozen{mountpoint=\"/mnt\"} 0\n",
            "_duration_seconds_bucket{mountpoint=\"/mnt\",le=\"0.000001023\"} 2\n",
            "_duration_seconds_bucket{mountpoint=\"/mnt\",le=\"0.000002047\"} 3\n",
            "_duration_seconds_bucket{mountpoint=\"/mnt\",le=\"+Inf\"} 4\n",
            "_duration_seconds_sum{mountpoint=\"/mnt\"} 1.5\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("EOF") && !text.contains("journal"), "{text}");
    }

    #[test]
    fn openmetrics_names_the_family_of_a_counter_without_total() {
        let text = text(&[answer()], Form::OpenMetrics);
        assert!(text.contains("# TYPE cairn_requests counter\ncairn_requests_total{"), "{text}");
        assert!(text.contains("# UNIT cairn_size_bytes bytes\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn seconds_are_exact() {
        let shown = [0, 1, 1_500_000_000, 2_000_000_000].map(seconds);
        assert_eq!(shown, ["0.0", "0.000000001", "1.5", "2.0"]);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_others_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cairn.prom");
        replace(&path, "old\n").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, "new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let said = replace(&dir.path().join("none/cairn.prom"), "").unwrap_err().to_string();
        assert!(said.contains("/none"), "{said}");
    }
}
