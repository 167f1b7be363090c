//! [`Ring`]: an io_uring over one file, with up to [`DEPTH`] transfers in the kernel.
//!
//! A thread of its own has the io_uring: it submits, waits and delivers. Other threads hand it
//! transfers through a queue, and ring it awake by an eventfd. If each thread submitted its own
//! transfers, the kernel would interrupt that thread to complete them, whatever it waits for by
//! then, and would cancel some of them at its end.
//!
//! **What the kernel may touch.** A transfer is *moved* into a slot before the kernel gets its
//! addresses, and out of it when the kernel has completed it. In between nothing of the program
//! reaches its memory. If the thread ends before the kernel has completed all (it panicked, or the
//! system refuses the io_uring all at once), the memory of these transfers is never freed.
//!
//! Locking: one mutex of rank Leaf around the queue, not held in system calls or callbacks.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{JoinHandle, ThreadId};

use cairn_base::ranked_lock::{Mutex, Rank};
use cairn_base::thread::spawn;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::job::{Next, Sent, Slot};

/// Most transfers that the kernel has at once.
pub const DEPTH: usize = 64;
/// The number of a completion that belongs to no transfer.
const WOKEN: u64 = u64::MAX;

/// The program's end. Dropping it waits for what is in the kernel.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// A forked child has no such thread.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Sent>,
    /// The thread is to be rung awake.
    asleep: bool,
    /// Nothing more comes.
    closing: bool,
    /// The thread takes nothing more.
    ended: bool,
}

impl Ring {
    /// An io_uring over a file that is open for direct transfers.
    ///
    /// # Errors
    /// The system refuses the io_uring (`ENOSYS`, `EPERM`, `ENOMEM`), or a thread.
    pub(super) fn start(file: File) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Mutex::new(Rank::Leaf, Queue::default());
        let shared = Arc::new(Shared { queue, wake });
        let (tell, told) = mpsc::channel();
        let theirs = shared.clone();
        let thread = spawn("cairn-disk", move || match build() {
            Ok(ring) => {
                let transferring = Transferring::new(ring, file, theirs);
                drop(tell.send(Ok(())));
                transferring.run();
            }
            Err(error) => drop(tell.send(Err(error))),
        })?;
        let ended = || Err(io::Error::other("the thread of the io_uring ended"));
        told.recv().unwrap_or_else(|_| ended())?;
        Ok(Self { shared, thread: Some(thread), process: std::process::id() })
    }

    /// Hands transfers over; they come back if none are taken any more.
    pub(super) fn send(&self, transfers: Vec<Sent>) -> Result<(), Vec<Sent>> {
        let asleep = {
            let mut queue = self.shared.queue.lock();
            if queue.ended {
                return Err(transfers);
            }
            queue.waiting.extend(transfers);
            std::mem::take(&mut queue.asleep)
        };
        if asleep {
            self.shared.ring_awake();
        }
        Ok(())
    }

    /// Whether the caller is the thread that delivers: it must not wait for a transfer.
    pub(super) fn is_own_thread(&self) -> bool {
        self.thread_id() == Some(std::thread::current().id())
    }

    fn thread_id(&self) -> Option<ThreadId> {
        self.thread.as_ref().map(|thread| thread.thread().id())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.shared.queue.lock().closing = true;
        self.shared.ring_awake();
        let is_own = self.is_own_thread();
        if let Some(thread) = self.thread.take().filter(|_| !is_own) {
            // A panic has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring_awake(&self) {
        // It fails only if the counter is near 2^64: then the thread wakes up in any case.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The io_uring. Older kernels do not know that one thread alone uses it.
fn build() -> io::Result<IoUring> {
    let entries = 2 * DEPTH as u32;
    let best = IoUring::builder()
        .dontfork()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    let ring = match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().build(entries)?
        }
        built => built?,
    };
    // Before Linux 5.5, completions could be lost.
    match ring.params().is_feature_nodrop() {
        true => Ok(ring),
        false => Err(Errno::NOSYS.into()),
    }
}

/// The thread's end.
struct Transferring {
    ring: IoUring,
    file: File,
    shared: Arc<Shared>,
    /// What the kernel has not begun.
    backlog: VecDeque<Slot>,
    /// What the kernel has, by number.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// The kernel reports when the eventfd is written.
    armed: bool,
}

impl Transferring {
    fn new(ring: IoUring, file: File, shared: Arc<Shared>) -> Self {
        let slots = std::iter::repeat_with(|| None).take(DEPTH).collect();
        let (backlog, free) = (VecDeque::new(), (0..DEPTH).collect());
        Self { ring, file, shared, backlog, slots, free, armed: false }
    }

    fn run(mut self) {
        let mut done = Vec::with_capacity(2 * DEPTH);
        loop {
            let closing = self.take(true);
            self.begin_some();
            if closing && self.free.len() == DEPTH {
                return;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(_) => return,
            }
            self.take(false);
            done.extend(self.ring.completion().map(|found| (found.user_data(), found.result())));
            for (number, result) in done.drain(..) {
                self.completed(number, result);
            }
        }
    }

    /// Takes what waits. `sleeps`: the next transfer is to ring. True if nothing more comes.
    fn take(&mut self, sleeps: bool) -> bool {
        let mut queue = self.shared.queue.lock();
        self.backlog.extend(queue.waiting.drain(..).map(Slot::new));
        queue.asleep = sleeps;
        queue.closing
    }

    /// Fills the free slots, and the place of the eventfd.
    fn begin_some(&mut self) {
        while let Some(number) = self.free.pop() {
            let Some(slot) = self.backlog.pop_front() else {
                self.free.push(number);
                break;
            };
            self.begin(number, slot);
        }
        if !self.armed {
            let wake = Fd(self.shared.wake.as_raw_fd());
            let poll = opcode::PollAdd::new(wake, libc::POLLIN as u32).build().user_data(WOKEN);
            // SAFETY: the poll of a descriptor names no memory, and the descriptor lives as long as
            // the io_uring.
            unsafe { self.ring.submission().push(&poll) }.expect(ROOM);
            self.armed = true;
        }
    }

    fn begin(&mut self, number: usize, slot: Slot) {
        // It is in its slot before the kernel has its addresses.
        let slot = self.slots[number].insert(slot);
        let entry = slot.entry(Fd(self.file.as_raw_fd())).user_data(number as u64);
        // SAFETY: the memory that the entry names belongs to what is in the slot, which is taken
        // out only when the kernel has completed this entry (`completed`), and otherwise never
        // freed (`Drop`). The memory does not move with the slot. The file lives as long as the
        // io_uring.
        unsafe { self.ring.submission().push(&entry) }.expect(ROOM);
    }

    fn completed(&mut self, number: u64, result: i32) {
        if number == WOKEN {
            self.armed = false;
            let mut count = [0; 8];
            // Empty if another wake-up has been read already.
            let _ = rustix::io::read(&self.shared.wake, &mut count);
            return;
        }
        let number = number as usize;
        let Some(mut slot) = self.slots.get_mut(number).and_then(Option::take) else { return };
        match slot.completed(result) {
            Next::Again => self.begin(number, slot),
            Next::Here => {
                self.free.push(number);
                deliver(|| slot.finish(&self.file));
            }
            Next::Done(outcome) => {
                self.free.push(number);
                deliver(|| slot.deliver(outcome));
            }
        }
    }
}

/// The entries of the io_uring are more than the slots.
const ROOM: &str = "there is an entry for each slot";

/// Calls what may call others. The other transfers go on if one of these panics, which the panic
/// hook reports.
fn deliver(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Interrupted or short of something for now.
fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

impl Drop for Transferring {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.shared.queue.lock();
            queue.ended = true;
            std::mem::take(&mut queue.waiting)
        };
        // The kernel may still write to these.
        self.slots.drain(..).flatten().for_each(|slot| deliver(|| slot.leak()));
        // The others fail, and so does each that waits for a part of them.
        deliver(|| drop(left));
        let backlog = std::mem::take(&mut self.backlog);
        deliver(|| drop(backlog));
    }
}
