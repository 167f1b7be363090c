//! The client's side: finds the daemon of a mount and sends requests.

use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{self, Reply, Request};
use super::{ControlError, place, server};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for a starting daemon to listen.
const STARTING: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Where the socket of a mount may be.
fn places(device: &str, owner: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let directories = place::directories(owner, place::outer(owner), runtime);
    directories.into_iter().map(|directory| directory.join(place::name(device))).collect()
}

/// Removes the sockets that killed daemons have left where that of this mount would be.
pub fn clear(device: &str, owner: u32) {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| uid == owner).map(PathBuf::from);
    for directory in places(device, owner, runtime).iter().filter_map(|path| path.parent()) {
        if place::check(directory, owner).is_ok() {
            place::sweep(directory);
        }
    }
}

/// A connection to the daemon of one mount.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
}

impl Client {
    /// Connects to the daemon of the mount with this device number (`major:minor` of
    /// `/proc/self/mountinfo`), which was mounted by this user (`user_id` there). Does not touch
    /// the mount.
    ///
    /// # Errors
    /// [`ControlError::Foreign`] if another user made the mount, [`ControlError::NoSocket`] or
    /// [`ControlError::Gone`] if no daemon listens, [`ControlError::Unsafe`] if another user could
    /// have made the socket.
    pub fn connect(device: &str, owner: u32) -> Result<Self, ControlError> {
        let uid = rustix::process::geteuid().as_raw();
        if !server::allowed(uid, owner) {
            return Err(ControlError::Foreign { owner });
        }
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").filter(|_| uid == owner).map(PathBuf::from);
        let places = places(device, owner, runtime);
        let started = Instant::now();
        Self::connect_to_one(&places, owner, || {
            thread::sleep(PAUSE);
            started.elapsed() < STARTING
        })
    }

    /// Connects to the first of several sockets that is there. A mount can be seen a moment before
    /// its daemon listens, and until then the socket that a killed daemon left under the same
    /// number may be there: `again` is asked, after a pause, whether to look once more.
    pub(crate) fn connect_to_one(
        places: &[PathBuf],
        owner: u32,
        mut again: impl FnMut() -> bool,
    ) -> Result<Self, ControlError> {
        loop {
            let found = Self::first_of(places, owner);
            let may_be_starting =
                matches!(found, Err(ControlError::NoSocket(_) | ControlError::Gone(_)));
            if !may_be_starting || !again() {
                return found;
            }
        }
    }

    fn first_of(places: &[PathBuf], owner: u32) -> Result<Self, ControlError> {
        let mut stale = None;
        let mut looked = Vec::new();
        for path in places {
            match Self::connect_to(path, owner) {
                Ok(client) => return Ok(client),
                Err(ControlError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    looked.push((path.clone(), None));
                }
                // Another user's socket. The socket of this mount may be in the next place.
                Err(ControlError::Unsafe { why, .. }) => looked.push((path.clone(), Some(why))),
                Err(error @ ControlError::Gone(_)) => stale = stale.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(stale.unwrap_or(ControlError::NoSocket(looked)))
    }

    /// Connects to the socket at a path, if it is this user's.
    pub(crate) fn connect_to(path: &Path, owner: u32) -> Result<Self, ControlError> {
        if let Some(directory) = path.parent() {
            place::check(directory, owner)?;
        }
        let failed = |source: io::Error| match source.kind() {
            ErrorKind::ConnectionRefused => ControlError::Gone(path.to_owned()),
            ErrorKind::PermissionDenied => ControlError::Foreign { owner },
            _ => ControlError::Io { path: path.to_owned(), source },
        };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)
            .map_err(|error| failed(error.into()))?
            .uid
            .as_raw();
        if !server::allowed(peer, owner) {
            let why = format!("user {peer} listens there, not {owner}");
            return Err(ControlError::Unsafe { path: path.to_owned(), why });
        }
        Ok(Self { stream, path: path.to_owned() })
    }

    /// The daemon's process, if this process may see it.
    #[must_use]
    pub fn daemon(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(&self.stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// All counters, state and options.
    ///
    /// # Errors
    /// [`ControlError::Silent`] if the daemon does not answer in time, [`ControlError::Gone`] if it
    /// has ended, [`ControlError::Language`] if it has another version.
    pub fn stats(self) -> Result<Report, ControlError> {
        self.ask(&Request::Stats)
    }

    /// Changes options. Returns when they are in force, however long the disk takes.
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the volume's or the kernel's reason; nothing has changed
    /// then. [`ControlError::Gone`] if the daemon has ended.
    pub fn remount(self, options: &str) -> Result<(), ControlError> {
        self.ask_patiently(&Request::Remount { options: options.to_owned() })
    }

    /// Freezes the volume until it is thawed or the limit in seconds, if any, has passed. Returns
    /// when everything is on the disk.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the volume is frozen already or could not be written.
    /// [`ControlError::Gone`] if the daemon has ended.
    pub fn freeze(self, timeout: Option<u64>) -> Result<(), ControlError> {
        self.ask_patiently(&Request::Freeze { timeout })
    }

    /// Freezes the volume until [`Held`] is dropped, or this process ends.
    ///
    /// # Errors
    /// As [`Client::freeze`].
    pub fn hold(self) -> Result<Held, ControlError> {
        self.ask_patiently(&Request::Hold)?;
        Ok(Held(self))
    }

    /// Thaws it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the volume is not frozen or could not be written.
    /// [`ControlError::Gone`] if the daemon has ended.
    pub fn thaw(self) -> Result<(), ControlError> {
        self.ask_patiently(&Request::Thaw)
    }

    /// Writes everything and ends the mount even if it is in use. Returns when the end has begun.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the mount cannot be ended. [`ControlError::Gone`] if the
    /// daemon has ended.
    pub fn end(self) -> Result<(), ControlError> {
        self.ask_patiently(&Request::End)
    }

    /// Waits as long as the disk takes.
    fn ask_patiently(&self, request: &Request) -> Result<(), ControlError> {
        self.stream.set_read_timeout(None).map_err(|error| self.failed(error))?;
        self.ask(request).map(drop)
    }

    /// Asks the daemon to report when the volume has been closed.
    ///
    /// # Errors
    /// As [`Client::stats`].
    pub fn wait_for_end(self) -> Result<Ending, ControlError> {
        self.ask(&Request::WaitForEnd)?;
        Ok(Ending(self))
    }

    fn ask(&self, request: &Request) -> Result<Report, ControlError> {
        protocol::write_request(&mut &self.stream, request).map_err(|error| self.failed(error))?;
        self.answer()
    }

    fn answer(&self) -> Result<Report, ControlError> {
        // There is at most one outstanding answer, so the reader buffers nothing of a later one.
        let mut lines = BufReader::new(&self.stream);
        match protocol::read_reply(&mut lines).map_err(|error| self.failed(error))? {
            Some(Reply::Ok(report)) => Ok(report),
            Some(Reply::Error(text)) => Err(ControlError::Refused(text)),
            None => Err(ControlError::Gone(self.path.clone())),
        }
    }

    fn failed(&self, source: io::Error) -> ControlError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ControlError::Silent,
            ErrorKind::InvalidData | ErrorKind::Other => ControlError::Language(source.to_string()),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                ControlError::Gone(self.path.clone())
            }
            _ => ControlError::Io { path: self.path.clone(), source },
        }
    }
}

/// A freeze that ends with the connection.
#[derive(Debug)]
pub struct Held(Client);

impl Held {
    /// Ends it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if it has ended before, or the volume could not be written.
    /// [`ControlError::Gone`] if the daemon has ended.
    pub fn release(self) -> Result<(), ControlError> {
        self.0.ask_patiently(&Request::Thaw)
    }
}

/// A daemon that will report how the volume was closed.
#[derive(Debug)]
pub struct Ending(Client);

impl Ending {
    /// True if [`Ending::wait`] need not wait; asks for that long at most.
    #[must_use]
    pub fn is_ready(&self, patience: Duration) -> bool {
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.0.stream, PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => false,
            // [`Ending::wait`] finds out.
            Err(_) => true,
        }
    }

    /// The daemon's last report, waiting as long as it takes. `None` if it ended without one.
    #[must_use]
    pub fn wait(self) -> Option<Report> {
        self.0.stream.set_read_timeout(None).ok()?;
        self.0.answer().ok()
    }
}
