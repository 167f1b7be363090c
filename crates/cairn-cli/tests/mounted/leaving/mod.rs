//! Unmounting a mount in use, here or in another mount namespace: the message names its users,
//! nothing is lost, and the mount can be ended.

mod in_use;
mod which;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cairn_testkit::judge;

use crate::fixture::{CAIRN, Volume};

pub(super) const SIZE: u64 = 64 << 20;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn umount(arguments: &[&str], point: &Path) -> Output {
    Command::new(CAIRN)
        .arg("umount")
        .args(arguments)
        .arg(point)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A shell that has started and waits for a line of input.
pub(super) struct Shell(Child);

impl Shell {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
        Self(child)
    }

    /// In the mount's root, with a file open.
    fn inside(volume: &Volume, then: &str) -> Self {
        let mut command = judge::command("sh");
        command
            .args(["-c", &format!("exec 3>>held; echo ready; read -r line; {then}")])
            .current_dir(volume.root());
        Self::start(command)
    }

    /// In a mount namespace of its own, with a copy of the mount.
    fn elsewhere(volume: &Volume) -> Self {
        let mut command = judge::command("unshare");
        let script = [judge::FORGET_MOUNTS, "echo ready; read -r line"].concat();
        command.env("KEEP", volume.root());
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        Self::start(command)
    }

    fn pid(&self) -> String {
        format!("process {}", self.0.id())
    }

    /// Sends it a line, and returns its output.
    fn finish(mut self) -> String {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.wait().unwrap();
        said
    }
}

#[track_caller]
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
