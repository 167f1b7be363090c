//! The queues of FUSE over io_uring (Linux 6.14 and newer): the part that needs `unsafe`.
//!
//! A [`Ring`] is an io_uring over one mounted `/dev/fuse`. An [`Entry`] is memory into which the
//! kernel puts one request, and from which it takes the answer. An entry is *moved* into the ring
//! when the kernel may write to it, and out of it when the kernel has put a request there: what the
//! kernel may touch cannot be reached by the program, and an entry is answered once.
//!
//! The commands are those of `linux/fuse.h`. Other commands of other devices could make the kernel
//! write anywhere, therefore the descriptor is checked.
//!
//! A command belongs to the thread that submits it: the kernel copies a request in that thread, and
//! gives the entry back when the thread ends. Locking: none, a ring is used by one thread at a
//! time. [`Waker`] works from any thread.

mod area;
mod entry;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;

pub use area::Area;
pub use entry::{Entry, IN_OUT};

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// The submission queue; it is emptied whenever it is full.
const QUEUED: u32 = 64;
/// The number of a completion that belongs to no entry.
const WOKEN: u64 = u64::MAX;
/// `/dev/fuse`: major and minor number.
const FUSE: (u32, u32) = (10, 229);

/// What [`Ring::wait`] found.
pub enum Arrival {
    /// The kernel has put a request into this entry.
    Request(Entry),
    /// The kernel gave the entry back without a request: `ENOTCONN` or `ECANCELED` after the end of
    /// the connection.
    Refused(Entry, Errno),
}

/// An io_uring over a mounted `/dev/fuse`.
pub struct Ring {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: OwnedFd,
    /// The entries that the kernel has, by the number of their command.
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    wake: Arc<OwnedFd>,
    /// The kernel reports when `wake` is written.
    armed: bool,
}

/// Ends the wait of a ring from any thread.
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// The ring's present or next [`Ring::wait`] returns.
    pub fn wake(&self) {
        // It fails only if the counter is near 2^64: then the ring wakes up in any case.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Whether the system gives this process an io_uring with the long commands that FUSE needs.
///
/// # Errors
/// The reason of the system: `ENOSYS` or `EPERM` where io_uring is switched off.
pub fn probe() -> io::Result<()> {
    build(2).map(drop)
}

fn build(queued: u32) -> io::Result<IoUring<Entry128, cqueue::Entry>> {
    // Not for a single issuer: another thread takes the ring over if its thread is kept too long.
    IoUring::<Entry128, cqueue::Entry>::builder().dontfork().setup_submit_all().build(queued)
}

impl Ring {
    /// A ring without entries.
    ///
    /// # Errors
    /// The descriptor is not `/dev/fuse`, or the system refuses the ring.
    pub fn new(device: OwnedFd) -> io::Result<Self> {
        let number = fstat(&device)?.st_rdev;
        if (major(number), minor(number)) != FUSE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not /dev/fuse"));
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ring = build(QUEUED)?;
        Ok(Self { ring, device, entries: Vec::new(), free: Vec::new(), wake, armed: false })
    }

    /// Something that ends its wait.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.wake.clone())
    }

    /// The number of entries that the kernel has.
    #[must_use]
    pub fn in_kernel(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Gives a new entry to the kernel, for requests of its queue. The kernel sees it at the next
    /// [`Ring::submit`] or [`Ring::wait`].
    ///
    /// # Errors
    /// The kernel does not take the commands before this one.
    pub fn register(&mut self, entry: Entry) -> io::Result<()> {
        self.send(entry, REGISTER)
    }

    /// Gives the answer in an entry to the kernel, and the entry for the next request.
    ///
    /// # Errors
    /// The kernel does not take the commands before this one.
    pub fn commit(&mut self, entry: Entry) -> io::Result<()> {
        self.send(entry, COMMIT_AND_FETCH)
    }

    fn send(&mut self, entry: Entry, operation: u32) -> io::Result<()> {
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let area = entry.area(operation == COMMIT_AND_FETCH);
        let mut command = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), operation).cmd(area);
        if operation == REGISTER {
            command = command.addr(Some(entry.address()));
        }
        let command = with_length(command.build(), Entry::PIECES).user_data(number as u64);
        self.entries[number] = Some(entry);
        self.push(&command)
    }

    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        // SAFETY: the memory that the command names belongs to an entry in `entries`, which stays
        // there until the kernel completes the command (`Drop` leaks it otherwise), or it is the
        // poll of a descriptor, which names no memory.
        while unsafe { self.ring.submission().push(command) }.is_err() {
            self.submit()?;
        }
        Ok(())
    }

    /// Makes the kernel take all commands, without waiting.
    ///
    /// # Errors
    /// The system's. Commands that were not taken remain queued.
    pub fn submit(&mut self) -> io::Result<()> {
        passing(self.ring.submit())
    }

    /// Makes the kernel take all commands, waits until something has happened, and hands out the
    /// requests that have arrived. It may also return without any.
    ///
    /// # Errors
    /// The system's. Nothing is lost: the call may be repeated.
    pub fn wait(&mut self, arrived: impl FnMut(Arrival)) -> io::Result<()> {
        if !self.armed {
            let poll = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).build();
            self.push(&Entry128::from(poll.user_data(WOKEN)))?;
            self.armed = true;
        }
        passing(self.ring.submit_and_wait(1))?;
        self.look(arrived);
        Ok(())
    }

    /// Hands out the requests that have arrived.
    pub fn look(&mut self, mut arrived: impl FnMut(Arrival)) {
        for completion in self.ring.completion() {
            if completion.user_data() == WOKEN {
                self.armed = false;
                let mut count = [0; 8];
                // Empty if another wake-up has been read already.
                let _ = rustix::io::read(&*self.wake, &mut count);
                continue;
            }
            let number = completion.user_data() as usize;
            let Some(mut entry) = self.entries.get_mut(number).and_then(Option::take) else {
                continue;
            };
            self.free.push(number);
            let result = completion.result();
            arrived(if result < 0 {
                Arrival::Refused(entry, Errno::from_raw_os_error(-result))
            } else {
                entry.received();
                Arrival::Request(entry)
            });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to them.
        self.entries.drain(..).flatten().for_each(Entry::leak);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Interrupted or short of something for now: the caller comes again.
fn passing(done: io::Result<usize>) -> io::Result<()> {
    match done {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Sets `len`, for which [`opcode::UringCmd80`] has no field.
fn with_length(mut command: Entry128, len: u32) -> Entry128 {
    const LEN: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: a command is 128 bytes of the kernel's layout, in which `len` is the aligned 32-bit
    // word at this offset.
    unsafe { std::ptr::from_mut(&mut command).cast::<u8>().add(LEN).cast::<u32>().write(len) };
    command
}
