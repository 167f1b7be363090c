//! The terminal of a run.
//!
//! A shell gives the terminal to groups of processes, and back to its own. It cannot name groups
//! outside its namespace. So the init and the command are a group of their own inside, to which the
//! starter's group lends the terminal. What the caller's shell expects of the starter's group
//! remains: when the command stops (Ctrl-Z), the init says so, and the starter stops its own group;
//! when that goes on (`fg`), so does the command.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{self, SigSet};
use rustix::process::{
    Pid, Signal, getpgrp, kill_current_process_group, kill_process_group, test_kill_process_group,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::link::ToInit;

fn controlling() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/tty")
}

/// Makes a group the foreground, also from the background.
fn lend(terminal: &File, group: Pid) -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(signal::Signal::SIGTTOU);
    let before = SigSet::thread_get_mask()?;
    blocked.thread_block()?;
    let lent = tcsetpgrp(terminal, group);
    before.thread_set_mask()?;
    Ok(lent?)
}

/// The starter's side, before the init is there.
pub(super) struct Terminal(File);

impl Terminal {
    /// The terminal, if this process is in its foreground, reads it and writes to it. Otherwise
    /// others of its group may need the terminal, as `less` behind a pipe does.
    pub(super) fn of_caller() -> Option<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let file = controlling().ok()?;
        let ours = tcgetpgrp(&file).is_ok_and(|foreground| foreground == getpgrp());
        ours.then_some(Self(file))
    }

    /// Starts the init, which takes the terminal.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(self, command: &mut Command, link: &ToInit) -> io::Result<Job> {
        let init = command.process_group(0).spawn()?;
        Ok(Job { terminal: self.0, group: Pid::from_child(&init), stopped: link.stopped() })
    }
}

/// A run that has the terminal. Dropped when the init has ended: takes the terminal back.
pub(super) struct Job {
    terminal: File,
    group: Pid,
    stopped: Arc<AtomicBool>,
}

impl Job {
    /// The init.
    pub(super) fn init(&self) -> Pid {
        self.group
    }

    /// If the command has stopped, stops this process's group, until it goes on. Called by the
    /// first thread: signals to itself arrive at once.
    pub(super) fn follow(&self) {
        if !self.stopped.swap(false, Ordering::SeqCst) {
            return;
        }
        let own = getpgrp();
        let foreground = tcgetpgrp(&self.terminal);
        // In the foreground already (`fg` after `bg`), the command only lacks the terminal.
        if foreground != Ok(own) {
            if foreground == Ok(self.group) {
                let _ = lend(&self.terminal, own);
            }
            let _ = kill_current_process_group(Signal::TSTP);
        }
        // The shell may have it go on in the background.
        if tcgetpgrp(&self.terminal) == Ok(own) {
            let _ = lend(&self.terminal, self.group);
        }
        let _ = kill_process_group(self.group, Signal::CONT);
    }

    /// Keys that have ended the command are for the starter's group, too, such as the shell of a
    /// script. The starter itself catches these signals.
    pub(super) fn pass_back(&self, status: i32) {
        for signal in [Signal::INT, Signal::QUIT] {
            if status == 128 + signal.as_raw() {
                let _ = kill_current_process_group(signal);
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // If the caller's shell has it, it keeps it.
        let is_left = match tcgetpgrp(&self.terminal) {
            Ok(group) => test_kill_process_group(group).is_err(),
            Err(_) => true,
        };
        if is_left {
            // Without it, the shell takes it by itself.
            let _ = lend(&self.terminal, getpgrp());
        }
    }
}

/// The init takes the terminal for its group.
///
/// # Errors
/// The terminal has ended.
pub(super) fn take() -> io::Result<()> {
    lend(&controlling()?, getpgrp())
}
