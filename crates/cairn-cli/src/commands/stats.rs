//! `cairn stats`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use cairn_base::stats::{Report, Value};
use cairn_base::thread::spawn;
use cairn_fuse::control::{Client, ControlError};

use super::live_mount;
use super::metrics::{self, Answer, Form};
use super::mount::table::Mount;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{self, with_stdout};
use crate::{json, print, signals};

/// Arguments of `stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn stats /mnt
  cairn stats --json --watch=5 /mnt
  cairn stats --prometheus --output cairn.prom /mnt

The JSON object is described in docs/control.md; with --watch there is one on each line. The \
metrics of --prometheus and --openmetrics are described there, too.")]
pub struct Args {
    /// As JSON.
    #[arg(long, group = "form")]
    pub json: bool,
    /// As metrics in Prometheus' text format.
    #[arg(long, group = "form", group = "metrics")]
    pub prometheus: bool,
    /// As metrics in the format OpenMetrics.
    #[arg(long, group = "form", group = "metrics")]
    pub openmetrics: bool,
    /// Metrics of all mounts that you may ask. Of one that does not answer, cairn_up is 0.
    #[arg(long, requires = "metrics", conflicts_with = "mountpoint")]
    pub all: bool,
    /// Write the metrics to this file, as node_exporter reads them: it is replaced as a whole, and
    /// removed when --watch has seen the volume unmounted or a signal ends it.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub output: Option<PathBuf>,
    /// Print again every second, or every SECONDS, until the volume is unmounted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "1",
          value_parser = seconds)]
    pub watch: Option<Duration>,
    /// With --watch: end after this many times.
    #[arg(long, value_name = "TIMES", requires = "watch")]
    pub count: Option<u64>,
    /// Where the image is mounted.
    #[arg(required_unless_present = "all")]
    pub mountpoint: Option<PathBuf>,
}

/// A time in seconds, for a command line.
///
/// # Errors
/// It is no number, or beyond a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds, 0.01 to 86400".to_owned()),
    }
}

impl Args {
    fn form(&self) -> Option<Form> {
        let prometheus = self.prometheus.then_some(Form::Prometheus);
        prometheus.or(self.openmetrics.then_some(Form::OpenMetrics))
    }

    fn left(&self) -> u64 {
        self.count.unwrap_or(if self.watch.is_some() { u64::MAX } else { 1 })
    }
}

/// Prints the counters of a live mount.
///
/// # Errors
/// No Cairn mount is there, or its daemon cannot be reached.
pub fn run(args: &Args) -> Outcome {
    match (&args.mountpoint, args.form()) {
        (mountpoint, Some(form)) => measure(args, mountpoint.as_deref(), form),
        (Some(mountpoint), None) => watch(args, mountpoint),
        (None, None) => Err(Failure::usage("stats: MOUNTPOINT is missing: see cairn stats --help")),
    }
}

/// The report of the mount at this path.
///
/// # Errors
/// As [`run`].
pub fn ask(mountpoint: &Path) -> Outcome<Report> {
    let client = live_mount::connect(mountpoint)?;
    client.stats().map_err(|error| live_mount::failure(mountpoint, &error))
}

fn watch(args: &Args, mountpoint: &Path) -> Outcome {
    let mut report = match ask(mountpoint) {
        Err(failure) if args.json => {
            with_stdout(|output| json::failure(output, &failure))?;
            return Err(failure);
        }
        asked => asked?,
    };
    let mut left = args.left();
    loop {
        show(&report, args)?;
        left = left.saturating_sub(1);
        let Some(interval) = args.watch.filter(|_| left > 0) else { return Ok(()) };
        std::thread::sleep(interval);
        report = match ask(mountpoint) {
            Ok(report) => report,
            // The volume has been unmounted meanwhile.
            Err(_) if live_mount::find(mountpoint).is_err() => return Ok(()),
            Err(error) => return Err(error),
        };
    }
}

/// Metrics of one mount, or of all.
fn measure(args: &Args, mountpoint: Option<&Path>, form: Form) -> Outcome {
    let answers = || match mountpoint {
        None => answers_of_all(),
        Some(point) => {
            let report = ask(point)?;
            let place = report.text("mount.mountpoint").map(str::to_owned);
            let mountpoint = place.unwrap_or_else(|| point.display().to_string());
            Ok(vec![Answer { mountpoint, report: Some(report) }])
        }
    };
    let mut found = answers()?;
    let mut left = args.left();
    let written = Arc::new(Mutex::new(()));
    if let (Some(file), Some(_)) = (&args.output, args.watch) {
        remove_at_signal(file.clone(), written.clone())?;
    }
    loop {
        let text = metrics::text(&found, form);
        match &args.output {
            Some(file) => {
                let _written = written.lock().unwrap_or_else(PoisonError::into_inner);
                metrics::replace(file, &text)?;
            }
            None => with_stdout(|output| output.bytes(text.as_bytes()))?,
        }
        left = left.saturating_sub(1);
        let Some(interval) = args.watch.filter(|_| left > 0) else { return Ok(()) };
        std::thread::sleep(interval);
        found = match answers() {
            Ok(answers) => answers,
            Err(_) if mountpoint.is_some_and(|point| live_mount::find(point).is_err()) => {
                let Some(file) = &args.output else { return Ok(()) };
                return std::fs::remove_file(file).map_err(|error| Failure::host(file, &error));
            }
            Err(error) if mountpoint.is_none() => return Err(error),
            // The mount is there, and its daemon is not: that is a sample, too.
            Err(_) => found.into_iter().map(Answer::down).collect(),
        };
    }
}

/// From now on a signal that ends the command removes the file, whose figures nobody renews, as an
/// unmount does. Who writes it holds `written`.
fn remove_at_signal(file: PathBuf, written: Arc<Mutex<()>>) -> Outcome {
    signals::end_after(move || {
        // Kept up to the end, so that the file is not written again.
        std::mem::forget(written.lock().unwrap_or_else(PoisonError::into_inner));
        // If it was removed meanwhile, all is done.
        let _ = std::fs::remove_file(file);
    })
}

/// Of all mounts that are Cairn's and may be asked. A daemon that hangs delays no other.
fn answers_of_all() -> Outcome<Vec<Answer>> {
    let mounts = live_mount::all()?;
    let (sender, answers) = mpsc::channel();
    for (at, mount) in mounts.into_iter().enumerate() {
        let sender = sender.clone();
        let ask = move || answer_of(&mount).map(|answer| sender.send((at, answer)));
        spawn("asks", ask)
            .map_err(|error| Failure::start("stats", &error, "end other programs"))?;
    }
    drop(sender);
    let mut answers: Vec<(usize, Answer)> = answers.iter().collect();
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

fn answer_of(mount: &Mount) -> Option<Answer> {
    let report = match live_mount::daemon(mount).and_then(Client::stats) {
        Ok(report) => Some(report),
        Err(ControlError::Foreign { .. }) => return None,
        // Without a subtype in the table it may be another program's.
        Err(_) if !mount.kind.ends_with(".cairn") => return None,
        Err(_) => None,
    };
    Some(Answer { mountpoint: mount.point.display().to_string(), report })
}

fn show(report: &Report, args: &Args) -> Outcome {
    let json = |text: serde_json::Result<String>| {
        text.map(|text| text + "\n")
            .map_err(|error| Failure::new(Status::Failed, format!("stats: {error}")))
    };
    let text = match (args.json, args.watch) {
        (true, Some(_)) => json(serde_json::to_string(report))?,
        (true, None) => json(serde_json::to_string_pretty(report))?,
        (false, Some(_)) => table(report) + "\n",
        (false, None) => table(report),
    };
    with_stdout(|output| output.bytes(text.as_bytes()))
}

/// A heading for each section, a line for each field.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in report.iter() {
        match value {
            Value::Section(section) => {
                text += &format!("{name}\n");
                rows(section, name, &mut text);
            }
            value => text += &format!("{name:<24} {}\n", scalar(name, "", value)),
        }
    }
    text
}

fn rows(section: &Report, of: &str, text: &mut String) {
    for (name, value) in section.iter() {
        match value {
            Value::List(lines) => {
                lines.iter().for_each(|line| *text += &format!("  {}\n", print::harmless(line)));
            }
            value => *text += &format!("  {name:<22} {}\n", scalar(name, of, value)),
        }
    }
}

fn scalar(name: &str, section: &str, value: &Value) -> String {
    match value {
        Value::U64(number) => quantity(name, section, *number),
        Value::F64(number) => format!("{number:.3}"),
        Value::Bool(on) => String::from(if *on { "yes" } else { "no" }),
        Value::Text(text) => print::harmless(text).into_owned(),
        Value::List(lines) => print::harmless(&lines.join("; ")).into_owned(),
        Value::Section(inner) if inner.u64("p99").is_some() => distribution(name, inner),
        Value::Section(inner) => inline(inner, section),
    }
}

/// The fields of a section, or of something in it, in one line.
#[must_use]
pub fn inline(fields: &Report, section: &str) -> String {
    let shown =
        fields.iter().map(|(name, value)| format!("{name} {}", scalar(name, section, value)));
    shown.collect::<Vec<_>>().join(", ")
}

fn distribution(name: &str, figures: &Report) -> String {
    let figure = |field| figures.u64(field).unwrap_or(0);
    let shown = |value| quantity(name, "", value);
    let (count, total) = (figure("count"), figure("total"));
    let [p50, p99, max] = ["p50", "p99", "max"].map(|field| shown(figure(field)));
    format!("{count} times, {} in all, p50 {p50}, p99 {p99}, max {max}", shown(total))
}

/// A number with the unit in its name.
fn quantity(name: &str, section: &str, value: u64) -> String {
    let bytes = name.ends_with("_bytes")
        || matches!((section, name), ("cache", "read" | "write" | "writeback" | "device_read"))
        || matches!((section, name), ("options", "cache" | "max_folio"));
    if bytes {
        return print::size(value);
    }
    match (name.ends_with("_ns"), name.ends_with("_ms"), name.ends_with("_s") || name == "commit") {
        (true, ..) => duration(value),
        (_, true, _) => format!("{value} ms"),
        (_, _, true) => format!("{value} s"),
        _ => value.to_string(),
    }
}

fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// How many messages of a daemon's end are shown.
const SHOWN: usize = 5;

/// Prints the messages that a daemon left at its end: the first ones, each on a line, and the
/// number of the others.
pub fn print_messages(image: &str, last: &Report) {
    let Some(Value::List(lines)) = last.get("messages") else { return };
    // A single further message is printed: a line with its count would be as long.
    let shown = if lines.len() == SHOWN + 1 { lines.len() } else { SHOWN };
    lines.iter().take(shown).for_each(|line| output::complain(format_args!("{image}: {line}")));
    if lines.len() > shown {
        output::complain(format_args!("{image}: and {} more such messages", lines.len() - shown));
    }
}

/// The failure that a daemon reported at its end.
///
/// # Errors
/// It reported one.
pub fn check_end(image: &str, last: &Report) -> Outcome {
    match last.text("error") {
        Some(error) => Err(Failure::new(Status::Io, format!("{image}: unmounted, but {error}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_units() {
        let mut report = Report::new();
        report.section("options").set("cache", 64_u64 << 20).set("ro", false).set("commit", 5_u64);
        let figures =
            Report::new().with("count", 2_u64).with("total", 3_000_u64).with("p50", 900_u64);
        let figures = figures.with("p99", 2_500_000_u64).with("max", 2_000_000_000_u64);
        report.section("journal").set("commit_ns", figures).set("transactions", 2_u64);
        let folios = Report::new().with("4K", 7_u64).with("8K", 0_u64);
        report
            .section("cache")
            .set("folios_by_order", folios)
            .set("read", 2048_u64)
            .set("hits", 2048_u64);
        report.section("log").set("messages", vec!["one".to_owned(), "two\u{1b}[2J".to_owned()]);
        report.section("mount").set("mountpoint", "/mnt/\u{1b}]0;title\u{7}");
        let text = table(&report);
        for line in [
            "options\n",
            "  cache                  64.0 MiB\n",
            "  ro                     no\n",
            "  commit                 5 s\n",
            "  commit_ns              2 times, 3.0 µs in all, p50 900 ns, p99 2.5 ms, max 2.00 s\n",
            "  folios_by_order        4K 7, 8K 0\n",
            "  read                   2.0 KiB\n",
            "  hits                   2048\n",
            "  one\n  two\\033[2J\n",
            "  mountpoint             /mnt/\\033]0;title\\007\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn intervals_are_checked() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(
            seconds("0").is_err()
                && seconds("x").is_err()
                && seconds("-1").is_err()
                && seconds("inf").is_err()
        );
    }
}
