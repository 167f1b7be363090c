//! Who may have a file: advisory locks of two kinds.
//!
//! | lock | keeps away |
//! |---|---|
//! | `flock` on the file | other users that are Cairn, and programs that ask for it |
//! | bytes 100 to 103 and 200 to 203, as QEMU locks them | QEMU and its tools |
//! | the bytes of a part of the file | others that have the same part through a loop device |
//!
//! QEMU's scheme: whoever needs permission N holds a shared lock on byte 100 + N, whoever denies it
//! to others one on byte 200 + N; then each looks whether anybody denies what it needs or needs
//! what it denies. So two that start at the same time may both be refused, and never both admitted.
//!
//! A lock belongs to the open file: two opens in one process exclude each other like two processes.
//! A filesystem of the host that knows no locks of the second kind is used without them.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;

use super::ofd::{self, Kind};

/// What a user of a file does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Reads, and lets others read.
    Read,
    /// Writes: nobody else may have it.
    Write,
}

/// How much of the file somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// These bytes, through a loop device; others may have other parts.
    Part(Range<u64>),
}

const PERMISSION_BASE: u64 = 100;
const DENIAL_BASE: u64 = 200;

/// QEMU's permissions, as places behind the bases.
const CONSISTENT_READ: u64 = 0;
const WRITE: u64 = 1;
const WRITE_UNCHANGED: u64 = 2;
const RESIZE: u64 = 3;

/// Locks of parts leave out where QEMU's bytes are: no volume begins below.
const PARTS_FROM: u64 = 512;

impl Use {
    /// What it needs, in QEMU's words, and what it denies to others.
    fn permissions(self, share: &Share) -> (&'static [u64], &'static [u64]) {
        const ALL: [u64; 4] = [CONSISTENT_READ, WRITE, WRITE_UNCHANGED, RESIZE];
        match (self, share) {
            (Self::Read, Share::Whole) => (&[CONSISTENT_READ], &[WRITE, RESIZE]),
            (Self::Write, Share::Whole) => (&ALL, &ALL),
            // Those who have parts do not need what they deny to whoever has all of it.
            (Self::Read, Share::Part(_)) => (&[], &[RESIZE]),
            (Self::Write, Share::Part(_)) => (&[WRITE], &[CONSISTENT_READ, RESIZE]),
        }
    }
}

/// Takes all locks; false, and none is held, if somebody is in the way.
pub(super) fn take(file: &File, usage: Use, share: &Share) -> io::Result<bool> {
    let shared = usage == Use::Read || *share != Share::Whole;
    match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let taken = take_bytes(file, usage, share).or_else(|error| match error.raw_os_error() {
        // The host's filesystem knows no such locks, or has no more of them.
        Some(libc::EINVAL | libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP) => Ok(true),
        _ => Err(error),
    });
    if !matches!(taken, Ok(true)) {
        release(file);
    }
    taken
}

fn take_bytes(file: &File, usage: Use, share: &Share) -> io::Result<bool> {
    let (needed, denied) = usage.permissions(share);
    let bytes = needed
        .iter()
        .map(|bit| PERMISSION_BASE + bit)
        .chain(denied.iter().map(|bit| DENIAL_BASE + bit));
    for byte in bytes {
        if !ofd::lock(file, Kind::Shared, byte..byte + 1)? {
            return Ok(false);
        }
    }
    if let Share::Part(bytes) = share {
        let kind = if usage == Use::Read { Kind::Shared } else { Kind::Exclusive };
        if !ofd::lock(file, kind, bytes.start.max(PARTS_FROM)..bytes.end)? {
            return Ok(false);
        }
    }
    Ok(!is_denied(file, usage, share)?)
}

/// Does somebody who locks QEMU's bytes deny this use, or need what it denies?
pub(super) fn is_denied(file: &File, usage: Use, share: &Share) -> io::Result<bool> {
    let (needed, denied) = usage.permissions(share);
    let opposite = needed
        .iter()
        .map(|bit| DENIAL_BASE + bit)
        .chain(denied.iter().map(|bit| PERMISSION_BASE + bit));
    for byte in opposite {
        if ofd::is_locked_by_others(file, byte..byte + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives all locks back. Closing does so only once no copy of the descriptor is left, and a child
/// that another thread of the process is just starting has one until its `exec`: the image would
/// stay in use for a moment.
pub(super) fn release(file: &File) {
    // Refused only for a descriptor that holds none. `flock` last: it is what others wait for.
    let _ = ofd::unlock_all(file);
    let _ = file.unlock();
}
