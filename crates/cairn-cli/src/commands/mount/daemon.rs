//! Starting the daemon: the starter's part and the daemon's part.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cairn::{ImageSpec, Key};

use crate::confirm;
use crate::failure::{Failure, Outcome, Status};

/// The byte that the daemon writes when the mount is live.
pub const READY: &[u8] = b"M";

/// Starts this program again in the background; returns when the mount is live.
///
/// # Errors
/// The daemon failed. It has printed the message itself; its status becomes this one's.
pub fn start(image: &ImageSpec, devices: &[PathBuf], mountpoint: &Path, options: &str) -> Outcome {
    let failed =
        |error: &std::io::Error, advice: &str| Failure::start("starting the daemon", error, advice);
    let program = std::env::current_exe().map_err(|error| failed(&error, "mount /proc"))?;
    let mut command = Command::new(program);
    command.arg0("cairn").args(["mount", "--foreground", "--announce"]);
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    for device in devices {
        command.arg("--device").arg(device);
    }
    let is_here = confirm::can_ask() || matches!(image.key, Some(Key::Descriptor(_)));
    let passphrase = if is_here { cairn::passphrase(image)? } else { None };
    let input = if passphrase.is_some() { Stdio::piped() } else { Stdio::null() };
    if passphrase.is_some() {
        command.arg("--asked");
    }
    let mut child = command
        .arg("--")
        .args([OsStr::new(&image.to_os_string()), mountpoint.as_os_str()])
        .stdin(input)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&error, "see that /dev/null and this program are still there"))?;
    if let (Some(passphrase), Some(mut input)) = (passphrase, child.stdin.take()) {
        // If it has ended already, that is told below.
        let _ = input.write_all(passphrase.bytes());
    }
    let mut byte = [0; 1];
    let mut pipe = child
        .stdout
        .take()
        .ok_or_else(|| Failure::new(Status::Failed, "the daemon has no output"))?;
    match pipe.read(&mut byte) {
        Ok(1) if byte == READY => Ok(()),
        _ => Err(ended(child)),
    }
}

/// The daemon ended before the mount was live.
fn ended(mut child: Child) -> Failure {
    match child.wait() {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Failure::told(code),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                Failure::new(
                    Status::Failed,
                    format!("the daemon was killed by signal {signal}: mount again"),
                )
            }
        },
        Err(error) => Failure::host("waiting for the daemon", &error),
    }
}

/// Runs in the daemon before anything is opened: signals of the starter's session must not end the
/// daemon.
pub fn leave_session() {
    // Fails only for the leader of a process group, which the terminal's signals for other groups
    // do not reach.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
}

/// Runs in the daemon: reports to the starter, then releases its terminal or pipes, so that their
/// reader sees the end of the output.
///
/// # Errors
/// The starter has ended, or `/dev/null` is missing.
pub fn announce() -> std::io::Result<()> {
    let null = report()?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// As [`announce`], but keeps standard error. Returns `/dev/null`.
///
/// # Errors
/// As [`announce`].
pub fn report() -> std::io::Result<File> {
    // Everything that can fail comes before the report.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let mut stdout = std::io::stdout();
    stdout.write_all(READY)?;
    stdout.flush()?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(null)
}
