//! [`Supervisor`]: waits for children, and passes signals on.
//!
//! Signals that a process has sent are passed on. Those of a terminal (Ctrl-C) reach the command by
//! themselves, if it is in the group of this process.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::failure::{Failure, Outcome};
use crate::signals::is_ignored;

/// Signals that are passed on.
const PASSED_ON: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Which signals are passed on to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassOn {
    /// None.
    Nothing,
    /// Those that a process has sent.
    Sent,
    /// Those of a terminal, too: the child is in another group.
    All,
}

/// What happens before a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Another child has ended.
    Other(Pid),
    /// The child has stopped.
    Stopped,
    /// A signal has come.
    Woken,
}

/// The signals of a process that waits for children.
pub(super) struct Supervisor {
    signals: SignalsInfo<WithOrigin>,
}

impl Supervisor {
    /// Catches signals from now on, except those that the caller has this program ignore.
    ///
    /// # Errors
    /// A signal handler could not be made.
    pub(super) fn start() -> io::Result<Self> {
        let passed_on = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let caught = passed_on.into_iter().filter(|signal| !is_ignored(*signal));
        Ok(Self { signals: SignalsInfo::new(caught.chain([SIGCHLD]))? })
    }

    /// The last of the signals that have come, which is not passed on.
    pub(super) fn take_signal(&mut self) -> Option<Signal> {
        self.signals.pending().filter_map(|origin| known(&origin)).last()
    }

    /// Waits for a child, and reaps the others, and calls `event`.
    ///
    /// # Errors
    /// The child is not this process's.
    pub(super) fn wait(
        &mut self,
        child: Pid,
        passes_on: PassOn,
        event: &mut dyn FnMut(Event),
    ) -> Outcome<WaitStatus> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if status.stopped() => {
                    if pid == child {
                        event(Event::Stopped);
                    }
                    continue;
                }
                Ok(Some((pid, status))) if pid == child => return Ok(status),
                Ok(Some((pid, _))) => {
                    event(Event::Other(pid));
                    continue;
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => {
                    let advice = "run it again";
                    return Err(Failure::start("waiting for the command", &error.into(), advice));
                }
            }
            for origin in self.signals.wait() {
                match passes_on {
                    PassOn::Sent if !is_sent(&origin) => {}
                    PassOn::Sent | PassOn::All => pass_on(Some(child), known(&origin)),
                    PassOn::Nothing => {}
                }
            }
            event(Event::Woken);
        }
    }
}

fn known(origin: &Origin) -> Option<Signal> {
    PASSED_ON.into_iter().find(|signal| signal.as_raw() == origin.signal)
}

fn pass_on(child: Option<Pid>, signal: Option<Signal>) {
    if let (Some(child), Some(signal)) = (child, signal) {
        // It may just have ended.
        let _ = kill_process(child, signal);
    }
}

fn is_sent(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Sent(_))
}

/// The status of a process as a shell has it.
pub(super) fn status_of(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => status,
        (None, signal) => 128 + signal.unwrap_or_default(),
    }
}
