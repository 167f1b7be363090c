//! The program's log: warnings in the form of other messages, or the levels that `CAIRN_LOG` names,
//! with times.

use std::ffi::OsStr;
use std::io::IsTerminal as _;

use cairn_base::told::TOLD;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::{log_line, log_ring, output, print};

const VARIABLE: &str = "CAIRN_LOG";

/// What is shown without `CAIRN_LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Warnings and errors.
    Warnings,
    /// The same, and those that come again are shown again.
    Repeated,
    /// Nothing: the command damages volumes in memory to see what is noticed.
    Nothing,
}

/// Starts the log. With `complains`, an unknown value of `CAIRN_LOG` is reported.
pub(crate) fn start(complains: bool, shows: Shown) {
    let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let filter = asked.and_then(|value| {
        let filter = filter(&value);
        if filter.is_none() && complains {
            let value = print::escaped(value.as_encoded_bytes());
            output::complain(format_args!(
                "{VARIABLE}={value}: no such level: give error, warn, info, debug or trace, or a \
                 level for one crate, such as cairn_ext4=debug"
            ));
        }
        filter
    });
    let shown =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let shown = match filter {
        Some(filter) => {
            shown.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed()
        }
        None => shown
            .with_ansi(false)
            .event_format(log_line::Plain::new(shows == Shown::Repeated))
            .with_filter(unasked(shows, std::io::stderr().is_terminal()))
            .boxed(),
    };
    let kept = log_ring::RingLayer.with_filter(LevelFilter::WARN);
    // A second start in one process (tests) keeps the first.
    let _ = tracing_subscriber::registry().with(shown).with(kept).try_init();
}

/// What is shown where nobody asks for a level. What a request waits for is for who waits. A
/// command tells its failure itself.
fn unasked(shows: Shown, is_terminal: bool) -> Targets {
    let level = match shows {
        Shown::Nothing => LevelFilter::OFF,
        Shown::Warnings | Shown::Repeated => LevelFilter::WARN,
    };
    let waiting = if is_terminal { level } else { LevelFilter::OFF };
    let told = if shows == Shown::Repeated { level } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(level).with_target(cairn_nbd::WAITING, waiting);
    targets.with_target(TOLD, told)
}

/// Parses words separated by commas. Unknown words are refused: `EnvFilter` would take such a word
/// for a module's name and show nothing.
fn filter(value: &OsStr) -> Option<EnvFilter> {
    let value = value.to_str()?;
    value.split(',').all(is_known).then(|| EnvFilter::try_new(value).ok())?
}

fn is_known(word: &str) -> bool {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    match word.split_once('=') {
        Some((part, level)) => part.starts_with("cairn") && is_level(level),
        None => is_level(word) || word.starts_with("cairn"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_told_of_on_a_terminal_alone() {
        let shown = |shows, is_terminal, target: &str| {
            unasked(shows, is_terminal).would_enable(target, &tracing::Level::WARN)
        };
        for shows in [Shown::Warnings, Shown::Repeated] {
            assert!(shown(shows, true, cairn_nbd::WAITING));
            assert!(!shown(shows, false, cairn_nbd::WAITING));
            assert!(shown(shows, true, "cairn_nbd") && shown(shows, false, "cairn_nbd"));
        }
        assert!(!shown(Shown::Nothing, true, cairn_nbd::WAITING));
        assert!(shown(Shown::Repeated, false, TOLD) && !shown(Shown::Warnings, true, TOLD));
    }

    #[test]
    fn words_that_show_something_are_told_from_others() {
        for value in ["info", "WARN", "off", "cairn_ext4=debug,warn", "cairn_jbd2", "cairn=trace"] {
            assert!(filter(value.as_ref()).is_some(), "{value}");
        }
        for value in ["bogus", "info,bogus", "cairn=bogus", "verbose=1", "ext4=debug", ","] {
            assert!(filter(value.as_ref()).is_none(), "{value}");
        }
    }
}
