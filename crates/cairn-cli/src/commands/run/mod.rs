//! `cairn run`: runs a program on an image, as an ordinary user.
//!
//! Four processes, all of this program ([`stage`]):
//! - The *starter* is what the user called. It enters a user and a mount namespace, starts the
//!   others, passes signals on and waits.
//! - The *mapper* stays outside and gives the namespace its ids.
//! - The *server* opens the volume, and mounts it in a mount namespace of its own.
//! - The *init* is process 1 of a namespace of its own. It takes what the command shall see of the
//!   host, goes to a copy of the server's mount namespace, makes the volume the root, starts the
//!   command and reaps what the command leaves. When it ends, the kernel ends all its children. It
//!   runs a copy of this program, so that the command never has the host's file (`starting`).
//!
//! When the command begins, none of them looks at mounts of the host any longer (`host`).
//!
//! If the starter is killed, the kernel kills the init and tells the server to end: it closes the
//! volume, after what the init had made on it was removed ([`cairn_build::Leftovers`]). Nothing is
//! left on the host, because all mounts are in the namespaces.

mod arguments;
mod device_files;
mod host;
mod ids;
mod init;
mod link;
mod mounts;
mod places;
mod privileges;
pub mod stage;
mod starting;
mod supervise;
mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Stdio};

use cairn_base::names::Escaped;
use cairn_base::system_error;
use cairn_block::descriptors;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::mount::daemon::READY;
use crate::failure::{Failure, Outcome, Status};
pub use arguments::{Args, Bind};
use host::leave_host;
use link::{Begun, ToInit};
use starting::{Sealed, stage};
use supervise::{Event, PassOn, Supervisor, status_of};
use terminal::{Job, Terminal};

/// What programs of root find.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables that lead to places of the host.
const FOREIGN: [&str; 6] = [
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "OLDPWD",
    "MIMALLOC_ARENA_RESERVE",
];

/// In which threads a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// In the first one, without others.
    First,
    /// In any.
    Several,
}

/// Says in which threads the command with these arguments runs, and gives the server of a run its
/// mount namespace. A process with several threads cannot enter namespaces, and a mount namespace
/// that a thread makes is its own: so the processes of a run have one thread, and the server gets
/// its namespace before it has others.
///
/// # Errors
/// The server gets no mount namespace.
pub fn prepare_threads(mut words: impl Iterator<Item = OsString>) -> Outcome<Threads> {
    let is_stage = match words.next() {
        Some(word) if word == "run" => return Ok(Threads::First),
        word => word.is_some_and(|word| word == starting::NAME),
    };
    if !is_stage {
        return Ok(Threads::Several);
    }
    if words.next().is_none_or(|stage| stage != "serve") {
        return Ok(Threads::First);
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| stage::no_mounts(&error.into()))?;
    Ok(Threads::Several)
}

/// Runs the command; ends the process with the command's status.
///
/// # Errors
/// The command could not be started, or the volume could not be closed.
pub fn run(args: &Args) -> Outcome {
    keep_descriptors(args.preserve_fds)?;
    refuse_directories()?;
    let args = &args.settled()?;
    args.check_modes()?;
    enter_namespaces(args.host_root)?;
    let server = start_server(args)?;
    // Until now a signal ends this process, and the server with it.
    let mut supervisor = Supervisor::start()
        .map_err(|error| Failure::start("signals cannot be handled", &error, "run again"))?;
    let server_pid = Pid::from_child(&server);
    let ended = start_init(args, &server).and_then(|(init, link)| {
        let early = begin(&mut supervisor, &init, &link);
        let mut server_died = false;
        let mut event = |event| match (event, &init) {
            (Event::Other(pid), _) if pid == server_pid => {
                server_died = true;
                // Without its volume the command may go on for ever.
                let _ = kill_process(init.pid(), Signal::KILL);
            }
            (Event::Woken, Init::Job(job)) => job.follow(),
            _ => {}
        };
        let status = supervisor.wait(init.pid(), init.passes_on(), &mut event)?;
        let status = match (early, status_of(status), &init) {
            (Some(signal), _, _) => 128 + signal.as_raw(),
            (None, status, Init::Job(job)) => {
                job.pass_back(status);
                status
            }
            (None, status, Init::Plain(_)) => status,
        };
        Ok((status, server_died))
    });
    let server_died = matches!(ended, Ok((_, true)));
    let closed = if server_died { Err(killed(args)) } else { close(&mut supervisor, server_pid) };
    let (status, _) = ended?;
    match closed {
        Err(failure) if status == 0 || !failure.is_told() => Err(failure),
        _ => process::exit(status),
    }
}

/// No program that is started gets descriptors of the caller, until [`start_init`] gives `count` of
/// them to the command. Called before this process opens files, which could have their numbers.
fn keep_descriptors(count: u32) -> Outcome {
    let kept = numbers(count);
    let last = kept.end - 1;
    descriptors::inherit(kept).map_err(|_| {
        Failure::usage(format!(
            "--preserve-fds {count}: not all descriptors from 3 to {last} are open: open them, as \
             in 3<FILE, or give fewer"
        ))
    })?;
    descriptors::close_on_exec_from(3)
        .map_err(|error| Failure::start("descriptors cannot be closed", &error, "mount /proc"))
}

/// From a directory that it has open, the command would reach all that is in it and above it.
fn refuse_directories() -> Outcome {
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let streams =
        [("input", input.as_fd()), ("output", output.as_fd()), ("error output", errors.as_fd())];
    for (name, stream) in streams {
        let is_directory = |found: Stat| FileType::from_raw_mode(found.st_mode).is_dir();
        if fstat(stream).is_ok_and(is_directory) {
            return Err(Failure::usage(format!(
                "standard {name} is a directory of this system, and the command would reach what \
                 is in it: give a file or a pipe, or show the directory with --bind"
            )));
        }
    }
    Ok(())
}

/// So many descriptors behind those that all programs have.
fn numbers(count: u32) -> Range<i32> {
    3..i32::try_from(count).unwrap_or(i32::MAX).saturating_add(3)
}

/// Waits until the init begins the command, and leaves the host, which nobody needs then. A signal
/// ends the init until then: there is no command that could handle it. Returns that signal. One
/// that comes just then is the command's, by the init.
fn begin(supervisor: &mut Supervisor, init: &Init, link: &ToInit) -> Option<Signal> {
    loop {
        let begun = link.begun();
        let Some(signal) = supervisor.take_signal() else {
            match begun {
                Begun::Yes => break,
                Begun::NotYet => continue,
                Begun::Never => return None,
            }
        };
        let has_begun = begun == Begun::Yes || begun == Begun::NotYet && link.begun() == Begun::Yes;
        if has_begun {
            let _ = kill_process(init.pid(), signal);
            break;
        }
        let _ = kill_process(init.pid(), Signal::KILL);
        return Some(signal);
    }
    if let Err(error) = leave_host() {
        // Nothing depends on it, but what the host unmounts.
        let why = system_error::words(&error);
        tracing::debug!("mounts of the host stay in use until the end: {why}");
    }
    None
}

/// What helps where users may not have namespaces.
const ALLOW: &str = "root must allow user namespaces: in a container, by its seccomp profile; \
                     elsewhere, sysctl kernel.apparmor_restrict_unprivileged_userns=0 or \
                     kernel.unprivileged_userns_clone=1";

/// Enters a user and a mount namespace in which this process is root.
fn enter_namespaces(host_root: bool) -> Outcome {
    let mapper = ids::Mapper::start(host_root)?;
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    unshare(flags).map_err(|error| {
        let advice = match error {
            nix::Error::EPERM | nix::Error::EACCES => ALLOW,
            nix::Error::ENOSPC | nix::Error::EUSERS => {
                "root must allow more of them: sysctl user.max_user_namespaces=10000"
            }
            _ => "a kernel with user namespaces (CONFIG_USER_NS) is needed",
        };
        Failure::start("no user namespace", &error.into(), advice)
    })?;
    mapper.map()?;
    // What the host unmounts meanwhile goes from here, too. Otherwise it would stay in use.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", downstream)
        .map_err(|error| Failure::start("mounts cannot be kept apart", &error.into(), ALLOW))
}

/// Starts the server, and waits until the volume is mounted.
fn start_server(args: &Args) -> Outcome<Child> {
    let mut command = stage("serve");
    command.arg(process::id().to_string()).args(args.words()).current_dir("/");
    // Not in the terminal's group, whose Ctrl-C is for the command.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |error| Failure::start("starting the server", &error, "mount /proc");
    let mut server = command.spawn().map_err(failed)?;
    let mut byte = [0; 1];
    let read = server.stdout.take().map(|mut pipe| pipe.read(&mut byte));
    match read {
        Some(Ok(1)) if byte == READY => Ok(server),
        _ => {
            let status = server.wait().map_err(failed)?;
            let image = args.image.image.escaped();
            Err(match status.code() {
                Some(code) => Failure::told(code),
                None => Failure::new(
                    Status::Failed,
                    format!("{image}: the server was killed before the mount: run again"),
                ),
            })
        }
    }
}

/// The init, which may have the terminal.
enum Init {
    /// It is in this process's group.
    Plain(Pid),
    /// It is in a group of its own.
    Job(Job),
}

impl Init {
    fn pid(&self) -> Pid {
        match self {
            Self::Plain(pid) => *pid,
            Self::Job(job) => job.init(),
        }
    }

    /// Keys that reach this process's group reach the init by themselves, if it is in that group.
    fn passes_on(&self) -> PassOn {
        match self {
            Self::Plain(_) => PassOn::Sent,
            Self::Job(_) => PassOn::All,
        }
    }
}

/// The limit of files counts for memory, too.
fn not_copied(error: &io::Error) -> Failure {
    let what = "no copy of this program in memory";
    match Errno::from_io_error(error) {
        Some(Errno::FBIG) => Failure::new(
            Status::Failed,
            format!("{what}: it is larger than a file may be: raise ulimit -f"),
        ),
        _ => {
            let advice = "root must allow programs in memory: sysctl vm.memfd_noexec=0";
            Failure::start(what, error, advice)
        }
    }
}

/// Starts the init in a namespace of processes.
fn start_init(args: &Args, server: &Child) -> Outcome<(Init, ToInit)> {
    let failed = |error| Failure::start("starting the command", &error, "mount /proc");
    let namespace = File::open(format!("/proc/{}/ns/mnt", server.id())).map_err(failed)?;
    let (link, theirs) = ToInit::new(&namespace).map_err(failed)?;
    let terminal = Terminal::of_caller();
    unshare(CloneFlags::CLONE_NEWPID).map_err(|error| {
        let advice = "a kernel with namespaces of processes (CONFIG_PID_NS) is needed";
        Failure::start("no namespace of processes", &error.into(), advice)
    })?;
    let copy = Sealed::new().map_err(|error| not_copied(&error))?;
    let mut command = copy.stage("init");
    command.args(terminal.as_ref().map(|_| "--terminal")).stdin(theirs);
    command.arg(process::id().to_string()).args(args.words());
    command.env("PATH", PATH).envs([("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root")]);
    for name in FOREIGN {
        command.env_remove(name);
    }
    descriptors::inherit(numbers(args.preserve_fds)).map_err(failed)?;
    let started = match terminal {
        Some(terminal) => terminal.start(&mut command, &link).map(Init::Job),
        None => command.spawn().map(|init| Init::Plain(Pid::from_child(&init))),
    };
    Ok((started.map_err(failed)?, link))
}

/// Asks the server to end, and waits until the volume is closed.
fn close(supervisor: &mut Supervisor, server: Pid) -> Outcome {
    // It may have ended by itself.
    match kill_process(server, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => {
            let why = system_error::with_remedy(&error.into(), "end it by its number");
            return Err(Failure::new(Status::Failed, format!("the server cannot be ended: {why}")));
        }
    }
    match status_of(supervisor.wait(server, PassOn::Nothing, &mut |_| {})?) {
        0 => Ok(()),
        // It has said why.
        status => Err(Failure::told(status)),
    }
}

fn killed(args: &Args) -> Failure {
    let image = args.image.image.escaped();
    let why = "the server has ended before the command: what was not synced may be missing: run \
               again, which recovers the volume";
    Failure::new(Status::Io, format!("{image}: {why}"))
}
