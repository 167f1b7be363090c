//! [`Shared`]: what is under way, and what becomes of it when a connection ends. No I/O but
//! sending.
//!
//! Every command is in the table from its start to its answer, except while the thread that reads
//! its answer has it. The phase decides whether new commands are sent at once; the keeper alone
//! leads from one phase to the next.
//!
//! Locking: `state` is a leaf. Batches are completed, and messages sent, without it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::ranked_lock::{Condvar, Mutex, MutexGuard, Rank};
use cairn_base::sabotage::Safeguard;
use cairn_base::told::TOLD;
use cairn_block::{Bytes, Error, ErrorKind, Result};

use super::command::{Chain, Command, Draft, Kind, Next, Owner, Sent, buffers};
use super::ledger::{Entry, Ledger};
use super::session::{Message, Session};
use crate::clock;

/// Data shorter than this is copied when it is kept: it may hold much more memory than its length.
const COPIED: u64 = 32 << 10;
const CLOSED: &str = "the device was closed";

/// How it stands with the server.
pub(super) enum Phase {
    /// Commands are sent as they come.
    Up(Arc<Session>),
    /// The ledger is written again; other commands wait.
    Replaying(Arc<Session>),
    /// The session has ended, or must end, for this reason.
    Broken(Arc<Session>, String),
    /// No connection; commands wait.
    Down,
    /// No connection will come, for this reason.
    Dead(String),
    /// The client is gone.
    Closed(Option<Arc<Session>>),
}

/// What the lock guards.
pub(super) struct State {
    pub(super) phase: Phase,
    /// By cookie, which is the order in which they came.
    pub(super) table: BTreeMap<u64, Command>,
    /// What the reading thread of each lane has: when it was sent, and whether it is a change.
    lent: BTreeMap<usize, (Instant, bool)>,
    next_cookie: u64,
    next_lane: usize,
    pub(super) ledger: Ledger,
    /// Cookies of commands that the keeper sends.
    pub(super) outbox: Vec<u64>,
    /// A flush failed: what was written before it may be lost. No flush succeeds after it, and
    /// nothing more is written.
    failed_flush: Option<Error>,
    /// The keeper's flush is under way.
    pub(super) flushing: bool,
    /// Threads that read.
    pub(super) readers: usize,
    /// Commands of the replay without an answer.
    pub(super) replaying: usize,
}

/// The state, and those who wait for its changes.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// The phase, the outbox, the number of readers or the ledger changed.
    pub(super) changed: Condvar,
    /// Bytes that may be kept until a flush.
    unflushed: u64,
    /// Answered writes may be lost until a flush.
    has_cache: bool,
}

/// Who starts commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A thread that may wait for the connection.
    Caller,
    /// A thread that reads answers: if it waited, nobody would.
    Reader,
}

impl Shared {
    pub(super) fn new(session: Arc<Session>, unflushed: u64, has_cache: bool) -> Arc<Self> {
        let state = State {
            phase: Phase::Up(session),
            table: BTreeMap::new(),
            lent: BTreeMap::new(),
            next_cookie: 1,
            next_lane: 0,
            ledger: Ledger::default(),
            outbox: Vec::new(),
            failed_flush: None,
            flushing: false,
            readers: 0,
            replaying: 0,
        };
        let state = Mutex::new(Rank::Leaf, state);
        Arc::new(Self { state, changed: Condvar::new(), unflushed, has_cache })
    }

    /// Waits until the ledger has room for further writes.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        while state.ledger.weight() > self.unflushed
            && state.failed_flush.is_none()
            && !matches!(state.phase, Phase::Dead(_) | Phase::Closed(_))
        {
            self.changed.notify_all();
            self.changed.wait_for(&mut state, Duration::from_secs(1));
        }
    }

    /// Takes what follows in a chain: starts a stage, or completes the batch.
    pub(super) fn proceed(&self, chain: &Arc<Chain>, mut next: Next, by: By) {
        loop {
            match next {
                Next::Nothing => return,
                Next::Done(completer, outcome) => {
                    return completer.complete(outcome.map(|targets| buffers(&targets)));
                }
                Next::Stage(drafts) => {
                    let count = drafts.len();
                    match self.enter(drafts, &Owner::Chain(chain.clone()), by) {
                        Ok(()) => return,
                        Err(error) => {
                            next = Next::Nothing;
                            for _ in 0..count {
                                next = chain.answered(Err(error.clone()));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Takes commands into the table, and sends them if there is a connection.
    ///
    /// # Errors
    /// There is none, and none will come. Nothing was taken.
    pub(super) fn enter(&self, drafts: Vec<Draft>, owner: &Owner, by: By) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(first) = drafts.first() {
            state.admit(first)?;
        }
        let session = match &state.phase {
            Phase::Up(session) => Some(session.clone()),
            Phase::Replaying(session) if matches!(owner, Owner::Replay) => Some(session.clone()),
            _ => None,
        };
        let mut messages = Vec::new();
        let lane = state.next_lane;
        for draft in drafts {
            let cookie = state.next_cookie;
            state.next_cookie += 1;
            let group = lane.wrapping_add(draft.group);
            state.next_lane = group.wrapping_add(1);
            let mut command = Command::new(draft, owner.clone());
            if let Some(session) = &session {
                let lane = group % session.lanes.len().max(1);
                state.send_on(&mut command, lane);
                match by {
                    By::Caller => messages.push(Message::of(cookie, &command)),
                    By::Reader => state.outbox.push(cookie),
                }
            }
            state.table.insert(cookie, command);
        }
        drop(state);
        match (by, session) {
            (By::Reader, _) => self.changed.notify_all(),
            (By::Caller, Some(session)) => self.send(&session, &messages),
            (By::Caller, None) => {}
        }
        Ok(())
    }

    /// Sends messages of commands that are in the table. If that fails, the session is broken.
    pub(super) fn send(&self, session: &Arc<Session>, messages: &[Message]) {
        for message in messages {
            if let Err(error) = session.send(message) {
                let why = crate::failure::Broken::Io(error).words();
                return self.broken(session.number, &why);
            }
        }
    }

    /// Lends a command to the thread that reads its answer.
    pub(super) fn take(&self, cookie: u64, lane: usize) -> Option<Command> {
        let mut state = self.state.lock();
        let command = state.table.get(&cookie)?;
        let sent = command.sent.filter(|sent| sent.lane == lane)?;
        let changes = command.draft.kind.changes();
        state.lent.insert(lane, (sent.at, changes));
        state.table.remove(&cookie)
    }

    /// Takes a command back whose answer is not complete.
    pub(super) fn put_back(&self, cookie: u64, command: Command) {
        let mut state = self.state.lock();
        state.take_back(&command);
        let over = match &state.phase {
            Phase::Dead(why) => why.clone(),
            Phase::Closed(_) => CLOSED.to_owned(),
            _ => {
                state.table.insert(cookie, command);
                return;
            }
        };
        drop(state);
        fail(self, &command, &over);
    }

    /// Reports a command that was answered.
    pub(super) fn answered(&self, command: Command, outcome: Result<()>) {
        let is_replay = matches!(command.owner, Owner::Replay);
        let kept = self.has_cache && outcome.is_ok() && !is_replay;
        let entry = kept.then(|| entry(&command.draft)).flatten();
        let mut state = self.state.lock();
        state.take_back(&command);
        let Command { draft, owner, sent, .. } = command;
        let mut gone = Vec::new();
        let before = state.ledger.weight();
        let was_full = before > self.unflushed;
        if let Some(entry) = entry {
            state.ledger.push(entry);
        }
        if let Kind::Flush = draft.kind {
            match &outcome {
                Ok(()) => gone = state.ledger.cover(sent.map_or(0, |sent| sent.mark)),
                Err(error) => {
                    state.failed_flush.get_or_insert(error.clone());
                }
            }
        }
        match owner {
            Owner::Ledger => state.flushing = false,
            Owner::Replay => state.replaying = state.replaying.saturating_sub(1),
            Owner::Chain(_) => {}
        }
        let half = self.unflushed / 2;
        let is_heavy = before <= half && state.ledger.weight() > half;
        let is_up = matches!(state.phase, Phase::Up(_));
        drop(state);
        if is_heavy || !is_up || was_full {
            self.changed.notify_all();
        }
        drop(gone);
        match (owner, outcome) {
            (Owner::Chain(chain), outcome) => {
                let next = chain.answered(outcome);
                self.proceed(&chain, next, By::Reader);
            }
            (Owner::Replay, Err(error)) => self.die(format!(
                "after a reconnection the server does not take again what it had taken ({error})"
            )),
            _ => {}
        }
    }

    /// True if the keeper should flush, to bound the ledger.
    pub(super) fn is_heavy(&self, state: &State) -> bool {
        state.ledger.weight() > self.unflushed / 2 && state.failed_flush.is_none()
    }

    /// A session ended. Only the first reason counts.
    pub(super) fn broken(&self, number: u64, why: &str) {
        let mut state = self.state.lock();
        if let Phase::Up(session) | Phase::Replaying(session) = &state.phase
            && session.number == number
        {
            let session = session.clone();
            state.phase = Phase::Broken(session, why.to_owned());
            drop(state);
            self.changed.notify_all();
        }
    }

    /// No session will come any more. Everything under way fails.
    pub(super) fn die(&self, why: String) {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Dead(_) | Phase::Closed(_) => return,
            Phase::Up(session) | Phase::Replaying(session) | Phase::Broken(session, _) => {
                session.cut();
            }
            Phase::Down => {}
        }
        tracing::error!(target: TOLD, %why, "the connection to the NBD server has ended for good");
        state.phase = Phase::Dead(why.clone());
        self.fail_all(state, &why);
        self.changed.notify_all();
    }

    /// The client is gone, and nobody waits for answers.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let session = match &state.phase {
            Phase::Closed(_) => return,
            Phase::Up(session) | Phase::Replaying(session) | Phase::Broken(session, _) => {
                Some(session.clone())
            }
            Phase::Down | Phase::Dead(_) => None,
        };
        state.phase = Phase::Closed(session);
        self.fail_all(state, CLOSED);
        self.changed.notify_all();
    }

    fn fail_all(&self, mut state: MutexGuard<'_, State>, why: &str) {
        let table = std::mem::take(&mut state.table);
        let kept = state.ledger.clear();
        state.outbox.clear();
        state.flushing = false;
        state.replaying = 0;
        drop(state);
        drop(kept);
        table.values().for_each(|command| fail(self, command, why));
    }
}

/// Reports a command that no session will carry out.
fn fail(shared: &Shared, command: &Command, why: &str) {
    if let Owner::Chain(chain) = &command.owner {
        let next = chain.answered(Err(command.draft.error(ErrorKind::Io, why)));
        shared.proceed(chain, next, By::Reader);
    }
}

impl State {
    /// # Errors
    /// No connection will come, or a flush has failed before.
    fn admit(&self, draft: &Draft) -> Result<()> {
        match &self.phase {
            Phase::Dead(why) => Err(draft.error(ErrorKind::Io, why.clone())),
            Phase::Closed(_) => Err(draft.error(ErrorKind::Io, CLOSED)),
            _ => match &self.failed_flush {
                Some(error) if matches!(draft.kind, Kind::Flush) => Err(error.clone()),
                Some(error) if draft.kind.changes() => {
                    let why = format!("a flush failed before ({error})");
                    Err(draft.error(ErrorKind::Io, why))
                }
                _ => Ok(()),
            },
        }
    }

    /// Marks a command as sent.
    pub(super) fn send_on(&self, command: &mut Command, lane: usize) {
        command.attempts += 1;
        let mark = if Safeguard::NbdMark.is_off() { u64::MAX } else { self.ledger.mark() };
        command.sent = Some(Sent { at: clock::now(), lane, mark });
    }

    /// The reading thread of a lane has given a command back.
    fn take_back(&mut self, command: &Command) {
        if let Some(sent) = command.sent {
            self.lent.remove(&sent.lane);
        }
    }

    /// When the commands without a whole answer were sent.
    pub(super) fn sent_at(&self) -> impl Iterator<Item = Instant> {
        let waiting = self.table.values().filter_map(|command| command.sent);
        waiting.map(|sent| sent.at).chain(self.lent.values().map(|lent| lent.0))
    }

    /// True if the server may still carry out a change of this session.
    pub(super) fn has_changes_under_way(&self) -> bool {
        let mut commands = self.table.values();
        self.lent.values().any(|lent| lent.1)
            || commands.any(|command| command.sent.is_some() && command.draft.kind.changes())
    }
}

/// What is kept of a write until a flush. A discard is a hint: it need not be repeated.
fn entry(draft: &Draft) -> Option<Entry> {
    let data = match &draft.kind {
        Kind::Write(data) if draft.len < COPIED => {
            let copy: Vec<u8> = data.iter().flat_map(|piece| piece.iter().copied()).collect();
            Some([Bytes::from(copy)].into())
        }
        Kind::Write(data) => Some(data.clone()),
        Kind::Zeroes => None,
        _ => return None,
    };
    Some(Entry { offset: draft.offset, len: draft.len, data })
}
