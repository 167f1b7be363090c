//! One frame of the screen, as lines.

use std::time::Duration;

use cairn_base::stats::{Report, Value};

use super::rates::{History, Series, Unit};
use crate::print;

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Not at all.
    Plain,
    /// The line of the mount.
    Head,
    /// A warning.
    Warning,
    /// Less than the others.
    Dim,
}

/// A line of the screen.
pub(super) type Line = (Style, String);

/// What a frame shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Its figures.
    pub history: &'a History,
    /// The mount point, if there is no report yet.
    pub mountpoint: &'a str,
    /// How long the daemon has owed an answer, if that is long.
    pub silence: Option<Duration>,
    /// Why there is no newer report.
    pub trouble: Option<&'a str>,
    /// True if the terminal shows Unicode.
    pub unicode: bool,
}

const TITLE: usize = 17;
const VALUE: usize = 12;
const PEAK: usize = 16;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];

/// The lines of a screen of this size: none is longer, and there are no more.
#[must_use]
pub(super) fn lines(view: &View<'_>, width: usize, height: usize) -> Vec<Line> {
    let mut lines = head(view);
    lines.extend(view.history.series().iter().map(|one| (Style::Plain, row(one, view, width))));
    if let Some(report) = view.history.newest() {
        lines.push((Style::Plain, String::new()));
        lines.push((Style::Plain, operations(report)));
        lines.extend(last_message(report).map(|text| (Style::Warning, text)));
    }
    let silence = view.silence.map(|silence| format!("no answer for {} s", silence.as_secs()));
    let warnings: Vec<String> =
        silence.into_iter().chain(view.trouble.map(str::to_owned)).collect();
    // They are the last to go on a low screen.
    lines.truncate(height.saturating_sub(warnings.len()));
    lines.extend(warnings.into_iter().map(|text| (Style::Warning, text)));
    lines.truncate(height);
    let fit = |(style, text): Line| (style, print_safe(&text).chars().take(width).collect());
    lines.into_iter().map(fit).collect()
}

/// The last line of a live screen.
#[must_use]
pub(super) fn keys(position: (usize, usize), width: usize) -> Line {
    let text = match position {
        (_, 0 | 1) => "q ends".to_owned(),
        (at, of) => format!("q ends, n and p show the next and the previous mount ({at} of {of})"),
    };
    (Style::Dim, text.chars().take(width).collect())
}

/// Names of images and messages are other people's.
fn print_safe(text: &str) -> String {
    print::escaped(text.as_bytes())
}

fn head(view: &View<'_>) -> Vec<Line> {
    let Some(report) = view.history.newest() else {
        return vec![(Style::Head, format!("{}: waiting for its daemon", view.mountpoint))];
    };
    let text = |path| report.text(path).unwrap_or_default();
    let number = |path| report.u64(path).unwrap_or(0);
    let frozen = match report.get("state.frozen") {
        Some(Value::Bool(true)) => ", frozen",
        _ => "",
    };
    let first = format!(
        "{}  {} {}{frozen}  {}",
        text("mount.mountpoint"),
        text("state.format"),
        text("state.mode"),
        text("mount.image"),
    );
    let block = number("state.block_size");
    let bytes = |path| print::size(number(path).saturating_mul(block));
    let second = format!(
        "free {} of {}; up {}; daemon {} with {}; {}",
        bytes("state.free_blocks"),
        bytes("state.blocks"),
        time(number("mount.uptime_s")),
        number("mount.pid"),
        print::size(number("mount.resident_bytes")),
        text("fuse.transport"),
    );
    let mut lines = vec![(Style::Head, first), (Style::Dim, second)];
    if let Some(reason) = report.text("state.read_only_reason") {
        lines.push((Style::Warning, format!("read-only: {reason}")));
    }
    lines.push((Style::Plain, String::new()));
    lines
}

fn time(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match hours {
        0 if minutes == 0 => format!("{seconds} s"),
        0 => format!("{minutes} min"),
        1..48 => format!("{hours} h"),
        _ => format!("{} d", hours / 24),
    }
}

/// Title, present value, the values before it, the greatest of them.
fn row(series: &Series, view: &View<'_>, width: usize) -> String {
    let value = |value: Option<f64>| value.map_or("-".into(), |it| amount(it, series.figure.unit));
    let start = format!("{:<TITLE$}{:>VALUE$}", series.figure.title, value(series.now()));
    let room = width.min(KEPT_COLUMNS).saturating_sub(TITLE + VALUE + PEAK + 2);
    if room < 8 {
        return start;
    }
    let levels = if view.unicode { &BLOCKS } else { &LETTERS };
    let line = sparkline(series, room, levels);
    format!("{start}  {line:>room$}{:>PEAK$}", format!("max {}", value(series.peak(room))))
}

/// No screen needs longer lines of values.
const KEPT_COLUMNS: usize = 400;

/// The newest values, each as a column; the highest is the greatest of them.
fn sparkline(series: &Series, room: usize, levels: &[char; 8]) -> String {
    let peak = match series.figure.unit {
        Unit::Percent => 100.0,
        _ => series.peak(room).unwrap_or(0.0),
    };
    let level = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) if peak > 0.0 => {
            let at = (value / peak * 7.0).round().clamp(0.0, 7.0);
            levels[at as usize]
        }
        Some(_) => levels[0],
    };
    let skipped = series.values.len().saturating_sub(room);
    series.values.iter().skip(skipped).map(level).collect()
}

/// A number with its unit, in at most eleven characters.
#[must_use]
pub(super) fn amount(value: f64, unit: Unit) -> String {
    let whole = value.round() as u64;
    match unit {
        Unit::Count => whole.to_string(),
        Unit::PerSecond if value < 10.0 => format!("{value:.1}/s"),
        Unit::PerSecond => format!("{whole}/s"),
        Unit::Bytes => print::size(whole),
        Unit::BytesPerSecond => format!("{}/s", print::size_short(whole)),
        Unit::Percent => format!("{value:.0} %"),
        Unit::Nanoseconds => match whole {
            0..1_000 => format!("{whole} ns"),
            1_000..1_000_000 => format!("{:.1} µs", value / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
            _ => format!("{:.2} s", value / 1e9),
        },
    }
}

/// The most frequent requests since the mount.
fn operations(report: &Report) -> String {
    let Some(Value::Section(requests)) = report.get("fuse.requests") else { return String::new() };
    let mut counts: Vec<(u64, &str)> = requests
        .iter()
        .filter_map(|(name, count)| match count {
            Value::U64(count) => Some((*count, name)),
            _ => None,
        })
        .collect();
    counts.sort_by_key(|(count, name)| (std::cmp::Reverse(*count), *name));
    let shown: Vec<String> =
        counts.iter().take(5).map(|(count, name)| format!("{name} {count}")).collect();
    format!("since the mount: {}", shown.join(", "))
}

fn last_message(report: &Report) -> Option<String> {
    match report.get("log.messages")? {
        Value::List(messages) => messages.last().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        for n in 0..300_u64 {
            let mut report = Report::new();
            report.section("mount").set("mountpoint", "/mnt\u{1b}[31m").set("pid", 1_u64);
            report.section("state").set("format", "ext4").set("mode", "rw").set("frozen", true);
            report.section("state").set("block_size", 4096_u64).set("blocks", u64::MAX);
            let requests = Report::new().with("lookup", n).with("read", n * 2);
            report.section("fuse").set("requests_total", n * n * 1_000_000).set("errors", n);
            report.section("fuse").set("requests", requests).set("queue_now", n % 7);
            report.section("log").set("messages", vec!["trouble ".repeat(40)]);
            history.push(report, 1.0);
        }
        history
    }

    fn view(history: &History) -> View<'_> {
        View { history, mountpoint: "/mnt", silence: None, trouble: None, unicode: true }
    }

    #[test]
    fn a_frame_fits_every_screen() {
        let history = history();
        let trouble = View { trouble: Some("it is stopped"), ..view(&history) };
        let silent = View { silence: Some(Duration::from_millis(7900)), ..trouble };
        for shown in [view(&history), trouble, silent, view(&History::default())] {
            for (width, height) in [(80, 24), (1, 1), (0, 0), (20, 5), (79, 23), (400, 100)] {
                let lines = lines(&shown, width, height);
                assert!(lines.len() <= height, "{width}x{height}: {}", lines.len());
                let says = lines.iter().any(|(_, line)| line == "no answer for 7 s");
                assert_eq!(says, shown.silence.is_some() && height > 0 && width > 16);
                for (_, line) in &lines {
                    assert!(line.chars().count() <= width, "{width}x{height}: {line}");
                    assert!(line.chars().all(|letter| !letter.is_control()), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn the_newest_value_is_the_last_column_and_the_peak_the_highest() {
        let history = history();
        let lines = lines(&view(&history), 80, 24);
        let row = &lines.iter().find(|(_, line)| line.starts_with("requests ")).unwrap().1;
        assert_eq!(row.chars().count(), 80);
        assert!(row.contains("597000000/s") && row.contains("█ max 597000000/s"), "{row}");
        let row = &lines.iter().find(|(_, line)| line.starts_with("errors")).unwrap().1;
        assert!(row.contains("1.0/s  ████"), "{row}");
        let plain = View { unicode: false, ..view(&history) };
        let text = super::lines(&plain, 80, 24);
        assert!(text.iter().any(|(_, line)| line.contains("####")), "{text:?}");
    }

    #[test]
    fn amounts_are_short() {
        for unit in [Unit::Count, Unit::PerSecond, Unit::Bytes, Unit::Nanoseconds] {
            for value in [0.0, 0.5, 9.99, 1023.0, 1e6, 9.9e8] {
                assert!(amount(value, unit).chars().count() < VALUE, "{}", amount(value, unit));
            }
        }
        assert_eq!(amount(2_500_000.0, Unit::Nanoseconds), "2.5 ms");
        assert_eq!(amount(1536.0, Unit::BytesPerSecond), "1.5K/s");
    }
}
