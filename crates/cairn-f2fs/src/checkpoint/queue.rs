//! Requests that one piece of work serves together.
//!
//! Whoever serves detaches the whole list and only then begins to work, so a request that comes
//! meanwhile is served by the next piece. All requests of a batch get the same result. Who serves:
//! the daemon while there is one, and else whichever requester finds that nobody does. One batch at
//! a time.
//!
//! Invariants: a request is in the list, in the one batch being served, or answered. Everything a
//! waiter looks at is changed before [`Queue::changed`] is notified.
//!
//! Locking: one leaf lock; nothing is called with it held.

use std::sync::Arc;

use super::sync::{Event, Mutex, mutex};

/// One request: what was asked, and the answer once there is one.
#[must_use = "the answer comes to the ticket"]
pub(super) struct Ticket<Q, A> {
    /// What was asked.
    pub request: Q,
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
    /// There is a daemon, and it has been told of everything in the list.
    daemon: bool,
    /// A batch is being served.
    serving: bool,
}

/// See the module.
pub(super) struct Queue<Q, A> {
    state: Mutex<State<Q, A>>,
    /// The daemon looks again after this: requests have come.
    pub arrived: Arc<Event>,
    /// Requesters look again after this: answers have come, or nobody serves any more.
    pub changed: Event,
}

impl<Q, A: Clone> Queue<Q, A> {
    /// Nobody asks and nobody serves.
    pub(super) fn new() -> Self {
        let state = State { waiting: Vec::new(), daemon: false, serving: false };
        Self { state: mutex(state), arrived: Arc::new(Event::new()), changed: Event::new() }
    }

    /// Asks and waits for the answer. `wait` blocks until its condition holds, and looks again
    /// after each notification of the event. If there is no daemon, and nobody else serves, `serve`
    /// is called: it serves all that wait.
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

    /// Nobody serves: whoever waits must.
    fn is_leaderless(&self) -> bool {
        let state = self.state.lock();
        !state.daemon && !state.serving && !state.waiting.is_empty()
    }

    /// Is there a daemon?
    pub(super) fn has_daemon(&self) -> bool {
        self.state.lock().daemon
    }

    /// Nobody waits and no batch is being served.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        !state.serving && state.waiting.is_empty()
    }

    /// There is a daemon from now on.
    pub(super) fn daemon_started(&self) {
        self.state.lock().daemon = true;
        // Whoever asked before was not announced.
        self.arrived.notify();
    }

    /// The daemon is gone: those who wait serve themselves.
    pub(super) fn daemon_stopped(&self) {
        self.state.lock().daemon = false;
        self.changed.notify();
    }

    /// Number of requests that nobody has begun to serve.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Takes all that wait, in the order they came; `None` if nobody does, or a batch is being
    /// served. Work begins after this.
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
