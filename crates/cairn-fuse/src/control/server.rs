//! The daemon's side.
//!
//! One thread accepts clients, and each client has a thread while it is served. Nothing waits for
//! these threads: one ends when its client goes or is silent for too long, or with the process.
//!
//! Locking: `waiting` is a leaf, never held while a socket is written.

use std::fs;
use std::io::{self, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cairn_base::stats::Report;
use cairn_base::system_error::with_remedy;
use cairn_base::thread::spawn;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{self, Reply, Request};
use super::{Control, ControlError, Hold, place};

/// Clients that are served at the same time, and as many that wait for the end.
const MAX_CLIENTS: usize = 16;
/// How long one more waits for a place before it is sent away. Clients that have gone leave theirs
/// when their threads run, which takes a while on a loaded machine or after a stop.
const ROOM: Duration = Duration::from_secs(1);
/// A client that sends or reads nothing for this long is dropped.
const PATIENCE: Duration = Duration::from_secs(5);

struct Shared {
    control: Arc<dyn Control>,
    owner: u32,
    clients: AtomicUsize,
    waiting: Mutex<Vec<UnixStream>>,
}

/// Listens for clients until it is closed.
pub struct Server {
    path: PathBuf,
    /// Device and inode of the socket at `path`: the next mount with the same number replaces it.
    socket: Option<(u64, u64)>,
    shared: Arc<Shared>,
    /// Ends the accepting thread when it is written to or closed.
    stop: Option<UnixStream>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens for the clients of the live mount with this device number (`major:minor`).
    ///
    /// # Errors
    /// No directory is safe for the socket, it cannot be made there, or the system has no thread.
    pub fn start(device: &str, control: Arc<dyn Control>) -> Result<Self, ControlError> {
        let uid = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let directory = place::make(&place::directories(uid, place::outer(uid), runtime), uid)?;
        place::sweep(&directory);
        Self::listen(directory.join(place::name(device)), control)
    }

    /// Listens at a path, whose directory is closed to others. A socket that is there belongs to an
    /// earlier mount with the same number, which is gone: the kernel gives each number to one live
    /// mount only. Its daemon may take long to close its volume, and serves the clients it has.
    pub(crate) fn listen(path: PathBuf, control: Arc<dyn Control>) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Io { path: path.clone(), source };
        // Under the lock, so that no process takes the socket for a stale one before this listens.
        let alone = path.parent().and_then(place::Alone::in_directory);
        remove(&path).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let socket = identity(&path);
        drop(alone);
        listener.set_nonblocking(true).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let owner = rustix::process::geteuid().as_raw();
        let waiting = Mutex::new(Vec::new());
        let shared = Arc::new(Shared { control, owner, clients: AtomicUsize::new(0), waiting });
        let accepting = {
            let shared = shared.clone();
            let run = move || accept(&listener, &stopped, &shared);
            spawn("cairn-control", run).map_err(failed)?
        };
        Ok(Self { path, socket, shared, stop: Some(stop), accepting: Some(accepting) })
    }

    /// Accepts no more clients, and removes the socket. Clients that wait for the end get the
    /// result.
    #[must_use]
    pub fn close(mut self) -> Waiting {
        self.stop_accepting();
        Waiting(std::mem::take(&mut *self.shared.waiting.lock()))
    }

    fn stop_accepting(&mut self) {
        if let Some(thread) = self.accepting.take() {
            let alone = self.path.parent().and_then(place::Alone::in_directory);
            if self.socket.is_some() && identity(&self.path) == self.socket {
                let _ = remove(&self.path);
            }
            drop(alone);
            drop(self.stop.take());
            // The thread does not wait for clients. If it has panicked, there is nothing to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting();
    }
}

/// Serves the client at the other end of a socket, on the calling thread, until it goes. Who it is
/// is not asked.
pub fn serve_client(client: &UnixStream, control: Arc<dyn Control>) {
    let owner = rustix::process::geteuid().as_raw();
    let (clients, waiting) = (AtomicUsize::new(1), Mutex::new(Vec::new()));
    if prepare(client).is_ok() {
        serve(client, &Shared { control, owner, clients, waiting });
    }
}

/// Clients that wait for the report of how the volume was closed.
pub struct Waiting(Vec<UnixStream>);

impl Waiting {
    /// Tells them.
    pub fn tell(self, last: &Report) {
        for mut client in self.0 {
            // A client that has gone or is slow misses it.
            let _ = protocol::write_reply(&mut client, &Reply::Ok(last.clone()));
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Device and inode of what is at the path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn accept(listener: &UnixListener, stopped: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::warn!("no more control clients are accepted: {error}");
                return;
            }
        }
        if !await_room(stopped, shared) {
            return;
        }
        match listener.accept() {
            Ok((client, _)) => admit(client, shared),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Out of descriptors, for example: the client stays in the queue. Trying again at once
            // would only use processor time.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Returns when there is a place for a client, or when none has become free in time. False at the
/// end.
fn await_room(stopped: &UnixStream, shared: &Shared) -> bool {
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let until = Instant::now() + ROOM;
    while shared.clients.load(Ordering::Acquire) >= MAX_CLIENTS && Instant::now() < until {
        let mut ended = [PollFd::new(stopped, PollFlags::IN)];
        if poll(&mut ended, Some(&PAUSE)).is_ok_and(|count| count > 0) {
            return false;
        }
    }
    true
}

fn admit(mut client: UnixStream, shared: &Arc<Shared>) {
    if prepare(&client).is_err() {
        return;
    }
    let refusal = if !may_ask(&client, shared.owner) {
        Some(format!("only root and user {}, who mounted it, may ask", shared.owner))
    } else if shared.clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        Some(format!("{MAX_CLIENTS} clients are being served: try again later"))
    } else {
        None
    };
    if let Some(text) = refusal {
        // Fits into the empty buffer of the socket, so this does not wait.
        let _ = protocol::write_reply(&mut client, &Reply::Error(text));
        return;
    }
    let served = Served(shared.clone());
    let refused = client.try_clone();
    let spawned = spawn("cairn-client", move || serve(&client, &served.0));
    if let (Err(error), Ok(mut client)) = (spawned, refused) {
        let text =
            format!("the daemon gets no thread to answer: {}", with_remedy(&error, "try again"));
        let _ = protocol::write_reply(&mut client, &Reply::Error(text));
    }
}

fn prepare(client: &UnixStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))
}

fn may_ask(client: &UnixStream, owner: u32) -> bool {
    rustix::net::sockopt::socket_peercred(client)
        .is_ok_and(|peer| allowed(peer.uid.as_raw(), owner))
}

pub(crate) const fn allowed(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}

/// Lowers the count of clients.
struct Served(Arc<Shared>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(mut client: &UnixStream, shared: &Shared) {
    let mut lines = BufReader::new(client);
    // However this ends, the freeze ends with it.
    let mut held: Option<Box<dyn Hold>> = None;
    loop {
        let reply = match protocol::read_request(&mut lines) {
            Ok(None) | Err(Err(_)) => return,
            Ok(Some(Request::Stats)) => Reply::Ok(shared.control.stats()),
            Ok(Some(Request::Remount { options })) => done(shared.control.remount(&options)),
            Ok(Some(Request::Freeze { timeout })) => {
                let is_awaited = || is_connected(client);
                done(shared.control.freeze(timeout.map(Duration::from_secs), &is_awaited))
            }
            Ok(Some(Request::Hold)) => match hold(client, shared) {
                Ok(hold) => {
                    held = Some(hold);
                    Reply::Ok(Report::new())
                }
                Err(text) => Reply::Error(text),
            },
            Ok(Some(Request::Thaw)) => done(match held.take() {
                Some(mut held) => held.end(),
                None => shared.control.thaw(),
            }),
            Ok(Some(Request::End)) => done(shared.control.end()),
            Ok(Some(Request::WaitForEnd)) => {
                wait_for_end(client, shared);
                Reply::Ok(Report::new())
            }
            Err(Ok(text)) => Reply::Error(text),
        };
        let last = matches!(reply, Reply::Error(_));
        if protocol::write_reply(&mut client, &reply).is_err() || last {
            return;
        }
    }
}

/// Freezes the volume for a client, which may be silent from now on.
fn hold(client: &UnixStream, shared: &Shared) -> Result<Box<dyn Hold>, String> {
    let hold = shared.control.hold(&|| is_connected(client))?;
    client.set_read_timeout(None).map_err(|error| with_remedy(&error, "try again"))?;
    Ok(hold)
}

/// False once the client has closed its end. One that only sends no more (`nc -N`) is connected.
fn is_connected(client: &UnixStream) -> bool {
    let mut state = [PollFd::new(client, PollFlags::empty())];
    let gone = PollFlags::HUP | PollFlags::ERR;
    poll(&mut state, Some(&Timespec::default())).is_err() || !state[0].revents().intersects(gone)
}

fn done(outcome: Result<(), String>) -> Reply {
    outcome.map_or_else(Reply::Error, |()| Reply::Ok(Report::new()))
}

fn wait_for_end(client: &UnixStream, shared: &Shared) {
    let Ok(copy) = client.try_clone() else { return };
    let mut waiting = shared.waiting.lock();
    if waiting.len() == MAX_CLIENTS {
        // The oldest client has most likely gone.
        waiting.remove(0);
    }
    waiting.push(copy);
}
