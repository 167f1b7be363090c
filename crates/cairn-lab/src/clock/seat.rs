//! The seat of a thread at a clock: whether the thread works or is parked, and until when.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};

thread_local! {
    static SEAT: RefCell<Option<Arc<Seat>>> = const { RefCell::new(None) };
}

/// The clock at which threads sit.
pub(super) trait Host: Send + Sync {
    /// The thread is to go on.
    fn wake(&self, seat: &Arc<Seat>);

    /// The thread has left.
    fn leave(&self, seat: &Seat);
}

/// See the module. All but `host` and `thread` changes under the host's lock only.
pub(super) struct Seat {
    host: Arc<dyn Host>,
    pub(super) number: u64,
    /// The thread, once it has sat down, and its number in the system.
    pub(super) thread: Mutex<Option<(Thread, Pid)>>,
    pub(super) parked: AtomicBool,
    /// It was woken since it last parked.
    pub(super) woken: AtomicBool,
    /// Until when it is parked, if not for ever.
    pub(super) deadline: Mutex<Option<Duration>>,
}

impl Seat {
    pub(super) fn new(host: Arc<dyn Host>, number: u64) -> Arc<Self> {
        Arc::new(Self {
            host,
            number,
            thread: Mutex::new(None),
            parked: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            deadline: Mutex::new(None),
        })
    }

    /// Blocks the thread until it is woken.
    pub(super) fn sleep(&self) {
        while self.parked.load(SeqCst) {
            std::thread::park();
        }
    }

    /// Wakes the thread, which is not parked any more.
    pub(super) fn unpark(&self) {
        if let Some((thread, _)) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}

impl Wake for Seat {
    fn wake(self: Arc<Self>) {
        self.host.wake(&self);
    }
}

/// A seat that no thread has taken yet. It counts as one that works.
pub(crate) struct Free(Option<Arc<Seat>>);

impl Free {
    pub(super) fn new(seat: Arc<Seat>) -> Self {
        Self(Some(seat))
    }

    /// The calling thread sits down, until it drops what this returns.
    pub(crate) fn sit(mut self) -> Seated {
        let seat = self.0.take();
        if let Some(seat) = &seat {
            *seat.thread.lock() = Some((std::thread::current(), gettid()));
        }
        Seated { seat: seat.clone(), before: SEAT.replace(seat) }
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        if let Some(seat) = self.0.take() {
            seat.host.leave(&seat);
        }
    }
}

/// A thread that sits.
#[must_use = "the thread leaves its seat when this is dropped"]
pub(crate) struct Seated {
    seat: Option<Arc<Seat>>,
    before: Option<Arc<Seat>>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        SEAT.set(self.before.take());
        if let Some(seat) = self.seat.take() {
            seat.host.leave(&seat);
        }
    }
}

/// The seat of the calling thread.
pub(super) fn of_this_thread() -> Option<Arc<Seat>> {
    SEAT.with_borrow(Clone::clone)
}
