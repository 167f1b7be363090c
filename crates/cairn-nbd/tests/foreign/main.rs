//! Cairn's client with the servers of others, and Cairn's server with the clients of others: nbdkit
//! with its filters, qemu-nbd, nbdinfo, nbdcopy, qemu-img.

mod kills;
mod our_client;
mod our_server;
#[cfg(feature = "tls")]
mod tls;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cairn_nbd::{Address, Client, ConnectOptions, Place};
use tempfile::TempDir;

/// A server of others. It ends with the value.
struct Foreign {
    child: Child,
    socket: PathBuf,
}

impl Foreign {
    /// Starts a program and waits until it listens at `socket`.
    fn start(command: &mut Command, socket: &Path) -> Self {
        // A server that was killed leaves it behind.
        let _ = std::fs::remove_file(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut foreign = Self { child, socket: socket.to_owned() };
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() {
            let ended = foreign.child.try_wait().unwrap();
            assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(60), "{command:?} does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        foreign
    }

    fn nbdkit(socket: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "--exit-with-parent", "-U"]).arg(socket).args(arguments);
        Self::start(&mut command, socket)
    }

    fn address(&self) -> Address {
        Address { place: Place::Unix(self.socket.clone()), export: String::new(), tls: None }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.address(), &writing()).unwrap()
    }

    /// As a crash: it has no time for anything.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn writing() -> ConnectOptions {
    ConnectOptions { write: true, ..ConnectOptions::default() }
}

fn place(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

/// What a program prints, which must succeed.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
