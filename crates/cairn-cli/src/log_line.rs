//! Formats warnings of the libraries on standard error as other messages of the program.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::{print, wording};

/// `cairn: warning: MESSAGE`, or `cairn: error: MESSAGE`.
pub(crate) struct Plain {
    said: Option<Mutex<HashSet<String>>>,
}

/// Most messages that are remembered.
const REMEMBERED: usize = 1000;

impl Plain {
    /// For a command, which says each message once: on a full host every try to write would give
    /// the same one, with other numbers behind it. With `repeats`, for a mount, which lives long.
    pub(crate) fn new(repeats: bool) -> Self {
        Self { said: (!repeats).then(Mutex::default) }
    }

    /// True if the message has been said.
    fn is_known(&self, message: &str) -> bool {
        let Some(said) = &self.said else { return false };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.contains(message) || (said.len() < REMEMBERED && !said.insert(message.to_owned()))
    }
}

/// The message, and the values that belong to it.
#[derive(Default)]
struct Told {
    message: String,
    values: Vec<String>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.values.push(format!("{name}={value:?}")),
        }
    }
}

/// The values are in brackets: a message may end with a command.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, values } = self;
        match (message.is_empty(), values.is_empty()) {
            (_, true) => f.write_str(message),
            (true, false) => f.write_str(&values.join(", ")),
            (false, false) => write!(f, "{message} ({})", values.join(", ")),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut told = Told::default();
        event.record(&mut told);
        if self.is_known(&told.message) {
            return Ok(());
        }
        let level = if *event.metadata().level() == Level::ERROR { "error" } else { "warning" };
        let line = told.to_string();
        writeln!(writer, "cairn: {level}: {}", print::harmless(&wording::named(&line)))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is to be typed ends where the message does.
    #[test]
    fn values_are_apart_from_the_advice() {
        let values = ["errno=-5".to_owned(), "block=7".to_owned()].into();
        let told = Told { message: "stopped: check and repair it".into(), values };
        let line = wording::named(&told.to_string()).into_owned();
        assert!(line.ends_with("which says what repairs it (errno=-5, block=7)"), "{line}");
    }

    #[test]
    fn a_command_says_a_message_once_and_a_mount_each_time() {
        for (repeats, count) in [(false, 3), (true, 5)] {
            let lines = Lines::default();
            let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer({
                let lines = lines.clone();
                move || lines.clone()
            });
            let layer = layer.event_format(Plain::new(repeats));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                for start in 0..3 {
                    tracing::warn!(start, "could not be written");
                }
                for name in ["a", "b"] {
                    tracing::warn!("{name} is damaged");
                }
            });
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), count, "{text}");
            assert!(text.starts_with("cairn: warning: could not be written (start=0)\n"), "{text}");
        }
    }
}
