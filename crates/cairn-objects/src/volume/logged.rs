//! Flushing into the local log: what it has not yet becomes a record. The daemon sends it to the
//! store.
//!
//! A record has all that was written since the one before it, as far as the store lacks it. It
//! names the data object that has the last of this. So an opening knows which records the store
//! has: those whose object is there.
//!
//! A log that takes no record is in nobody's way: flushes go to the store, as without one. That is
//! told once for each opening.

use std::sync::Arc;

use bytes::Bytes;
use cairn_block::{Error, Request, Result};

use super::adoption::Taken;
use super::core::Core;
use super::state::{Fresh, State, pack};
use crate::extents::Extents;
use crate::format::data::{self, Maker};
use crate::format::local_log::Header;
use crate::format::{ObjectId, SECTOR};
use crate::local_log::{Log, header_for};

/// What becomes a record.
struct Unlogged {
    extents: Extents<Fresh>,
    /// The sequence of the object that has the last of it.
    object: u64,
    /// Objects below this sequence are in the store.
    stable: u64,
    /// [`State::written`]: what a flush needs is in it, or was logged before.
    covers: u64,
    /// The store has all that was logged before.
    is_first: bool,
}

/// Puts newer ranges over older ones.
fn cover(below: &mut Extents<Fresh>, newer: Extents<Fresh>) {
    if below.is_empty() {
        *below = newer;
        return;
    }
    for (range, fresh) in newer.iter() {
        below.clear(range.clone(), |_, _| {});
        below.insert(range, fresh.clone());
    }
}

impl State {
    fn take_unlogged(&mut self) -> Unlogged {
        let mut extents = std::mem::take(&mut self.returned.0);
        let mut object = if extents.is_empty() { self.applied } else { self.next };
        for flight in &mut self.flights {
            if !flight.unlogged.is_empty() {
                object = object.max(flight.sealed.id.sequence);
                cover(&mut extents, std::mem::take(&mut flight.unlogged));
            }
        }
        if !self.unlogged.is_empty() {
            object = self.next;
            cover(&mut extents, std::mem::take(&mut self.unlogged));
        }
        let is_first = self.vouched >= self.logged;
        Unlogged { extents, object, stable: self.applied, covers: self.written, is_first }
    }
}

impl Core {
    /// Everything written so far is in the log or the store when this returns. The first caller
    /// writes the record. Those who come meanwhile share the next one.
    pub(super) fn flush_to_log(&self, log: &Log) -> Result<()> {
        let wanted = self.state.lock().written;
        loop {
            let mut state = self.state.lock();
            state.check()?;
            if !state.logs {
                drop(state);
                return self.flush_to_store();
            }
            if state.logged.max(state.vouched) >= wanted {
                self.counters.flushes_without_object.add(1);
                return Ok(());
            }
            if state.logging {
                drop(state);
                self.wait(|state| !state.logging);
                continue;
            }
            state.logging = true;
            let unlogged = state.take_unlogged();
            drop(state);
            let outcome = self.log_or_store(log, unlogged);
            self.end_logging();
            self.work.notify();
            return outcome;
        }
    }

    fn end_logging(&self) {
        self.state.lock().logging = false;
        self.changed.notify();
    }

    /// Writes a record. If that fails, what it would have goes to the store.
    fn log_or_store(&self, log: &Log, unlogged: Unlogged) -> Result<()> {
        let covers = unlogged.covers;
        let logged = self.append(log, &unlogged);
        if let Ok(true) = logged {
            self.counters.logged_flushes.add(1);
        } else {
            self.counters.log_fallbacks.add(1);
            self.state.lock().returned = (unlogged.extents, covers);
            self.flush_to_store()?;
            // Records that the store has, and one that may be there in part. If even that fails,
            // the log has only what is in the store.
            let reset = log.reset();
            let is_usable = reset.is_ok();
            if let Err(error) = logged.map(drop).and(reset) {
                self.log_fails(log, &error, is_usable);
            }
        }
        let mut state = self.state.lock();
        state.logged = state.logged.max(covers);
        Ok(())
    }

    /// The log could not be written.
    fn log_fails(&self, log: &Log, error: &Error, is_usable: bool) {
        let is_known = {
            let mut state = self.state.lock();
            state.logs &= is_usable;
            state.log_error.replace(error.to_string()).is_some()
        };
        let (volume, log) = (&*self.volume, log.name());
        if !is_usable {
            tracing::warn!(
                %log,
                %error,
                "the local log is out of use: flushes of the volume {volume} wait for the store \
                 until it is opened again"
            );
        } else if !is_known {
            tracing::warn!(
                %log,
                %error,
                "the local log takes no flushes: those of the volume {volume} wait for the store"
            );
        }
    }

    /// False if the log has no room for the record.
    fn append(&self, log: &Log, unlogged: &Unlogged) -> Result<bool> {
        let Unlogged { extents, object, stable, is_first, .. } = unlogged;
        let (extents, mut body) = pack(extents);
        let (volume, epoch) = {
            let state = self.state.lock();
            (state.manifest.id, state.manifest.epoch)
        };
        let id = ObjectId { log: volume, epoch, sequence: *object };
        let maker = Maker { nonce: self.nonce, stable: *stable, recorded: 0 };
        let (head, _) = data::encode(id, maker, &extents, &body);
        body[0] = head;
        let length = crate::store::total(&body);
        if !log.has_room(length) {
            if !(*is_first && log.takes(length)) {
                return Ok(false);
            }
            log.reset()?;
        }
        let recorded = log.append(*object, &body)?;
        self.state.lock().recorded = recorded;
        Ok(true)
    }

    /// Sends to the store what the log has and the store lacks. False if there is nothing.
    pub(super) fn send_logged(&self) -> Result<bool> {
        let Some(log) = &self.log else { return Ok(false) };
        let waits = |state: &State| state.logs && state.logged > state.vouched;
        if !waits(&self.state.lock()) {
            return Ok(false);
        }
        self.flush_to_store()?;
        let is_long = log.is_long();
        let is_done = {
            let mut state = self.state.lock();
            let is_done = is_long && !state.logging && state.vouched >= state.logged;
            state.logging |= is_done;
            is_done
        };
        if is_done {
            // If it fails, the next record that has no room finds out.
            let _ = log.reset();
            self.end_logging();
        }
        Ok(true)
    }

    /// Writes what an older log has into the volume; a reader only keeps it in memory. Then a
    /// writer's flushes go to the log.
    pub(super) fn take_in(self: &Arc<Self>, taken: Option<&Taken>, writes: bool) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        for record in taken.iter().flat_map(|taken| &taken.records) {
            let Some(Taken { header, .. }) = taken else { continue };
            for (entry, data) in log.read(header, record)? {
                if entry.end() > self.geometry.size / SECTOR {
                    let reason = format!("one of them lies behind the end of {}", self.volume);
                    return Err(log.refused(&reason));
                }
                self.take_range(entry.start, entry.count.into(), data, writes)?;
            }
        }
        if !writes {
            return Ok(());
        }
        if taken.is_some() {
            self.flush_to_store()?;
        }
        let (volume, size, epoch) = {
            let manifest = &self.state.lock().manifest;
            (manifest.id, manifest.size, manifest.epoch)
        };
        let (nonce, claims) = (self.nonce, [0, self.nonce]);
        let header = header_for(volume, size);
        log.begin(Header { epoch, nonce, claims, ..header })?;
        let mut state = self.state.lock();
        (state.logs, state.logged) = (true, state.written);
        state.recorded = header.first;
        Ok(())
    }

    fn take_range(
        self: &Arc<Self>,
        start: u64,
        sectors: u64,
        data: Option<Bytes>,
        writes: bool,
    ) -> Result<()> {
        let (offset, len) = (start * SECTOR, sectors * SECTOR);
        match (writes, data) {
            (true, Some(data)) => self.change(&Request::Write { offset, bufs: vec![data] }),
            (true, None) => self.change(&Request::WriteZeroes { offset, len }),
            (false, data) => {
                let fresh = data.map_or(Fresh::Hole, Fresh::Data);
                self.state.lock().write(start, sectors, fresh);
                Ok(())
            }
        }
    }

    /// The store has everything, and flushes go there from now on: the log has nothing more.
    pub(super) fn end_log(&self) {
        let Some(log) = &self.log else { return };
        self.wait(|state| !state.logging);
        let had = std::mem::replace(&mut self.state.lock().logs, false);
        if had {
            // If it fails, its records are of objects that are in the store.
            let _ = log.reset();
        }
    }

    /// No writer is known: the log is nobody's.
    pub(super) fn clean_log(&self) {
        if let Some(log) = &self.log {
            // If it fails, it has no record.
            let _ = log.clean();
        }
    }
}
