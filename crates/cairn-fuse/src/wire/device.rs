//! `/dev/fuse`, once mounted and initialised.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, writev};
use zerocopy::IntoBytes;

use super::abi::{NOTIFY_RETRIEVE, NotifyRetrieveOut, OutHeader};

/// Most bytes of a WRITE.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// The system takes this many pieces of a message: `UIO_MAXIOV`.
const MAX_SLICES: usize = 1024;

/// The connection to the kernel. Reads and writes are whole messages, from any thread. The
/// descriptor is non-blocking: a thread that polls for a request needs one call for it.
pub(crate) struct Device {
    fuse: OwnedFd,
    /// Readable when no further request is to be taken.
    ended: OwnedFd,
    pub(crate) counted: Counted,
}

/// The requests that were read, without INTERRUPT, and their answers.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) taken: AtomicU64,
    /// Or they wanted no answer.
    pub(crate) answered: AtomicU64,
    /// The kernel no longer knew them, because the connection had ended.
    pub(crate) late: AtomicU64,
}

/// What [`Device::read`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A request of this length.
    Request(usize),
    Nothing,
    /// It is unmounted.
    End,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fuse: fd, ended, counted: Counted::default() })
    }

    /// The same connection.
    pub(crate) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.fuse.try_clone()
    }

    /// Takes the next request if there is one.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Taken, Errno> {
        loop {
            match read(&self.fuse, &mut *buffer) {
                Ok(len) => return Ok(Taken::Request(len)),
                Err(Errno::AGAIN) => return Ok(Taken::Nothing),
                // NOENT: the request was withdrawn (its caller was killed) before it was taken.
                Err(Errno::NOENT | Errno::INTR) => {}
                // CONNABORTED: it ended while a request was being handed over.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Taken::End),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until [`Device::read`] finds a request or the end. False after [`Device::end`].
    pub(crate) fn wait(&self) -> Result<bool, Errno> {
        let mut both =
            [&self.fuse, &self.ended].map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
        match poll(&mut both, None) {
            Ok(_) => Ok(both[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Ends every wait, now and later, although the connection may still be there.
    pub(crate) fn end(&self) {
        // It fails only if the counter is near 2^64: then every wait has ended.
        let _ = rustix::io::write(&self.ended, &1_u64.to_ne_bytes());
    }

    /// True if [`Device::read`] finds a request or the end.
    pub(crate) fn is_readable(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.fuse, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Makes the kernel send a `NOTIFY_REPLY` with none of the pages of a regular file.
    pub(crate) fn ask_for_nothing(&self, nodeid: u64) -> Result<(), Errno> {
        // No number of the kernel: those are below, and zero is none.
        let notify_unique = 1 << 62;
        let asked = NotifyRetrieveOut { notify_unique, nodeid, ..NotifyRetrieveOut::default() };
        let len = (size_of::<OutHeader>() + size_of::<NotifyRetrieveOut>()) as u32;
        let header = OutHeader { len, error: NOTIFY_RETRIEVE, unique: 0 };
        self.write(&[IoSlice::new(header.as_bytes()), IoSlice::new(asked.as_bytes())])
    }

    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        if slices.len() <= MAX_SLICES {
            return writev(&self.fuse, slices).map(drop);
        }
        let (first, others) = slices.split_at(MAX_SLICES - 1);
        let rest = others.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        let joined: Vec<IoSlice<'_>> =
            first.iter().map(|slice| IoSlice::new(slice)).chain([IoSlice::new(&rest)]).collect();
        writev(&self.fuse, &joined).map(drop)
    }
}
