//! Signals that end a command: which of them the process handles, and what it leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io, process};

use cairn_base::thread::spawn;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Outcome};

const ENDING: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

static HANDLED: AtomicBool = AtomicBool::new(false);

/// Catches the signals that would end the process, except those that its caller has it ignore
/// (`nohup`, a background job).
///
/// # Errors
/// A signal handler could not be made.
pub fn ending() -> io::Result<Signals> {
    HANDLED.store(true, Ordering::Relaxed);
    catch()
}

/// As [`ending`], for who does not end the process by itself.
///
/// # Errors
/// As [`ending`].
pub fn catch() -> io::Result<Signals> {
    Signals::new(ENDING.into_iter().filter(|signal| !is_ignored(*signal)))
}

/// From now on signals that end a process are handled.
pub fn handled() {
    HANDLED.store(true, Ordering::Relaxed);
}

/// True if a part of the command handles signals that end a process.
#[must_use]
pub fn are_handled() -> bool {
    HANDLED.load(Ordering::Relaxed)
}

/// True if the caller of the process has it ignore a signal.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    ignored() >> (signal - 1) & 1 == 1
}

/// From now on a signal removes the files that a build or an export has not completed, and ends the
/// process with 128 and the signal's number.
///
/// # Errors
/// A signal handler or the thread could not be made.
pub fn remove_unfinished() -> Outcome {
    end_after(cairn_build::abandon)
}

/// From now on a signal has `work` done, and ends the process with 128 and the signal's number.
///
/// # Errors
/// As [`remove_unfinished`].
pub fn end_after(work: impl FnOnce() + Send + 'static) -> Outcome {
    let started = ending().and_then(|mut signals| {
        spawn("signals", move || {
            if let Some(signal) = signals.forever().next() {
                work();
                process::exit(128 + signal);
            }
        })
    });
    started.map(drop).map_err(unhandled)
}

/// From now on the first signal calls `work`, which lets the command end by itself, and the second
/// one calls `last` and ends the process with 128 and the signal's number.
///
/// # Errors
/// As [`remove_unfinished`].
pub fn on_ending(
    work: impl FnOnce() + Send + 'static,
    last: impl FnOnce() + Send + 'static,
) -> Outcome {
    let started = ending().and_then(|mut signals| {
        spawn("signals", move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                work();
            }
            if let Some(signal) = signals.next() {
                last();
                process::exit(128 + signal);
            }
        })
    });
    started.map(drop).map_err(unhandled)
}

fn unhandled(error: io::Error) -> Failure {
    let advice = "end other programs, or raise the limits of this one (ulimit)";
    Failure::start("signals cannot be handled", &error, advice)
}

/// One bit for each signal.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
