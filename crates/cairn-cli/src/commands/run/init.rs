//! Process 1 of the command's namespace: it makes the volume the root directory, starts the command
//! and reaps what the command leaves.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{self, Command};

use cairn_base::system_error;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::arguments::{Args, Inside};
use super::device_files::DeviceFiles;
use super::mounts::{
    HARMLESS, Placed, Point, Unplaced, change_root, fresh, make_read_only, of_host,
};
use super::supervise::{Event, Supervisor, status_of};
use super::terminal::Borrowed;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// The file with the servers of names.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Runs the command; ends the process with the command's status.
///
/// # Errors
/// The root directory cannot be made.
pub(super) fn run(Inside { place, args, .. }: &Inside, takes_terminal: bool) -> Outcome {
    let mut supervisor = Supervisor::start()
        .map_err(|error| Failure::start("signals cannot be handled", &error, "run again"))?;
    let mut terminal = match takes_terminal.then(Borrowed::take).transpose() {
        Ok(terminal) => terminal,
        Err(error) => return Err(Failure::start("no terminal", &error, "run again")),
    };
    let parts = Parts::take(args)?;
    change_root(place)?;
    let mut placed = Placed::default();
    let started = parts.place(args, &mut placed);
    let ended = started.and_then(|()| command(&args.command, &mut supervisor, &mut terminal));
    end_all();
    placed.remove();
    process::exit(ended?);
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
        unshare(CloneFlags::CLONE_NEWNS).map_err(|error| failed("no mounts", &error.into()))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).map_err(|error| failed("no mounts", &error.into()))?;
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
        let warn = |path: &str, done: io::Result<()>| {
            if let Err(error) = done {
                let image = args.image.image.display();
                let why = system_error::words(&error);
                output::complain(format_args!("{image}: warning: {path} is not there: {why}"));
            }
        };
        let directory = Point::Directory;
        warn("/proc", placed.place(&self.processes, Path::new("/proc"), directory));
        warn("/dev", self.devices.place(placed));
        if let Some(system) = &self.system {
            let at = Path::new("/sys");
            let done = placed.place(system, at, directory);
            if done.is_ok() {
                // Some of the host's mounts cannot be changed; most of /sys is root's anyway.
                let _ = make_read_only(at);
            }
            warn("/sys", done);
        }
        warn("/tmp", placed.place(&self.temporary, Path::new("/tmp"), directory));
        if let Some(resolvers) = &self.resolvers {
            let at = Path::new(RESOLVERS);
            let done = placed.place(resolvers, at, Point::File);
            warn(RESOLVERS, done.and_then(|()| make_read_only(&fs::canonicalize(at)?)));
        }
        for (bind, (mount, point)) in args.bind.iter().zip(&self.binds) {
            let bound = placed.place(mount, &bind.target, *point);
            let bound = bound.and_then(|()| match bind.read_only {
                true => make_read_only(&fs::canonicalize(&bind.target)?),
                false => Ok(()),
            });
            bound.map_err(|error| {
                let (image, target) = (args.image.image.display(), bind.target.display());
                let what = format!("{image}: {target}: nothing can be shown there");
                Failure::start(&what, &error, "give another path of the image")
            })?;
        }
        Ok(())
    }
}

/// Runs the command to its end. Returns its status.
fn command(
    words: &[std::ffi::OsString],
    supervisor: &mut Supervisor,
    terminal: &mut Option<Borrowed>,
) -> Outcome<i32> {
    let [program, arguments @ ..] = words else {
        return Err(Failure::usage("no command is named: give one after --"));
    };
    // With it, the command could make writable what it may only read: the kernel lets who owns the
    // namespace of a mount change its flags.
    remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN).map_err(|error| {
        Failure::start("a capability cannot be dropped", &error.into(), "see what `dmesg` says")
    })?;
    let mut command = Command::new(program);
    if let Some(input) = terminal.as_mut().and_then(|terminal| terminal.input.take()) {
        command.stdin(input);
    }
    match command.args(arguments).spawn() {
        Ok(child) => {
            let mut event = |event| {
                if let (Event::Stopped, Some(terminal)) = (event, terminal.as_mut()) {
                    terminal.tell_stop();
                }
            };
            let status = supervisor.wait(Pid::from_child(&child), true, &mut event)?;
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
            let failure =
                Failure::new(Status::Failed, format!("{}: {why}{advice}", program.display()));
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
