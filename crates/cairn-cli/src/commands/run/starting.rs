//! Starts this program again, as another process of a run.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The name of the command that the processes run.
pub(super) const NAME: &str = "run-stage";

/// This program, as another stage of a run.
pub(super) fn stage(name: &str) -> Command {
    // Not its path: another file may have that, or the volume is mounted over it.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cairn").args([NAME, name]);
    command
}
