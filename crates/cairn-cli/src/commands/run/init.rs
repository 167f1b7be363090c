//! Process 1 of the command's namespace: it makes the volume the root directory, starts the command
//! and reaps what the command leaves.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{self, Command};

use cairn_base::names::Escaped;
use cairn_base::system_error;
use cairn_block::seccomp;
use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

use super::arguments::{Args, Inside};
use super::device_files::DeviceFiles;
use super::host::VOLUME;
use super::link::{Given, ToStarter};
use super::mounts::{HARMLESS, Unplaced, change_root, fresh, make_read_only, of_host};
use super::places::{Placed, Point};
use super::privileges;
use super::supervise::{Event, PassOn, Supervisor, status_of};
use super::terminal;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// The file with the servers of names.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Runs the command; ends the process with the command's status.
///
/// # Errors
/// The root directory cannot be made.
pub(super) fn run(Inside { args, .. }: &Inside, takes_terminal: bool) -> Outcome {
    let mut supervisor = Supervisor::start()
        .map_err(|error| Failure::start("signals cannot be handled", &error, "run again"))?;
    let Given { starter, input, namespace } = ToStarter::take()
        .map_err(|error| Failure::start("the starter has ended", &error, "run again"))?;
    if takes_terminal {
        terminal::take().map_err(|error| Failure::start("no terminal", &error, "run again"))?;
    }
    let parts = Parts::take(args)?;
    enter_volume(namespace)?;
    let mut placed = Placed::default();
    let started = parts.place(args, &mut placed);
    // The command must not find them in /proc/1/fd.
    drop(parts);
    placed.settle();
    let unmounts = placed.must_unmount();
    let prepared = started.and_then(|()| prepare(&args.command, input));
    let ended = prepared.and_then(|ready| command(ready, &mut supervisor, starter, unmounts));
    end_all();
    placed.remove();
    process::exit(ended?);
}

/// Makes the volume the root directory, in a mount namespace of this process. The server's is
/// closed.
fn enter_volume(namespace: OwnedFd) -> Outcome {
    let entered = setns(&namespace, CloneFlags::CLONE_NEWNS)
        .and_then(|()| unshare(CloneFlags::CLONE_NEWNS))
        .map_err(io::Error::from)
        .and_then(|()| keep_apart())
        .and_then(|()| change_root(Path::new(VOLUME)));
    entered.map_err(|error| {
        let advice = "the root directory of this system must be a mount, not an initramfs";
        Failure::start("the root directory cannot be changed", &error, advice)
    })
}

/// What is mounted elsewhere has no effect here, and the other way round.
fn keep_apart() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// What comes from the host.
struct Parts {
    processes: Unplaced,
    devices: DeviceFiles,
    system: Option<Unplaced>,
    temporary: Unplaced,
    resolvers: Option<Unplaced>,
    binds: Vec<(Unplaced, Point)>,
}

impl Parts {
    fn take(args: &Args) -> Outcome<Self> {
        let failed = |what: &str, error: &io::Error| {
            Failure::start(what, error, "Linux 5.2 or newer is needed; see what `dmesg` says")
        };
        // In a container that hides a part of /proc, only that one can be had.
        let processes = fresh("proc", &[], HARMLESS | MountAttrFlags::MOUNT_ATTR_NOEXEC)
            .or_else(|_| of_host(Path::new("/proc")));
        let mut binds = Vec::new();
        for bind in &args.bind {
            let failed = |error: io::Error| Failure::host(&bind.source, &error);
            let is_directory = fs::metadata(&bind.source).map_err(failed)?.is_dir();
            let point = if is_directory { Point::Directory } else { Point::File };
            binds.push((of_host(&bind.source).map_err(failed)?, point));
        }
        let resolvers = fs::canonicalize(RESOLVERS).and_then(|path| of_host(&path));
        let temporary = fresh("tmpfs", &[("mode", "1777")], HARMLESS);
        Ok(Self {
            processes: processes.map_err(|error| failed("no /proc", &error))?,
            devices: DeviceFiles::take().map_err(|error| failed("no /dev", &error))?,
            system: of_host(Path::new("/sys")).ok(),
            temporary: temporary.map_err(|error| failed("no /tmp", &error))?,
            resolvers: resolvers.ok(),
            binds,
        })
    }

    /// Places everything. Only what was asked for must have its place.
    fn place(&self, args: &Args, placed: &mut Placed) -> Outcome {
        let image = args.image.image.escaped();
        let warn = |path: &str, done: io::Result<()>| {
            if let Err(error) = done {
                let why = system_error::words(&error);
                output::complain(format_args!("{image}: warning: {path} is not there: {why}"));
            }
        };
        let directory = Point::Directory;
        let protect = |path: &Path| make_read_only(path, &self.processes);
        warn("/proc", placed.place(&self.processes, Path::new("/proc"), directory).map(drop));
        warn("/dev", self.devices.place(placed));
        if let Some(system) = &self.system {
            let done = placed.place(system, Path::new("/sys"), directory);
            // Some of the host's mounts cannot be changed; most of /sys is root's anyway.
            warn("/sys", done.map(|at| drop(protect(&at))));
        }
        warn("/tmp", placed.place(&self.temporary, Path::new("/tmp"), directory).map(drop));
        if let Some(resolvers) = &self.resolvers {
            let done = placed.place(resolvers, Path::new(RESOLVERS), Point::File);
            warn(RESOLVERS, done.and_then(|at| protect(&at)));
        }
        for (bind, (mount, point)) in args.bind.iter().zip(&self.binds) {
            let bound = placed.place(mount, &bind.target, *point);
            let bound = bound.and_then(|at| match bind.read_only {
                true => protect(&at),
                false => Ok(()),
            });
            bound.map_err(|error| {
                let what =
                    format!("{image}: {}: nothing can be shown there", bind.target.escaped());
                Failure::start(&what, &error, "give another path of the image")
            })?;
        }
        keep_apart().map_err(|error| Failure::start("no mounts", &error, "see what `dmesg` says"))
    }
}

/// Makes the command ready, with what it may do.
fn prepare(words: &[OsString], input: OwnedFd) -> Outcome<Command> {
    let [program, arguments @ ..] = words else {
        return Err(Failure::usage("no command is named: give one after --"));
    };
    if let Err(error) = seccomp::confine() {
        let why = system_error::words(&error);
        output::complain(format_args!(
            "note: the command could type at your terminal, and use your keyrings: {why}"
        ));
    }
    privileges::withhold().map_err(|error| not_dropped(&error))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input);
    Ok(command)
}

fn not_dropped(error: &io::Error) -> Failure {
    Failure::start("a capability cannot be dropped", error, "see what `dmesg` says")
}

/// Runs the command to its end. Returns its status. `unmounts`: mounts are taken away afterwards.
fn command(
    mut command: Command,
    supervisor: &mut Supervisor,
    mut starter: ToStarter,
    unmounts: bool,
) -> Outcome<i32> {
    starter.tell_begin();
    // A signal ends this process, until there is another that could handle it.
    if let Some(signal) = supervisor.take_signal() {
        return Ok(128 + signal.as_raw());
    }
    match command.spawn() {
        Ok(child) => {
            let child = Pid::from_child(&child);
            // Its standard input is open here, too.
            drop(command);
            privileges::give_up(unmounts).map_err(|error| not_dropped(&error))?;
            if let Some(signal) = supervisor.take_signal() {
                // It may have come before the command was there, which may also have ended.
                let _ = kill_process(child, signal);
            }
            let mut event = |event| {
                if event == Event::Stopped {
                    starter.tell_stop();
                }
            };
            let status = supervisor.wait(child, PassOn::Sent, &mut event)?;
            Ok(status_of(status))
        }
        Err(error) => {
            let (status, advice) = match error.kind() {
                ErrorKind::NotFound => (
                    127,
                    "no such program on the image, or its loader is not \
                                              there: give a path that is on the image",
                ),
                _ => (126, "give a program for this machine that may be executed"),
            };
            let why = match error.kind() {
                ErrorKind::NotFound => String::new(),
                _ => format!("{}: ", system_error::words(&error)),
            };
            let program = Path::new(command.get_program()).escaped().to_string();
            let failure = Failure::new(Status::Failed, format!("{program}: {why}{advice}"));
            output::report(&failure);
            Ok(status)
        }
    }
}

/// Ends all processes that the command has left, and waits for them: they must not use what is
/// removed now.
fn end_all() {
    // As process 1, "all" are those of this namespace.
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
    while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
}
