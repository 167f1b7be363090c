//! Waiting for a daemon's end, with messages that say what the wait is for, and with a limit.

use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_fuse::control::Ending;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::commands::live_mount;
use crate::commands::mount::table::Mount;
use crate::commands::mount::users;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// The first message comes after this time.
pub(super) const MOMENT: Duration = Duration::from_secs(2);
/// On a terminal, the message is repeated at this interval.
const AGAIN: Duration = Duration::from_secs(10);
/// Time between two checks whether a message is due.
const TICK: Duration = Duration::from_millis(100);

/// A daemon that is about to end.
pub(super) struct Daemon {
    /// Receives the report of how the volume was closed.
    ending: Ending,
    pid: Option<u32>,
    /// Becomes readable when the process has ended.
    process: Option<OwnedFd>,
}

impl Daemon {
    /// The daemon of a mount; `None` if it cannot be reached.
    pub(super) fn of(mount: &Mount) -> Option<Self> {
        let client = live_mount::daemon(mount).ok()?;
        let pid = client.daemon();
        let process = pid.and_then(|pid| {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            pidfd_open(pid, PidfdFlags::empty()).ok()
        });
        Some(Self { ending: client.wait_for_end().ok()?, pid, process })
    }

    /// The daemon's name in messages.
    pub(super) fn name(&self) -> String {
        self.pid
            .map_or_else(|| "its daemon".to_owned(), |pid| format!("its daemon (process {pid})"))
    }

    /// True if this process can see the daemon's process end.
    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Waits until the daemon has released the image. Returns its last report; `None` if it ended
    /// without one.
    ///
    /// # Errors
    /// The time limit has passed.
    pub(super) fn wait(self, patience: &mut Patience<'_>) -> Outcome<Option<Report>> {
        let name = self.name();
        while !self.ending.is_ready(TICK) {
            patience.spend(&name)?;
        }
        let last = self.ending.wait();
        while let Some(process) = &self.process
            && !is_readable(process)
        {
            patience.spend(&name)?;
        }
        Ok(last)
    }
}

/// Where the process is that serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// In this mount namespace, or nowhere: a mount with a dead daemon may be unmounted from any.
    Here,
    /// In another mount namespace.
    There(u32),
    /// In another PID namespace, where it is not visible from here.
    Unseen,
}

/// Where the process is that serves this mount. If it is not here, the mount is only a copy.
pub(super) fn server(mount: &Mount) -> Server {
    let Ok(client) = live_mount::daemon(mount) else { return Server::Here };
    let Some(pid) = client.daemon() else { return Server::Unseen };
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    match (namespace(&pid.to_string()), namespace("self")) {
        (Ok(daemons), Ok(own)) if daemons != own => Server::There(pid),
        (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => Server::Unseen,
        _ => Server::Here,
    }
}

/// True if the volume stays mounted where its daemon is when this mount is gone.
pub(super) fn stays_elsewhere(mount: &Mount) -> bool {
    match server(mount) {
        Server::Here => false,
        Server::There(pid) => users::has_mount(pid, &mount.device),
        Server::Unseen => true,
    }
}

fn is_readable(process: &OwnedFd) -> bool {
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    // After an error the wait ends, because it could last for ever.
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&tick)).map_or(true, |ready| ready > 0)
}

/// The time limit of a wait, and its messages.
pub(super) struct Patience<'a> {
    mount: &'a Mount,
    started: Instant,
    limit: Option<Duration>,
    next: Option<Duration>,
}

impl<'a> Patience<'a> {
    /// Starts the wait for the daemon of a mount that has been unmounted here.
    pub(super) fn new(mount: &'a Mount, limit: Option<Duration>) -> Self {
        Self { mount, started: Instant::now(), limit, next: Some(MOMENT) }
    }

    /// Checks the limit and prints a message if one is due. The waiting loop calls it at each turn.
    ///
    /// # Errors
    /// The limit has been reached.
    pub(super) fn spend(&mut self, whom: &str) -> Outcome {
        let passed = self.started.elapsed();
        if self.limit.is_some_and(|limit| passed >= limit) {
            let message = format!(
                "{}: unmounted here, but after {} s {}; umount no longer waits for it",
                self.mount.point.display(),
                passed.as_secs(),
                self.reason(whom)
            );
            return Err(Failure::new(Status::Busy, message));
        }
        if self.next.is_some_and(|next| passed >= next) {
            output::complain(format_args!(
                "{}: unmounted here; waiting since {} s: {}. Ending this wait (Ctrl-C, --timeout) \
                 does no harm.",
                self.mount.point.display(),
                passed.as_secs(),
                self.reason(whom)
            ));
            self.next = std::io::stderr().is_terminal().then(|| passed + AGAIN);
        }
        Ok(())
    }

    fn reason(&self, whom: &str) -> String {
        match users::listed(&users::copies_of(self.mount)) {
            Some(copies) => {
                format!("{whom} still serves {}, because of {copies}", self.mount.source)
            }
            None => format!(
                "{whom} still writes to {}, or programs have files of it open",
                self.mount.source
            ),
        }
    }
}
