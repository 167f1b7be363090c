//! The instructions of a piece of work, counted exactly and without a counter of the processor,
//! which virtual machines often lack: another process steps through the work, one instruction at a
//! time (ptrace).
//!
//! The work runs in a child process, in its first thread. The child is prepared at full speed, says
//! [`ready`], and puts a [`mark`] before and behind each piece. The count has no noise from other
//! programs. The kernel's work in a system call counts as one instruction; each round of a repeated
//! string instruction counts.
//!
//! Each step is a change from one process to the other and back. Both are kept on one processor:
//! waking another one costs several times as much, and far more in a virtual machine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process;
use rustix::thread::{self, CpuSet, sched_getcpu};

use crate::error::{Error, Result};

/// The mark. It does nothing to a process that nobody steps through.
const MARK: Signal = Signal::SIGURG;
const READY: &str = "ready";

/// In the child: waits until its instructions can be counted.
///
/// # Errors
/// Its standard input and output are not those that [`count`] gives it.
pub(crate) fn ready() -> Result<()> {
    let pipe = |source| Error::Host { what: "the counting process".into(), source };
    println!("{READY}");
    std::io::stdout().flush().map_err(pipe)?;
    std::io::stdin().lock().read_line(&mut String::new()).map_err(pipe)?;
    Ok(())
}

/// In the child: a piece of work begins or ends here.
///
/// # Errors
/// The system refuses the signal.
pub(crate) fn mark() -> Result<()> {
    raise(MARK).map_err(refused("a signal"))
}

/// Runs the child, and returns the instructions of each piece between its marks, in order.
///
/// # Errors
/// The system lets no process step through another, or the child failed.
pub(crate) fn count(command: &mut Command) -> Result<Vec<u64>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::host(command.get_program()))?;
    let processor = OneProcessor::with(&child);
    let counted = begin(&mut child).and_then(follow);
    drop(processor);
    if counted.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    // Nothing to wait for if `follow` has seen its end.
    let _ = child.wait();
    counted
}

/// Keeps this thread and the first thread of a child on one processor. Dropped, it lets this thread
/// go; the child ends. Where the system refuses that, stepping is only slower.
struct OneProcessor(Option<CpuSet>);

impl OneProcessor {
    fn with(child: &Child) -> Self {
        let anywhere = thread::sched_getaffinity(None).ok();
        let mut here = CpuSet::new();
        if sched_getcpu() < CpuSet::MAX_CPU {
            here.set(sched_getcpu());
            let _ = thread::sched_setaffinity(Some(process::Pid::from_child(child)), &here);
            let _ = thread::sched_setaffinity(None, &here);
        }
        Self(anywhere)
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(anywhere) = &self.0 {
            let _ = thread::sched_setaffinity(None, anywhere);
        }
    }
}

/// Takes hold of the child where it waits, and lets it go on.
fn begin(child: &mut Child) -> Result<Pid> {
    let program = || Error::Program("the process to be counted ended early".into());
    let pid = i32::try_from(child.id()).map(Pid::from_raw).map_err(|_| program())?;
    let output = child.stdout.as_mut().ok_or_else(program)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(|_| program())?;
    if line.trim_end() != READY {
        return Err(program());
    }
    ptrace::seize(pid, Options::PTRACE_O_EXITKILL).map_err(refused("stepping (ptrace)"))?;
    let input = child.stdin.as_mut().ok_or_else(program)?;
    input.write_all(b"go\n").map_err(|_| program())?;
    Ok(pid)
}

/// Follows the child to its end.
fn follow(pid: Pid) -> Result<Vec<u64>> {
    let refused = || refused("stepping (ptrace)");
    let mut pieces = Vec::new();
    let mut current: Option<u64> = None;
    loop {
        let mut signal = None;
        match waitpid(pid, None).map_err(refused())? {
            WaitStatus::Stopped(_, MARK) => match current.take() {
                Some(steps) => pieces.push(steps),
                None => current = Some(0),
            },
            WaitStatus::Stopped(_, Signal::SIGTRAP) if current.is_some() => {
                current = current.map(|steps| steps + 1);
            }
            WaitStatus::Stopped(_, other) => signal = Some(other),
            WaitStatus::Exited(_, 0) => return Ok(pieces),
            WaitStatus::Exited(_, code) => {
                return Err(Error::Program(format!("the process to be counted ended with {code}")));
            }
            WaitStatus::Signaled(_, signal, _) => {
                return Err(Error::Program(format!("the process to be counted died: {signal}")));
            }
            _ => {}
        }
        match current {
            Some(_) => ptrace::step(pid, signal),
            None => ptrace::cont(pid, signal),
        }
        .map_err(refused())?;
    }
}

fn refused(what: &'static str) -> impl FnOnce(nix::Error) -> Error {
    move |error| Error::Host { what: what.into(), source: error.into() }
}
