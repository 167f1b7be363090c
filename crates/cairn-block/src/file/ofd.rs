//! Open file description locks on byte ranges (`F_OFD_SETLK`), which QEMU uses, too.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use libc::{F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, c_int, c_short, off_t};

/// Whether a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Others may take the same lock.
    Shared,
    /// Others may not. The file must be open for writing.
    Exclusive,
}

/// Takes a lock; false if another open file has a conflicting one.
pub(super) fn lock(file: &File, kind: Kind, bytes: Range<u64>) -> io::Result<bool> {
    let kind = if kind == Kind::Shared { F_RDLCK } else { F_WRLCK };
    match control(file, F_OFD_SETLK, request(kind, bytes)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// True if another open file has a lock there, of any kind.
pub(super) fn is_locked_by_others(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    Ok(control(file, F_OFD_GETLK, request(F_WRLCK, bytes))? != F_UNLCK as c_short)
}

/// Releases all locks of this open file.
pub(super) fn unlock_all(file: &File) -> io::Result<()> {
    control(file, F_OFD_SETLK, request(F_UNLCK, 0..0)).map(drop)
}

/// A range without an end has none.
fn request(kind: c_int, bytes: Range<u64>) -> libc::flock {
    let place = |at: u64| off_t::try_from(at).unwrap_or(off_t::MAX);
    let length = if bytes.end <= bytes.start { 0 } else { place(bytes.end - bytes.start) };
    // A length that would overflow the largest offset reaches to the end.
    let length = if place(bytes.start).checked_add(length).is_none() { 0 } else { length };
    libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: place(bytes.start),
        l_len: length,
        // Must be 0 for locks that belong to the open file.
        l_pid: 0,
    }
}

/// The kind of lock that the system answers.
fn control(file: &File, command: c_int, mut lock: libc::flock) -> io::Result<c_short> {
    // SAFETY: both commands take a pointer to a `struct flock`, which they read and write while the
    // call lasts; ours is alive and initialised. The descriptor is open for as long as `file` is
    // borrowed.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type) }
}
