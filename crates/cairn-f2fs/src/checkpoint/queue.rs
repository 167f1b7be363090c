//! A queue of requests that one checkpoint serves together.
//!
//! The server detaches the whole list before it begins, so a later request is served by the next
//! batch. All requests of a batch get the same result. The daemon is the server while there is one;
//! otherwise the first requester that finds no server. There is one batch at a time.
//!
//! Invariants: a request is in the list, in the one batch being served, or answered. State that a
//! waiter checks is changed before [`Queue::changed`] is notified.
//!
//! Locking: one leaf lock; nothing is called with it held.

use std::sync::Arc;

use super::sync::{Event, Mutex, mutex};

/// A request, and its answer once there is one.
#[must_use = "the answer comes to the ticket"]
pub(super) struct Ticket<Q, A> {
    /// The request.
    pub(crate) request: Q,
    answer: Mutex<Option<A>>,
}

impl<Q, A> Ticket<Q, A> {
    fn is_answered(&self) -> bool {
        self.answer.lock().is_some()
    }
}

/// Requests that are served together.
pub(super) type Batch<Q, A> = Vec<Arc<Ticket<Q, A>>>;

struct State<Q, A> {
    waiting: Batch<Q, A>,
    /// True if there is a daemon. It has been notified of everything in the list.
    daemon: bool,
    /// True while a batch is being served.
    serving: bool,
}

/// Requests of type `Q` that wait for answers of type `A`.
pub(super) struct Queue<Q, A> {
    state: Mutex<State<Q, A>>,
    /// Notifies the daemon that requests have arrived.
    pub(crate) arrived: Arc<Event>,
    /// Notifies requesters that there are answers, or that there is no server any more.
    pub(crate) changed: Event,
}

impl<Q, A: Clone> Queue<Q, A> {
    /// An empty queue without a server.
    pub(super) fn new() -> Self {
        let state = State { waiting: Vec::new(), daemon: false, serving: false };
        Self { state: mutex(state), arrived: Arc::new(Event::new()), changed: Event::new() }
    }

    /// Queues a request and waits for the answer. `wait` blocks until its condition holds, and
    /// checks it after each notification of the event. If there is no daemon and no other server,
    /// `serve` is called, which serves the whole list.
    pub(super) fn ask(
        &self,
        request: Q,
        wait: impl Fn(&Event, &mut dyn FnMut() -> bool),
        serve: impl Fn(),
    ) -> A {
        let ticket = Arc::new(Ticket { request, answer: mutex(None) });
        let has_daemon = {
            let mut state = self.state.lock();
            state.waiting.push(ticket.clone());
            state.daemon
        };
        if has_daemon {
            self.arrived.notify();
        }
        loop {
            wait(&self.changed, &mut || ticket.is_answered() || self.is_leaderless());
            let answer = ticket.answer.lock().take();
            if let Some(answer) = answer {
                return answer;
            }
            serve();
        }
    }

    /// True if requests wait and there is no server.
    fn is_leaderless(&self) -> bool {
        let state = self.state.lock();
        !state.daemon && !state.serving && !state.waiting.is_empty()
    }

    /// True if there is a daemon.
    pub(super) fn has_daemon(&self) -> bool {
        self.state.lock().daemon
    }

    /// True if no request waits and no batch is being served.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        !state.serving && state.waiting.is_empty()
    }

    /// There is a daemon from now on.
    pub(super) fn daemon_started(&self) {
        self.state.lock().daemon = true;
        // The daemon was not notified of earlier requests.
        self.arrived.notify();
    }

    /// The daemon has ended: a waiting requester becomes the server.
    pub(super) fn daemon_stopped(&self) {
        self.state.lock().daemon = false;
        self.changed.notify();
    }

    /// Number of requests in the list.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Takes the list in order of arrival. `None` if it is empty, or if a batch is being served.
    /// The checkpoint begins after this.
    pub(super) fn detach(&self) -> Option<Batch<Q, A>> {
        let mut state = self.state.lock();
        if state.serving || state.waiting.is_empty() {
            return None;
        }
        state.serving = true;
        Some(std::mem::take(&mut state.waiting))
    }

    /// The batch has been served: each gets the same answer.
    pub(super) fn answer(&self, batch: Batch<Q, A>, answer: &A) {
        for ticket in batch {
            *ticket.answer.lock() = Some(answer.clone());
        }
        self.state.lock().serving = false;
        self.changed.notify();
    }
}
