//! [`Keeper`]: the thread that keeps a client connected.
//!
//! It sends what reading threads may not send, flushes when much is kept, ends a session whose
//! server does not answer, and leads from one session to the next (the rule is in the header of
//! [`super`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_base::sabotage::Safeguard;
use cairn_base::thread::spawn;
use cairn_block::{ErrorKind, Result};

use super::command::{Command, Draft, Kind, Owner};
use super::ledger::Entry;
use super::negotiate::Agreed;
use super::open::{Opened, open};
use super::options::ConnectOptions;
use super::receive::Receiver;
use super::session::{Message, Session};
use super::state::{By, Phase, Shared, State};
use crate::address::Address;
use crate::clock::{self, Deadline};
use crate::wire::ExportFlags;

/// First and longest pause between two attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Writes are flushed after this time if nobody else does it: they hold memory.
const AGE: Duration = Duration::from_secs(5);
/// Of a request without an answer the log tells after this time: who waits should know for what.
const NOTICE: Duration = Duration::from_secs(5);
/// The target of that message, which a program may want to show to a person alone.
pub const WAITING: &str = "cairn_nbd::waiting";
/// How long a server may take to end a connection that is not needed any longer.
const FAREWELL: Duration = Duration::from_secs(5);
/// A command that was under way at the end of so many connections fails.
const ATTEMPTS: u32 = 16;
/// Most commands, and bytes, of a replay that are under way at once.
const REPLAY: (usize, u64) = (64, 8 << 20);

/// What it keeps.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    address: Address,
    options: ConnectOptions,
    /// What the first session agreed to, and every later one must.
    agreed: Agreed,
    readers: Vec<JoinHandle<()>>,
    sessions: u64,
    /// The ledger's mark some time ago.
    aged: u64,
    /// The log has told of the request that has no answer now.
    has_told: bool,
}

impl Keeper {
    /// Starts the threads of the first session, and its own.
    ///
    /// # Errors
    /// The system has no thread for them.
    pub(super) fn start(
        shared: Arc<Shared>,
        address: Address,
        options: ConnectOptions,
        opened: Opened,
    ) -> Result<JoinHandle<()>> {
        let (agreed, session) = (opened.agreed.clone(), opened.session.clone());
        let readers = Vec::new();
        let (sessions, aged, has_told) = (1, 0, false);
        let mut keeper =
            Self { shared, address, options, agreed, readers, sessions, aged, has_told };
        let started = keeper
            .start_readers(opened)
            .and_then(|()| spawn("nbd-keeper", move || while keeper.step() {}));
        started.map_err(|error| {
            session.cut();
            cairn_block::Error::from_io("start a thread for an NBD connection", error)
        })
    }

    fn start_readers(&mut self, opened: Opened) -> std::io::Result<()> {
        let Opened { session, incoming, .. } = opened;
        for (lane, incoming) in incoming.into_iter().enumerate() {
            let receiver = Receiver {
                incoming,
                shared: self.shared.clone(),
                session: session.number,
                lane,
                headers: session.headers,
                allocation: session.allocation,
            };
            self.shared.state.lock().readers += 1;
            match spawn("nbd-reader", move || receiver.run()) {
                Ok(thread) => self.readers.push(thread),
                Err(error) => {
                    self.shared.state.lock().readers -= 1;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Does what is next. False if nothing will be.
    fn step(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        match &state.phase {
            Phase::Up(session) => {
                let session = session.clone();
                if !state.outbox.is_empty() {
                    let messages = take_outbox(&mut state);
                    drop(state);
                    shared.send(&session, &messages);
                } else if self.is_overdue(&state) {
                    drop(state);
                    let time = self.options.request_timeout;
                    let why = format!("the server did not answer within {} s", time.as_secs_f32());
                    shared.broken(session.number, &why);
                } else if !state.flushing && self.shared.is_heavy(&state) {
                    drop(state);
                    self.flush();
                } else {
                    let tick = (self.options.request_timeout / 4).min(AGE);
                    let woken = shared.changed.wait_for(&mut state, tick);
                    let is_aged = !woken && self.is_aged(&state);
                    let is_silent = self.waits_for(&state, NOTICE.min(tick));
                    drop(state);
                    self.tell(is_silent);
                    if is_aged {
                        self.flush();
                    }
                }
                true
            }
            Phase::Broken(session, why) => {
                let (session, why) = (session.clone(), why.clone());
                drop(state);
                self.mend(session, why);
                true
            }
            Phase::Closed(session) => {
                let session = session.clone();
                drop(state);
                self.farewell(session.as_deref());
                false
            }
            Phase::Dead(_) => {
                drop(state);
                self.join();
                false
            }
            Phase::Replaying(_) | Phase::Down => unreachable!("the keeper itself leads on"),
        }
    }

    fn is_overdue(&self, state: &State) -> bool {
        self.waits_for(state, self.options.request_timeout)
    }

    /// True if a request has had no answer for so long.
    fn waits_for(&self, state: &State, time: Duration) -> bool {
        let now = clock::now();
        state.sent_at().any(|at| now.saturating_duration_since(at) >= time)
    }

    /// Tells the log once that the server is silent.
    fn tell(&mut self, is_silent: bool) {
        if is_silent && !self.has_told {
            let time = self.options.request_timeout.as_secs_f32();
            tracing::warn!(
                target: WAITING,
                "the NBD server {} does not answer: after {time} s the request is sent again on a \
                 new connection",
                self.address
            );
        }
        self.has_told = is_silent;
    }

    /// True if the ledger holds what it held a tick ago.
    fn is_aged(&mut self, state: &State) -> bool {
        let before = std::mem::replace(&mut self.aged, state.ledger.mark());
        state.ledger.holds_before(before) && !state.flushing
    }

    fn flush(&self) {
        self.shared.state.lock().flushing = true;
        // If it is refused, no session will come, or none would help: nobody waits for it.
        let _ = self.shared.enter(vec![Draft::flush()], &Owner::Ledger, By::Caller);
    }

    /// Leads from a session that has ended to the next one.
    fn mend(&mut self, mut session: Arc<Session>, mut why: String) {
        let deadline = Deadline::after(self.options.reconnect_timeout);
        loop {
            tracing::warn!(
                "the connection to the NBD server {} has ended ({why}): a new one is tried for up \
                 to {} s",
                self.address,
                self.options.reconnect_timeout.as_secs_f32()
            );
            if !self.drain(&session, &why, deadline) || !self.go_down() {
                return;
            }
            let Some(opened) = self.reconnect(&why, deadline) else { return };
            session = opened.session.clone();
            if !self.go_to(Phase::Replaying(session.clone())) {
                return session.cut();
            }
            if let Err(error) = self.start_readers(opened) {
                self.shared.broken(session.number, &error.to_string());
            } else if self.replay(&session) && self.resume(&session) {
                tracing::info!(server = %self.address, "the NBD connection is there again");
                return;
            }
            match &self.shared.state.lock().phase {
                Phase::Broken(_, new) => why.clone_from(new),
                _ => return,
            }
            if deadline.is_over() {
                return self.give_up(&why);
            }
        }
    }

    /// Waits until nothing of a session can have an effect any more. False if there will be no
    /// further session.
    fn drain(&mut self, session: &Session, why: &str, deadline: Deadline) -> bool {
        session.finish();
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        while state.readers > 0 {
            if matches!(state.phase, Phase::Dead(_) | Phase::Closed(_)) {
                return false;
            }
            if !state.has_changes_under_way() {
                session.cut();
            } else if deadline.is_over() {
                drop(state);
                shared.die(format!(
                    "{why}, and it does not end the connection: writes that it still has could \
                     come after later ones: see to the server, then open the volume again"
                ));
                return false;
            }
            let time = deadline.left().clamp(PAUSES[0], PAUSES[1]);
            shared.changed.wait_for(&mut state, time);
        }
        drop(state);
        self.join();
        true
    }

    /// Nothing is under way from here on: every command waits to be sent.
    fn go_down(&self) -> bool {
        let is_open = self.go_to(Phase::Down);
        let mut state = self.shared.state.lock();
        state.outbox.clear();
        state.replaying = 0;
        state.table.retain(|_, command| !matches!(command.owner, Owner::Replay));
        state.table.values_mut().for_each(Command::reset);
        is_open
    }

    /// Enters a phase, unless there is nothing to lead to any more.
    fn go_to(&self, phase: Phase) -> bool {
        let mut state = self.shared.state.lock();
        let is_open = !matches!(state.phase, Phase::Dead(_) | Phase::Closed(_));
        if is_open {
            state.phase = phase;
        }
        is_open
    }

    fn reconnect(&mut self, why: &str, deadline: Deadline) -> Option<Opened> {
        let [mut pause, longest] = PAUSES;
        loop {
            self.sessions += 1;
            let time = self.options.connect_timeout.min(deadline.left());
            let last = match open(&self.address, &self.options, self.sessions, time) {
                Ok(opened) => match self.differs(&opened.agreed) {
                    None => return Some(opened),
                    Some(difference) => {
                        opened.session.cut();
                        self.shared.die(format!("after {why}, {difference}: open it again"));
                        return None;
                    }
                },
                Err(broken) => broken.words_after(time),
            };
            if deadline.is_over() {
                self.give_up(&format!("{why}, and no new connection came: {last}"));
                return None;
            }
            let mut state = self.shared.state.lock();
            if matches!(state.phase, Phase::Dead(_) | Phase::Closed(_)) {
                return None;
            }
            self.shared.changed.wait_for(&mut state, pause);
            pause = (pause * 2).min(longest);
        }
    }

    fn give_up(&self, why: &str) {
        let time = self.options.reconnect_timeout.as_secs_f32();
        self.shared.die(format!(
            "{why} (within {time} s): see to the server {}, then open the volume again",
            self.address.place
        ));
    }

    /// How the export differs from what it was, if a filesystem cannot live with that.
    fn differs(&self, now: &Agreed) -> Option<String> {
        let was = &self.agreed;
        let needed = ExportFlags::SEND_FLUSH
            | ExportFlags::SEND_FUA
            | ExportFlags::SEND_TRIM
            | ExportFlags::SEND_WRITE_ZEROES;
        let needed = was.flags & needed;
        if now.size != was.size {
            return Some(format!("the export has {} bytes and had {}", now.size, was.size));
        }
        if self.options.write && now.flags.contains(ExportFlags::READ_ONLY) {
            return Some("the export is read-only, which it was not".into());
        }
        if !now.flags.contains(needed) {
            return Some("the server can do less with the export than it could".into());
        }
        let is_smaller = now.blocks.maximum < was.blocks.maximum;
        if now.blocks.minimum > was.blocks.minimum || is_smaller {
            return Some("the server takes other sizes of requests than it did".into());
        }
        None
    }

    /// Writes the ledger again, each place once, so the order does not matter. False if the session
    /// ended.
    fn replay(&self, session: &Arc<Session>) -> bool {
        let mut entries = self.shared.state.lock().ledger.newest();
        if Safeguard::NbdReplay.is_off() {
            entries.clear();
        }
        let (most, most_bytes) = REPLAY;
        let (mut count, mut bytes) = (0, 0);
        for entry in entries {
            if count == most || bytes >= most_bytes {
                if !self.wait_for_replay(session) {
                    return false;
                }
                (count, bytes) = (0, 0);
            }
            count += 1;
            bytes += entry.len;
            self.shared.state.lock().replaying += 1;
            let kind = entry.data.map_or(Kind::Zeroes, Kind::Write);
            let Entry { offset, len, .. } = entry;
            let draft = Draft { kind, offset, len, fua: false, group: 0 };
            if self.shared.enter(vec![draft], &Owner::Replay, By::Caller).is_err() {
                return false;
            }
        }
        self.wait_for_replay(session)
    }

    fn wait_for_replay(&self, session: &Session) -> bool {
        let mut state = self.shared.state.lock();
        loop {
            if !matches!(state.phase, Phase::Replaying(_)) {
                return false;
            }
            if state.replaying == 0 {
                return true;
            }
            if self.is_overdue(&state) {
                drop(state);
                let why = "the server did not take again what it had taken".to_owned();
                self.shared.broken(session.number, &why);
                return false;
            }
            self.shared.changed.wait_for(&mut state, PAUSES[1]);
        }
    }

    /// Sends what waits, and lets new commands pass. False if the session ended.
    fn resume(&self, session: &Arc<Session>) -> bool {
        let mut state = self.shared.state.lock();
        if !matches!(state.phase, Phase::Replaying(_)) {
            return false;
        }
        state.phase = Phase::Up(session.clone());
        let worn = |command: &Command| command.attempts >= ATTEMPTS;
        let cookies: Vec<u64> = state.table.keys().copied().collect();
        let (mut messages, mut given_up) = (Vec::new(), Vec::new());
        for cookie in cookies {
            let Some(mut command) = state.table.remove(&cookie) else { continue };
            if worn(&command) {
                given_up.push(command);
                continue;
            }
            let lane = command.draft.group % session.lanes.len().max(1);
            state.send_on(&mut command, lane);
            messages.push(Message::of(cookie, &command));
            state.table.insert(cookie, command);
        }
        drop(state);
        for command in given_up {
            let why = format!(
                "{ATTEMPTS} connections ended while the server {} had this request: see what its \
                 log says of it",
                self.address.place
            );
            let error = command.draft.error(ErrorKind::Io, why);
            self.shared.answered(command, Err(error));
        }
        self.shared.send(session, &messages);
        true
    }

    /// Ends the session of a client that is gone.
    fn farewell(&mut self, session: Option<&Session>) {
        if let Some(session) = session {
            session.finish();
            let deadline = Deadline::after(FAREWELL);
            let mut state = self.shared.state.lock();
            while state.readers > 0 && !deadline.is_over() {
                self.shared.changed.wait_for(&mut state, deadline.left());
            }
            drop(state);
            session.cut();
        }
        self.join();
    }

    fn join(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a thread that reads answers does not panic");
        }
    }
}

/// Messages of the commands that the keeper is to send.
fn take_outbox(state: &mut State) -> Vec<Message> {
    let cookies: BTreeSet<u64> = std::mem::take(&mut state.outbox).into_iter().collect();
    let sent = cookies.into_iter().filter_map(|cookie| Some((cookie, state.table.get(&cookie)?)));
    sent.map(|(cookie, command)| Message::of(cookie, command)).collect()
}
