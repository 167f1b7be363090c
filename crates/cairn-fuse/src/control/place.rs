//! Where the socket of a mount is.
//!
//! Its name is the mount's device number. All paths to one mount have the same number, and no two
//! live mounts do, not even in different namespaces. Its directory belongs to the daemon's user and
//! is closed to others: `$XDG_RUNTIME_DIR/cairn` or `/run/user/UID/cairn`, for root `/run/cairn`;
//! if there is none of these, `/tmp/cairn-UID`. In a user namespace UID is the user outside: root
//! there is not the system's root, and must not take its directory in a shared `/tmp`. Both sides
//! skip directories of other users.
//!
//! Locking: `flock` on the directory while a socket is made or stale ones are removed. It is held
//! for a moment. If it cannot be taken, only simultaneous starts can go wrong.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::ControlError;

/// Name of the socket of the mount with this device number (`major:minor`).
pub(crate) fn name(device: &str) -> String {
    format!("{}.sock", device.replace(':', "-"))
}

/// Directories that daemons of a user may use, best first. `outer` is the user outside of this user
/// namespace. For the caller's own daemons, `runtime` is `$XDG_RUNTIME_DIR`.
pub(crate) fn directories(uid: u32, outer: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    if uid == 0 {
        // The root of a container may have a /run of its own.
        found.push("/run/cairn".into());
    }
    if outer != 0 {
        found.extend(runtime.filter(|path| path.is_absolute()).map(|path| path.join("cairn")));
        let usual = PathBuf::from(format!("/run/user/{outer}/cairn"));
        if !found.contains(&usual) {
            found.push(usual);
        }
    }
    found.push(format!("/tmp/cairn-{outer}").into());
    found
}

/// The user outside of this user namespace (one level up) for a user inside.
pub(crate) fn outer(uid: u32) -> u32 {
    fs::read_to_string("/proc/self/uid_map").map_or(uid, |map| mapped(&map, uid))
}

/// Uses a map of users with lines `INSIDE OUTSIDE COUNT`.
pub(crate) fn mapped(map: &str, uid: u32) -> u32 {
    let found = map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let (inside, outside, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let at = u64::from(uid).checked_sub(inside).filter(|at| *at < count)?;
        u32::try_from(outside.checked_add(at)?).ok()
    });
    found.unwrap_or(uid)
}

/// The first of the directories that exists or can be made, and is private to this user.
pub(crate) fn make(directories: &[PathBuf], uid: u32) -> Result<PathBuf, ControlError> {
    let mut last = None;
    for directory in directories {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                last = Some(ControlError::Io { path: directory.clone(), source });
            }
            _ => match check(directory, uid) {
                Ok(()) => return Ok(directory.clone()),
                Err(error) => last = Some(error),
            },
        }
    }
    Err(last.unwrap_or_else(|| ControlError::NoSocket(Vec::new())))
}

/// Refuses a directory that another user could have made or could change.
pub(crate) fn check(directory: &Path, uid: u32) -> Result<(), ControlError> {
    let broken =
        |why: &str| ControlError::Unsafe { path: directory.to_owned(), why: why.to_owned() };
    let found = fs::symlink_metadata(directory)
        .map_err(|source| ControlError::Io { path: directory.to_owned(), source })?;
    if !found.is_dir() {
        return Err(broken("it is not a directory"));
    }
    if found.uid() != uid {
        return Err(broken(&format!("it belongs to user {}, not {uid}", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        return Err(broken("others may enter it"));
    }
    Ok(())
}

/// True if a socket is there whose daemon is gone. Does not wait for a daemon.
fn is_stale(path: &Path) -> io::Result<bool> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    let refused = connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED);
    Ok(refused)
}

/// Removes the sockets of daemons that were killed. What cannot be removed stays.
pub(crate) fn sweep(directory: &Path) {
    let Some(_alone) = Alone::in_directory(directory) else { return };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
    {
        if is_stale(&path).unwrap_or(false) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Holds the lock of a directory: no other process makes or removes sockets in it.
pub(crate) struct Alone {
    _directory: File,
}

impl Alone {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(10);

    /// `None` if another process holds it for too long, or the directory cannot be locked.
    pub(crate) fn in_directory(directory: &Path) -> Option<Self> {
        let directory = File::open(directory).ok()?;
        for _ in 0..Self::TRIES {
            match directory.try_lock() {
                Ok(()) => return Some(Self { _directory: directory }),
                Err(fs::TryLockError::WouldBlock) => thread::sleep(Self::PAUSE),
                Err(fs::TryLockError::Error(_)) => return None,
            }
        }
        None
    }
}
