//! [`Model`]: a clock that stands still while a thread works, and jumps to the next deadline when
//! none does.
//!
//! Each thread that works on the model has a seat. It is parked at the clock while
//! it waits for an event or a time. A notification counts its waiters as working before it wakes
//! them, so the clock cannot pass them by. A thread that is blocked elsewhere, by a lock, counts as
//! working; when nothing happens for a while, [`watch`] finds that out.
//!
//! Locking: the state's lock is a leaf. Threads are woken without it, because they take it at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::Duration;

use cairn_base::runtime::Event;
use parking_lot::Mutex;

use super::seat::{Free, Host, Seat, of_this_thread};
use super::time::{Clock, Place};
use super::watch::{self, Watched};

/// See the module.
pub(crate) struct Model {
    state: Mutex<State>,
    /// Nanoseconds since the start. Changes under the state's lock.
    now: AtomicU64,
    /// Threads that count as working and have not been woken yet.
    to_be_woken: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Seats by number.
    seats: BTreeMap<u64, Arc<Seat>>,
    next_seat: u64,
    /// Seats whose threads are not parked.
    working: usize,
    /// Parked threads that wait for a time.
    sleepers: BTreeMap<(Duration, u64), Arc<Seat>>,
    /// Seats parked, woken, taken or left so far.
    changes: u64,
}

impl Model {
    /// A clock at zero.
    pub(crate) fn new() -> Arc<Self> {
        let model = Arc::new(Self {
            state: Mutex::default(),
            now: AtomicU64::new(0),
            to_be_woken: AtomicUsize::new(0),
        });
        let watched: Arc<dyn Watched> = model.clone();
        watch::start(&watched);
        model
    }

    /// A seat for a thread. The clock stands still until it is taken, and parked or left.
    pub(crate) fn seat(self: &Arc<Self>) -> Free {
        let mut state = self.state.lock();
        let number = state.next_seat;
        let seat = Seat::new(self.clone(), number);
        state.next_seat += 1;
        state.seats.insert(number, seat.clone());
        state.working += 1;
        state.changes += 1;
        Free::new(seat)
    }

    /// Parks the calling thread until it is woken, or until this time.
    fn park(&self, seat: &Arc<Seat>, deadline: Option<Duration>) {
        let due = {
            let mut state = self.state.lock();
            if seat.woken.swap(false, SeqCst) {
                return;
            }
            seat.parked.store(true, SeqCst);
            *seat.deadline.lock() = deadline;
            if let Some(deadline) = deadline {
                state.sleepers.insert((deadline, seat.number), seat.clone());
            }
            state.working -= 1;
            state.changes += 1;
            self.jump_if_all_sleep(&mut state)
        };
        self.unpark(&due);
        seat.sleep();
    }

    fn jump_if_all_sleep(&self, state: &mut State) -> Vec<Arc<Seat>> {
        if state.working == 0 { self.jump(state) } else { Vec::new() }
    }

    /// Goes on to the next deadline. Returns the threads that wait for it, which are to be woken.
    fn jump(&self, state: &mut State) -> Vec<Arc<Seat>> {
        let Some((next, _)) = state.sleepers.keys().next().copied() else { return Vec::new() };
        let now = self.now().max(next);
        self.now.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), SeqCst);
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let due: Vec<_> = std::mem::replace(&mut state.sleepers, later).into_values().collect();
        due.iter().for_each(|seat| self.release(state, seat));
        due
    }

    /// The thread counts as working, and is to be woken.
    fn release(&self, state: &mut State, seat: &Seat) {
        if let Some(deadline) = seat.deadline.lock().take() {
            state.sleepers.remove(&(deadline, seat.number));
        }
        seat.parked.store(false, SeqCst);
        state.working += 1;
        state.changes += 1;
        self.to_be_woken.fetch_add(1, SeqCst);
    }

    fn unpark(&self, seats: &[Arc<Seat>]) {
        for seat in seats {
            seat.unpark();
            self.to_be_woken.fetch_sub(1, SeqCst);
        }
    }

    /// Waits until `ready`, which is asked after each notification, or until `deadline`. True if it
    /// is ready.
    pub(super) fn wait(
        &self,
        event: &Event,
        deadline: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let seat = of_this_thread().expect("a thread that waits for the clock has a seat");
        let waker = Waker::from(seat.clone());
        loop {
            let seen = event.generation();
            if ready() {
                return true;
            }
            if deadline.is_some_and(|deadline| self.now() >= deadline) {
                return false;
            }
            seat.woken.store(false, SeqCst);
            if event.wake_past(seen, &waker) {
                self.park(&seat, deadline);
                event.forget(&waker);
            }
        }
    }
}

impl Host for Model {
    fn wake(&self, seat: &Arc<Seat>) {
        {
            let mut state = self.state.lock();
            if !seat.parked.load(SeqCst) {
                seat.woken.store(true, SeqCst);
                return;
            }
            self.release(&mut state, seat);
        }
        self.unpark(std::slice::from_ref(seat));
    }

    fn leave(&self, seat: &Seat) {
        let due = {
            let mut state = self.state.lock();
            state.seats.remove(&seat.number);
            state.working -= 1;
            state.changes += 1;
            self.jump_if_all_sleep(&mut state)
        };
        self.unpark(&due);
    }
}

impl Watched for Model {
    fn at_work(&self) -> Option<(Vec<rustix::thread::Pid>, u64)> {
        let state = self.state.lock();
        let is_working = |seat: &&Arc<Seat>| !seat.parked.load(SeqCst);
        let thread = |seat: &Arc<Seat>| seat.thread.lock().as_ref().map(|(_, thread)| *thread);
        // A seat that is not taken yet belongs to a thread that is about to start.
        let working: Option<Vec<_>> = state.seats.values().filter(is_working).map(thread).collect();
        let waits = !state.sleepers.is_empty() && self.to_be_woken.load(SeqCst) == 0;
        working
            .filter(|working| waits && !working.is_empty())
            .map(|working| (working, state.changes))
    }

    fn jump_past(&self, changes: u64) {
        let due = {
            let mut state = self.state.lock();
            let same = state.changes == changes && self.to_be_woken.load(SeqCst) == 0;
            if same { self.jump(&mut state) } else { Vec::new() }
        };
        self.unpark(&due);
    }
}

impl Clock for Model {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(SeqCst))
    }

    fn sleep_until(&self, time: Duration) {
        self.wait(&Event::new(), Some(time), &mut || false);
    }

    fn wait_until(&self, event: &Event, ready: &mut dyn FnMut() -> bool) {
        self.wait(event, None, ready);
    }

    fn place(self: Arc<Self>) -> Place {
        Place(Some(self.seat()))
    }
}
