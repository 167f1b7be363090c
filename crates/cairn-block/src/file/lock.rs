//! Advisory locks on an image, of two kinds.
//!
//! | lock | keeps away |
//! |---|---|
//! | `flock` on the file | other users that are Cairn, and programs that ask for it |
//! | bytes 100 to 103 and 200 to 203, as QEMU locks them | QEMU and its tools |
//! | the bytes of a part of the file | others that have the same part through a loop device |
//!
//! QEMU's scheme: a user that needs permission N takes a shared lock on byte 100 + N. A user that
//! denies permission N to others takes one on byte 200 + N. Then each checks whether another denies
//! what it needs, or needs what it denies. Two that start at the same time may both be refused, but
//! never both admitted.
//!
//! A lock belongs to the open file description: two opens in one process exclude each other, as two
//! processes do. A host filesystem without locks of the second kind is used without them.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;

use super::ofd::{self, Kind};

/// How a user uses the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Reads; others may read.
    Read,
    /// Writes; others may not use it.
    Write,
}

/// The part of the file that is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// These bytes, through a loop device. Others may use other parts.
    Part(Range<u64>),
}

const PERMISSION_BASE: u64 = 100;
const DENIAL_BASE: u64 = 200;

/// QEMU's permissions, as offsets from byte 100 and byte 200.
const CONSISTENT_READ: u64 = 0;
const WRITE: u64 = 1;
const WRITE_UNCHANGED: u64 = 2;
const RESIZE: u64 = 3;

/// Locks of parts leave out QEMU's bytes. No volume begins below this offset.
const PARTS_FROM: u64 = 512;

impl Use {
    /// The permissions of QEMU that it needs, and those that it denies to others.
    fn permissions(self, share: &Share) -> (&'static [u64], &'static [u64]) {
        const ALL: [u64; 4] = [CONSISTENT_READ, WRITE, WRITE_UNCHANGED, RESIZE];
        match (self, share) {
            (Self::Read, Share::Whole) => (&[CONSISTENT_READ], &[WRITE, RESIZE]),
            (Self::Write, Share::Whole) => (&ALL, &ALL),
            // Users of parts do not need the permissions that they deny to a user of the whole
            // file.
            (Self::Read, Share::Part(_)) => (&[], &[RESIZE]),
            (Self::Write, Share::Part(_)) => (&[WRITE], &[CONSISTENT_READ, RESIZE]),
        }
    }
}

/// Takes all locks. False if another user conflicts; then none is held.
pub(super) fn take(file: &File, usage: Use, share: &Share) -> io::Result<bool> {
    let shared = usage == Use::Read || *share != Share::Whole;
    match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let taken = take_bytes(file, usage, share).or_else(|error| match error.raw_os_error() {
        // The host's filesystem has no such locks, or no more of them.
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

/// Does another holder of QEMU's bytes deny this use, or need what this use denies?
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

/// Releases all locks. Closing the file does so only when no copy of the descriptor is left. A
/// child that another thread is starting has a copy until its `exec`, so the image would stay in
/// use for a moment.
pub(super) fn release(file: &File) {
    // This fails only for a descriptor that holds no locks. `flock` comes last, because others wait
    // for it.
    let _ = ofd::unlock_all(file);
    let _ = file.unlock();
}
