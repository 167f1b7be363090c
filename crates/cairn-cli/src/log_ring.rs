//! The last warnings and errors of this process, for `cairn stats` and `cairn umount`: a daemon
//! without a terminal has no other way to say why it stopped. `cairn stats` has notes, too: what
//! the daemon did by itself, as it had been asked.
//!
//! Locking: one mutex, held for a few instructions.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use cairn_base::stats::Report;
use cairn_vfs::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::{print, wording};

/// Lines that are kept, and their greatest length in bytes.
const LINES: usize = 64;
const LINE: usize = 1000;

#[derive(Default)]
struct Ring {
    lines: VecDeque<(Level, String)>,
    warnings: u64,
    errors: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring { lines: VecDeque::new(), warnings: 0, errors: 0 });

/// Section `log`: the number of messages, and the last ones, oldest first.
#[must_use]
pub fn report() -> Report {
    report_down_to(Level::INFO)
}

/// The same without notes, for the end of the daemon.
#[must_use]
pub fn trouble() -> Report {
    report_down_to(Level::WARN)
}

fn report_down_to(least: Level) -> Report {
    let ring = RING.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = ring.lines.iter().filter(|(level, _)| *level <= least);
    let lines: Vec<String> = shown.map(|(_, line)| line.clone()).collect();
    Report::new()
        .with("errors", ring.errors)
        .with("warnings", ring.warnings)
        .with("messages", lines)
}

/// True if this text has been logged.
#[must_use]
pub fn holds(text: &str) -> bool {
    let text = &*wording::named(text);
    RING.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .lines
        .iter()
        .any(|(_, line)| line.contains(text))
}

/// Keeps a line.
pub fn keep(level: Level, text: &str) {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanoseconds: 0 };
    let mut line = format!("{} {level} {text}", print::time(now));
    if line.len() > LINE {
        let end = (0..=LINE).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line.truncate(end);
    }
    let mut ring = RING.lock().unwrap_or_else(PoisonError::into_inner);
    match level {
        Level::ERROR => ring.errors += 1,
        Level::WARN => ring.warnings += 1,
        _ => {}
    }
    if ring.lines.len() == LINES {
        ring.lines.pop_front();
    }
    ring.lines.push_back((level, line));
}

/// Puts the warnings and errors of `tracing` into the ring.
pub struct RingLayer;

impl<S: Subscriber> Layer<S> for RingLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::WARN {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        keep(level, &wording::named(&format!("{}{}", text.message, text.fields)));
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::stats::Value;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn the_last_warnings_and_errors_are_kept() {
        let before = report();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(RingLayer), || {
            tracing::info!("not this");
            tracing::warn!("only a warning");
            for n in 0..LINES {
                tracing::error!(n, reason = "the device failed", "volume stopped");
            }
        });
        let after = report();
        let grown = |name| after.u64(name).unwrap() - before.u64(name).unwrap();
        assert_eq!((grown("errors"), grown("warnings")), (LINES as u64, 1));
        let Some(Value::List(lines)) = after.get("messages") else { panic!("no messages") };
        assert_eq!(lines.len(), LINES);
        let last = lines.last().unwrap();
        assert!(last.ends_with("ERROR volume stopped n=63 reason=the device failed"), "{last}");
    }
}
