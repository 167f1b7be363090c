//! Images that are mounted for other programs by Cairn, by the kernel, or by fuse2fs.
//!
//! Dropping a [`Mounted`] unmounts it. [`Mounted::unmount`] also returns errors, and returns only
//! when the server has closed the image.

pub(crate) mod fio;
pub(crate) mod used;

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::{Error, Result};
use crate::experiment::Context;
use crate::leaving::{self, Kept};
use used::Used;

/// How long a server may take to mount, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// The server of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// Cairn, with mount options.
    Cairn { program: PathBuf, options: String },
    /// The kernel's ext4 on a loop device.
    Kernel,
    /// fuse2fs of e2fsprogs.
    Fuse2fs,
    /// A server that stores nothing and has these files, as NAME=SIZE. It does not use the image.
    Nothing { program: PathBuf, files: Vec<String> },
    /// A tree of names and nothing else, with these options of `serve-nothing`. It does not use the
    /// image.
    Empty { program: PathBuf, options: &'static [&'static str] },
    /// The file `data` of this many bytes, on storage that people have ([`crate::media`]). It does
    /// not use the image.
    Storage { program: PathBuf, medium: &'static str, size: u64 },
}

/// The servers that this machine can run, and what is missing.
#[derive(Debug, Default)]
pub(crate) struct Available {
    /// Cairn's program, if it can mount.
    pub(crate) cairn: Option<PathBuf>,
    pub(crate) kernel: bool,
    pub(crate) fuse2fs: bool,
    /// Reasons for the notes.
    pub(crate) missing: Vec<String>,
}

impl Available {
    /// Checks for /dev/fuse, root and programs.
    pub(crate) fn here(context: &Context) -> Self {
        let mut found = Self::default();
        let Some(program) = &context.program else {
            found.missing.push("Mounts were left out on request.".into());
            return found;
        };
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        match &fuse {
            Ok(_) => found.cairn = Some(program.clone()),
            Err(error) => found.missing.push(format!("Nothing through FUSE: /dev/fuse: {error}.")),
        }
        found.fuse2fs = fuse.is_ok() && is_installed("fuse2fs");
        if fuse.is_ok() && !found.fuse2fs {
            found.missing.push(
                "No comparison with fuse2fs: it is not installed (apt-get install fuse2fs).".into(),
            );
        }
        found.kernel =
            rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
        if !found.kernel {
            found.missing.push(
                "No comparison with the kernel's ext4: that needs root and loop devices.".into(),
            );
        }
        found
    }
}

/// True if a program of this name can be started.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(name).is_file())
}

/// A command of the system, searched in the superuser's directories as well.
pub(crate) fn command(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs a command to its end and returns its standard output. It is killed if this process ends
/// meanwhile.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = running(command);
    told(command, output)
}

/// As [`run`], of a command that mounts. It is not killed, and a signal from the terminal does not
/// reach it: it ends soon, and what it has left unfinished nobody would take down.
fn ended(command: &mut Command) -> Result<String> {
    let output = command.process_group(0).output();
    told(command, output)
}

fn told(command: &Command, output: std::io::Result<Output>) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = output.map_err(Error::host(&name))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = on_one_line(&[output.stdout, output.stderr].concat());
    Err(Error::Program(format!("{name} ends with {}: {said}", output.status)))
}

/// Takes a mount out of the tree, although files of it may be open: its server ends when they are
/// closed.
fn detach(server: &Server, point: &Path) {
    let (program, words): (&Path, &[&str]) = match server {
        Server::Cairn { program, .. } => (program, &["umount", "--lazy"]),
        Server::Kernel => (Path::new("umount"), &["--lazy"]),
        _ if rustix::process::geteuid().is_root() => (Path::new("umount"), &["--lazy"]),
        _ => (Path::new("fusermount3"), &["-u", "-z"]),
    };
    // Nobody is left to hear of it.
    let _ = command(program).args(words).arg(point).output();
}

/// Runs a command to its end. It is killed if this process ends meanwhile.
fn running(command: &mut Command) -> std::io::Result<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let kept = kill_at_end(&child);
    let output = child.wait_with_output();
    leaving::stay_if_ending();
    drop(kept);
    output
}

/// Has a child killed if this process ends before it.
fn kill_at_end(child: &Child) -> Option<Kept> {
    // Its number may be another process's when it is killed; this stays its own.
    let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    Some(leaving::keep(move || {
        // It may have ended by itself.
        let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
    }))
}

/// Gives the root directory of a new volume to an ordinary user, who could make no file in root's.
fn own_root(program: &Path, image: &Path) -> Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        return Ok(());
    }
    let owner = format!("{}:{}", user.as_raw(), group.as_raw());
    run(command(program).arg("chown").arg(image).args([&owner, "/"])).map(drop)
}

/// A mounted image.
#[derive(Debug)]
pub(crate) struct Mounted {
    server: Server,
    image: PathBuf,
    point: PathBuf,
    /// The server, if it is a child process.
    child: Option<Child>,
    is_mounted: bool,
    /// What takes it down if the process ends.
    kept: Vec<Kept>,
}

impl Mounted {
    /// Mounts the image on an existing directory.
    pub(crate) fn new(server: Server, image: &Path, point: &Path) -> Result<Self> {
        let mut mounted = Self {
            server,
            image: image.to_owned(),
            point: point.to_owned(),
            child: None,
            is_mounted: false,
            kept: Vec::new(),
        };
        let _guard = leaving::mounting();
        match mounted.server.clone() {
            Server::Cairn { program, options } => {
                own_root(&program, image)?;
                let mut mount = command(&program);
                ended(mount.args(["mount", "-o", &options]).args([image, point]))?;
            }
            Server::Kernel => {
                drop(ended(command("mount").args(["-o", "loop"]).args([image, point]))?)
            }
            Server::Fuse2fs => {
                let mut fuse2fs = command("fuse2fs");
                fuse2fs.arg("-f").args([image, point]).stdout(Stdio::null());
                mounted.serve(&mut fuse2fs)?;
            }
            Server::Nothing { program, files } => {
                let mut nothing = command(&program);
                nothing.arg("serve-nothing").arg(point).args(files);
                mounted.serve(&mut nothing)?;
            }
            Server::Empty { program, options } => {
                let mut empty = command(&program);
                empty.arg("serve-nothing").args(options).arg(point);
                mounted.serve(&mut empty)?;
            }
            Server::Storage { program, medium, size } => {
                let mut storage = command(&program);
                storage.arg("serve-nothing").arg(point).args(["--storage", medium]);
                mounted.serve(storage.arg(format!("data={size}")))?;
            }
        }
        mounted.is_mounted = true;
        let (server, point) = (mounted.server.clone(), point.to_owned());
        mounted.kept.push(leaving::keep(move || detach(&server, &point)));
        Ok(mounted)
    }

    /// The mount point.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// A process serves it.
    pub(crate) fn has_server(&self) -> bool {
        self.server != Server::Kernel
    }

    /// What its server has used so far. A mount of the kernel has no server.
    pub(crate) fn used(&self) -> Result<Used> {
        let (process, requests, copied) = match &self.server {
            Server::Kernel => return Ok(Used::default()),
            Server::Fuse2fs | Server::Nothing { .. } | Server::Storage { .. } => {
                (self.child.as_ref().map(Child::id), None, None)
            }
            Server::Empty { .. } => {
                let told = rustix::fs::statvfs(&self.point);
                let told = told.map_err(|error| Error::host(&self.point)(error.into()))?;
                (self.child.as_ref().map(Child::id), Some(told.f_ffree), None)
            }
            Server::Cairn { program, .. } => {
                let stats = run(command(program).args(["stats", "--json"]).arg(&self.point))?;
                let stats: serde_json::Value = serde_json::from_str(&stats)
                    .map_err(|error| Error::Program(format!("cairn stats: {error}")))?;
                let process = stats["mount"]["pid"].as_u64().and_then(|id| u32::try_from(id).ok());
                let bytes = |name: &str| stats["cache"][name].as_u64().unwrap_or(0);
                let copied = bytes("write").saturating_sub(bytes("write_given"))
                    + bytes("read").saturating_sub(bytes("read_shared"));
                (process, stats["fuse"]["requests_total"].as_u64(), Some(copied))
            }
        };
        let used = process.map_or(Ok(Used::default()), used::of_process)?;
        Ok(Used { requests, copied, ..used })
    }

    /// Starts a server in the foreground and waits until it has mounted. What it says goes into the
    /// error.
    fn serve(&mut self, command: &mut Command) -> Result<()> {
        let name = command.get_program().display().to_string();
        let failed =
            |what: String| Error::Program(format!("{name} for {}: {what}", self.image.display()));
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(Error::host(&name))?;
        self.kept.extend(kill_at_end(&child));
        let end = std::time::Instant::now() + PATIENCE;
        while !is_mount_point(&self.point)? {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(failed(format!("ends with {status}: {}", last_words(&mut child))));
            }
            if std::time::Instant::now() > end {
                self.child = Some(child);
                return Err(failed("does not mount".to_owned()));
            }
            std::thread::sleep(PAUSE);
        }
        self.child = Some(child);
        Ok(())
    }

    /// Unmounts, and waits until everything is in the image.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        leaving::stay_if_ending();
        match &self.server {
            Server::Cairn { program, .. } => run(command(program).arg("umount").arg(&self.point))?,
            Server::Fuse2fs
            | Server::Nothing { .. }
            | Server::Empty { .. }
            | Server::Storage { .. }
                if !rustix::process::geteuid().is_root() =>
            {
                run(command("fusermount3").arg("-u").arg(&self.point))?
            }
            _ => run(command("umount").arg(&self.point))?,
        };
        if let Some(mut child) = self.child.take() {
            child.wait().map_err(Error::host(&self.point))?;
        }
        self.kept.clear();
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        leaving::stay_if_ending();
        // This runs after a failure, which has been reported already.
        let _ = self.take_down();
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The standard error of a child that has ended.
fn last_words(child: &mut Child) -> String {
    let mut said = Vec::new();
    if let Some(mut stream) = child.stderr.take() {
        // The status is told in any case.
        let _ = stream.read_to_end(&mut said);
    }
    on_one_line(&said)
}

fn on_one_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().replace('\n', "; ")
}

/// True if `path` is a mount point.
fn is_mount_point(path: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| {
        std::fs::metadata(path).map(|metadata| metadata.dev()).map_err(Error::host(path))
    };
    Ok(device(path)? != device(path.parent().unwrap_or(path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_their_failures_told() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
        assert_eq!(run(command("echo").arg("x")).unwrap(), "x\n");
        let error =
            run(command("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: why"), "{error}");
        assert!(
            run(&mut command("no-such-program"))
                .unwrap_err()
                .to_string()
                .contains("no-such-program")
        );
    }

    #[test]
    fn a_server_that_does_not_mount_says_why_in_the_error_alone() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("server");
        std::fs::write(&script, "#!/bin/sh\necho why >&2\nexit 3\n").unwrap();
        let mut program = Command::new("sh");
        program.arg(&script);
        let mut mounted = Mounted {
            server: Server::Fuse2fs,
            image: "an image".into(),
            point: directory.path().to_owned(),
            child: None,
            is_mounted: false,
            kept: Vec::new(),
        };
        let error = mounted.serve(&mut program).unwrap_err().to_string();
        assert!(error.contains("an image: ends with exit status: 3: why"), "{error}");
    }

    #[test]
    fn a_directory_is_no_mount_point_but_proc_is() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_mount_point(directory.path()).unwrap());
        assert!(is_mount_point(Path::new("/proc")).unwrap());
    }
}
