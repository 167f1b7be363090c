//! Admission: which handles may join the running transaction, and what they wait for.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::Tid;

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::journal::{Journal, State};
use crate::log_space;
use crate::transaction::Running;

/// Log blocks that admission leaves free, for operations that change more than they asked for.
const RESERVE: u32 = 32;

enum Admission {
    Joined { tid: Tid, first: bool },
    TransactionFull(Tid),
    LogFull,
    Busy,
    Aborted(Arc<str>),
}

/// Since when a handle waits, and since when for room in the log.
#[derive(Default)]
struct Waiting {
    since: Option<Duration>,
    stalled: Option<Duration>,
}

impl Journal {
    /// Starts an operation that changes at most `credits` blocks. Waits while the running transaction is being locked, and for
    /// room in the log. No folio, mapping, allocator or buffer lock may be held.
    ///
    /// # Errors
    /// The journal has stopped, or no transaction can hold that much.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        let tid = self.begin_unguarded(credits)?;
        Ok(Handle::new(self.clone(), tid, credits))
    }

    /// Joins the running transaction; the caller ends what it began.
    pub(crate) fn begin_unguarded(&self, credits: u32) -> Result<Tid> {
        if credits > self.largest {
            return Err(Error::TooLarge { credits, largest: self.largest });
        }
        let mut waiting = Waiting::default();
        loop {
            let outcome = self.admit(credits, &waiting);
            if !matches!(outcome, Admission::Joined { .. }) {
                waiting.since.get_or_insert_with(|| self.runtime.monotonic());
            }
            match outcome {
                Admission::Joined { tid, first } => {
                    if first {
                        self.wake.notify();
                    }
                    if let Some(since) = waiting.stalled {
                        self.count_stall(since);
                    }
                    self.stats().handles.add(1);
                    return Ok(tid);
                }
                Admission::Aborted(reason) => return Err(Error::Aborted(reason)),
                Admission::TransactionFull(tid) => self.commit_urgently(tid)?,
                Admission::Busy => self.wait(|state| {
                    state.aborted.is_some() || !(state.pinning || state.running.as_ref().is_some_and(|r| r.locked))
                }),
                Admission::LogFull => {
                    if waiting.stalled.is_none() {
                        waiting.stalled = waiting.since;
                        self.stats().forced_checkpoints.add(1);
                    }
                    self.make_log_space()?;
                }
            }
        }
    }

    fn admit(&self, credits: u32, waiting: &Waiting) -> Admission {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(reason) = &state.aborted {
            return Admission::Aborted(reason.clone());
        }
        if state.pinning {
            return Admission::Busy;
        }
        let needs = match &state.running {
            Some(running) if running.locked => return Admission::Busy,
            Some(running) if self.would_overfill(running, credits) => return Admission::TransactionFull(running.tid),
            Some(running) => running.needs_with(&self.layout, credits),
            None => log_space::needed(&self.layout, credits, 0) + 1,
        };
        if needs.saturating_add(state.committing_needs).saturating_add(RESERVE) > state.log.free() {
            return Admission::LogFull;
        }
        let first = state.running.is_none();
        let running = self.open_transaction(state);
        running.handles += 1;
        running.joined += 1;
        running.promised += credits;
        if let Some(since) = waiting.since {
            let waited = self.runtime.monotonic().saturating_sub(since);
            running.longest_wait = running.longest_wait.max(waited);
        }
        Admission::Joined { tid: running.tid, first }
    }

    /// The running transaction, opened if there is none.
    fn open_transaction<'s>(&self, state: &'s mut State) -> &'s mut Running {
        let State { running, next_tid, .. } = state;
        running.get_or_insert_with(|| {
            let tid = *next_tid;
            *next_tid = tid.next();
            Running::new(tid, self.runtime.monotonic())
        })
    }

    /// True if so many credits more make the transaction too large. One without open handles takes any admissible handle unless it
    /// holds something already.
    pub(crate) fn would_overfill(&self, running: &Running, credits: u32) -> bool {
        let per_block = u32::try_from(self.layout.revokes_per_block()).unwrap_or(u32::MAX);
        let revokes = running.revoke_count() / per_block + running.revoke_blocks;
        running.copies().saturating_add(credits).saturating_add(revokes) > self.largest
    }

    /// Room in the log: moves its tail past what is done, checkpoints what has committed, or commits what is running if nothing has.
    fn make_log_space(&self) -> Result<()> {
        if self.move_tail()? {
            return Ok(());
        }
        let (logged, committing, blocks) = {
            let state = self.state.lock();
            (!state.checkpoint.is_empty(), state.committing, state.log.blocks())
        };
        match committing {
            _ if logged => self.checkpoint(blocks / 4),
            Some(tid) => self.commit_urgently(tid),
            None => {
                self.stats().forced_to_close.add(1);
                self.force_commit()
            }
        }
    }
}
