//! `/dev/fuse`, once mounted and initialised.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, writev};

/// Most bytes of a WRITE.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// What a read must have room for: a WRITE with its headers (the kernel asks for a page or so).
pub(crate) const BUFFER_SIZE: usize = MAX_WRITE as usize + (64 << 10);

/// The connection to the kernel. Reads and writes are whole messages, from any thread.
pub(crate) struct Device(OwnedFd);

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Waits for the next request; its length. `None`: unmounted.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // NOENT: the request was withdrawn (its caller was killed) before it was taken.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // CONNABORTED: it ended while a request was being handed over.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// True if [`Device::read`] would not wait (also because the connection has ended).
    pub(crate) fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        writev(&self.0, slices).map(drop)
    }
}
