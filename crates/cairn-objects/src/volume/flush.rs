//! Flushing: what was written becomes an object, and that object and all before it are in the
//! store.
//!
//! The object of a flush is made when all before it are in the store, and says so. If one of them
//! is lost later, an opening sees that it was there, and does not take its place for the log's end.

use std::sync::Arc;

use cairn_block::Result;

use super::core::Core;
use super::state::{Failed, State, Status};
use crate::requests::Created;

/// Data objects after which a checkpoint is due: an opening reads so many indexes.
const CHECKPOINT_OBJECTS: u64 = 64;

impl Core {
    /// Everything written so far is durable when this returns: in the store, or in the local log.
    pub(super) fn flush(&self) -> Result<()> {
        self.counters.flushes.add(1);
        match &self.log {
            Some(log) if self.state.lock().logs => self.flush_to_log(log),
            _ => self.flush_to_store(),
        }
    }

    /// Everything written so far is in the store when this returns. The first caller makes the
    /// object. Those who come meanwhile share the next one.
    pub(super) fn flush_to_store(&self) -> Result<()> {
        let (wanted, entered) = {
            let state = self.state.lock();
            (state.written, state.attempts)
        };
        loop {
            let mut state = self.state.lock();
            state.check()?;
            if state.vouched >= wanted {
                self.counters.flushes_without_object.add(1);
                return Ok(());
            }
            let failed = state.failed.as_ref();
            if let Some(failed) = failed
                && failed.attempt > entered
                && failed.covers >= wanted
            {
                return Err(failed.error.clone());
            }
            if state.flushing {
                drop(state);
                self.wait(|state| !state.flushing);
                continue;
            }
            state.flushing = true;
            state.attempts += 1;
            let (attempt, covers) = (state.attempts, state.written);
            drop(state);
            let outcome = self.write_out();
            let mut state = self.state.lock();
            state.flushing = false;
            if let Err(error) = &outcome {
                state.failed = Some(Failed { attempt, covers, error: error.clone() });
            }
            drop(state);
            self.changed.notify();
            return outcome;
        }
    }

    /// Writes the objects that are sealed, then one of what is open.
    fn write_out(&self) -> Result<()> {
        self.state.lock().draining = true;
        let drained = self.upload_until(|state| state.flights.is_empty());
        let covers = {
            let mut state = self.state.lock();
            state.draining = false;
            if drained.is_ok() {
                state.seal(self.nonce);
            }
            state.written
        };
        self.changed.notify();
        drained?;
        self.upload_until(|state| state.vouched >= covers)
    }

    /// Writes the objects that nobody writes, and waits for the others.
    fn upload_until(&self, done: impl Fn(&State) -> bool) -> Result<()> {
        loop {
            let next = {
                let state = self.state.lock();
                if done(&state) {
                    return Ok(());
                }
                state.check()?;
                let mut flights = state.flights.iter();
                let waiting = flights.find(|flight| flight.status == Status::Waiting);
                waiting.map(|flight| flight.sealed.id.sequence)
            };
            match next {
                Some(sequence) => self.upload(sequence)?,
                None => self.wait(|state| {
                    let waiting = |status| status == Status::Waiting;
                    done(state)
                        || state.stopped.is_some()
                        || state.flights.iter().any(|flight| waiting(flight.status))
                }),
            }
        }
    }

    /// Writes a sealed object, unless somebody does or has.
    pub(super) fn upload(&self, sequence: u64) -> Result<()> {
        let sealed = {
            let mut state = self.state.lock();
            state.check()?;
            match state.status(sequence) {
                Some(status) if *status == Status::Waiting => *status = Status::Busy,
                _ => return Ok(()),
            }
            let at = (sequence - state.applied) as usize;
            Arc::clone(&state.flights[at].sealed)
        };
        let answer = self.requests.create(&sealed.id.to_string(), &sealed.body);
        let stored = matches!(answer, Ok(Created::Ours));
        let due = {
            let mut state = self.state.lock();
            if let Some(status) = state.status(sequence) {
                *status = if stored { Status::Stored } else { Status::Waiting };
            }
            state.advance();
            state.applied - state.checkpointed >= CHECKPOINT_OBJECTS
        };
        self.changed.notify();
        if due {
            self.work.notify();
        }
        match answer? {
            Created::Theirs => Err(self.fenced()),
            Created::Ours => {
                self.counters.objects.add(1);
                self.counters.object_bytes.record(sealed.length);
                Ok(())
            }
        }
    }

    /// True if a checkpoint is due.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let state = self.state.lock();
        state.applied - state.checkpointed >= CHECKPOINT_OBJECTS
    }
}
