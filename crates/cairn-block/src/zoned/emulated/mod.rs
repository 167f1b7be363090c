//! [`Emulated`]: zones for any device, with their rules enforced.
//!
//! A reset discards the zone on the device below. Bytes after a write pointer read as zeros,
//! whatever the device below holds there. Zones over memory live as long as the device. Zones of an
//! image ([`super::create_image`]) are kept in a table behind them: a write pointer reaches it with
//! the flush that makes its data durable, and a reset reaches it before the zone can be written
//! again. So after a power cut every zone holds the beginning of its written data, and its pointer
//! is at the end of that.
//!
//! Locking: one leaf lock around the zones' state, not held while the device below works. Requests
//! of one batch are handled in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank};

use super::rules::{Health, State, ZoneLayout, Zones};
use super::table::Table;
use super::{Zone, ZoneCondition, ZoneLimits, ZonedDevice};
use crate::bounds::{self, total_len};
use crate::device::{
    Batch, BlockDevice, BlockDeviceExt, Completion, Durability, Geometry, Request,
};
use crate::error::{Error, ErrorKind, Operation, Result};

/// A device with zones on a device that has none.
pub struct Emulated {
    inner: Arc<dyn BlockDevice>,
    layout: ZoneLayout,
    geometry: Geometry,
    zones: Mutex<Zones>,
    kept: Option<Arc<Kept>>,
}

/// The table of an image.
struct Kept {
    table: Table,
    pending: Mutex<Pending>,
    writing: Mutex<()>,
}

/// The state that the table is to have.
struct Pending {
    /// The zones' states as far as their writes have completed.
    done: Vec<State>,
    /// Zones whose state in the table is old.
    dirty: BTreeSet<u32>,
}

/// What a batch does to the zones.
struct Admitted {
    reads: Vec<Unwritten>,
    /// Zones whose pointers moved, and their new pointers.
    moved: Vec<(u32, State)>,
}

impl Emulated {
    /// Gives `inner` empty zones. Its old contents in sequential zones are no longer readable.
    ///
    /// # Errors
    /// The layout is impossible, or larger than the device.
    pub fn new(inner: Arc<dyn BlockDevice>, layout: ZoneLayout) -> Result<Self> {
        layout.check()?;
        Self::with(inner, Zones::new(layout, Vec::new()), None)
    }

    /// The sequential zone that starts at `start` fails: from now on it is
    /// [`ZoneCondition::ReadOnly`] or [`ZoneCondition::Offline`].
    ///
    /// # Errors
    /// No sequential zone starts there, it has failed already, or the condition is another one; or
    /// the device below failed.
    pub fn fail_zone(&self, start: u64, condition: ZoneCondition) -> Result<()> {
        let health = match condition {
            ZoneCondition::ReadOnly => Health::ReadOnly,
            ZoneCondition::Offline => Health::Offline,
            other => {
                let detail = format!("a zone that fails is read-only or offline, not {other:?}");
                return Err(Error::new(ErrorKind::Unsupported, "fail zone", detail));
            }
        };
        self.change("fail zone", start, |zones, zone| zones.fail(zone, health))?;
        self.keep()
    }

    pub(super) fn with(
        inner: Arc<dyn BlockDevice>,
        zones: Zones,
        table: Option<Table>,
    ) -> Result<Self> {
        let (layout, below) = (zones.layout, inner.geometry());
        if layout.size() > below.size {
            let detail = format!(
                "{} zones of {} bytes do not fit {} bytes",
                layout.zones, layout.zone_size, below.size
            );
            return Err(Error::new(ErrorKind::OutOfRange, "emulate zones", detail));
        }
        // Only a reset drops the contents of a zone.
        let geometry = Geometry { size: layout.size(), discard: false, ..below };
        let kept = table.map(|table| {
            let done = (0..layout.zones).map(|zone| zones.state(zone)).collect();
            let pending = Mutex::new(Rank::Leaf, Pending { done, dirty: BTreeSet::new() });
            Arc::new(Kept { table, pending, writing: Mutex::new(Rank::Zones, ()) })
        });
        Ok(Self { inner, layout, geometry, zones: Mutex::new(Rank::Leaf, zones), kept })
    }

    /// Updates the table. The data before each write pointer is durable before that.
    fn keep(&self) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let _writing = kept.writing.lock();
        let (dirty, done) = {
            let mut pending = kept.pending.lock();
            (std::mem::take(&mut pending.dirty), pending.done.clone())
        };
        if dirty.is_empty() {
            return Ok(());
        }
        let stored = kept.table.write(&*self.inner, &done, &dirty);
        stored.inspect_err(|_| kept.pending.lock().dirty.extend(dirty))
    }

    /// Moves the pointers for a whole batch, or for none of it.
    fn admit(&self, requests: &[Request]) -> Result<Admitted> {
        let mut zones = self.zones.lock();
        let (mut reads, mut before) = (Vec::new(), Vec::new());
        for request in requests {
            let (operation, len, outcome) = match request {
                Request::Read { offset, buf } => {
                    let len = buf.len() as u64;
                    reads.push(Unwritten { offset: *offset, parts: zones.unwritten(*offset, len) });
                    (Operation::Read, len, zones.read(*offset, len).map(|()| None))
                }
                Request::Write { offset, bufs } => {
                    (Operation::Write, total_len(bufs), zones.write(*offset, total_len(bufs)))
                }
                Request::WriteZeroes { offset, len } => {
                    (Operation::WriteZeroes, *len, zones.write(*offset, *len))
                }
                Request::Discard { offset, len } => {
                    (Operation::Discard, *len, zones.discard(*offset, *len).map(|()| None))
                }
            };
            match outcome {
                Ok(moved) => before.extend(moved),
                Err(violation) => {
                    before.into_iter().rev().for_each(|(zone, state)| zones.restore(zone, state));
                    return Err(Error::zone_rule(violation, operation, len));
                }
            }
        }
        let moved = before.into_iter().map(|(zone, _)| (zone, zones.state(zone))).collect();
        Ok(Admitted { reads, moved })
    }

    fn run(&self, batch: Batch) -> Result<Completion> {
        batch.requests.iter().try_for_each(|request| bounds::check(&self.geometry, request))?;
        if batch.durability.preflush {
            self.flush()?;
        }
        let Admitted { reads, moved } = self.admit(&batch.requests)?;
        let fua = batch.durability.fua;
        let durability = Durability { preflush: false, fua };
        let kept = self.kept.clone();
        let done =
            self.inner.submit(Batch { requests: batch.requests, durability }).map(move |outcome| {
                let mut bufs = outcome?;
                bufs.iter_mut().zip(&reads).for_each(|(buf, read)| read.hide(buf));
                if let Some(kept) = kept {
                    kept.pending.lock().completed(moved);
                }
                Ok(bufs)
            });
        if !fua || self.kept.is_none() {
            return Ok(done);
        }
        let bufs = done.wait()?;
        self.keep()?;
        Ok(Completion::ready(Ok(bufs)))
    }

    /// Changes the state of the zone that starts at `start`; the next [`Emulated::keep`] writes it
    /// to the table.
    fn change(
        &self,
        operation: &str,
        start: u64,
        change: impl FnOnce(&mut Zones, u32),
    ) -> Result<()> {
        let mut zones = self.zones.lock();
        let found = zones.sequential_at(start);
        let zone = found
            .map_err(|violation| Error::zone_rule(violation, operation, self.layout.zone_size))?;
        change(&mut zones, zone);
        let state = zones.state(zone);
        drop(zones);
        if let Some(kept) = &self.kept {
            kept.pending.lock().set(zone, state);
        }
        Ok(())
    }
}

impl Pending {
    fn completed(&mut self, moved: Vec<(u32, State)>) {
        for (zone, state) in moved {
            let done = &mut self.done[zone as usize];
            done.written = done.written.max(state.written);
            self.dirty.insert(zone);
        }
    }

    fn set(&mut self, zone: u32, state: State) {
        self.done[zone as usize] = state;
        self.dirty.insert(zone);
    }
}

/// The parts of a read that give zeros.
struct Unwritten {
    offset: u64,
    parts: Vec<(u64, u64)>,
}

impl Unwritten {
    fn hide(&self, buf: &mut [u8]) {
        for (from, len) in &self.parts {
            let start = usize::try_from(from - self.offset).expect("a read fits into memory");
            let len = usize::try_from(*len).expect("a read fits into memory");
            buf[start..start + len].fill(0);
        }
    }
}

impl BlockDevice for Emulated {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.run(batch).unwrap_or_else(|error| Completion::ready(Err(error)))
    }

    fn flush(&self) -> Result<()> {
        self.keep()?;
        self.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        Some(self)
    }
}

impl ZonedDevice for Emulated {
    fn limits(&self) -> ZoneLimits {
        self.layout.limits()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        let zones = self.zones.lock();
        let first = offset / self.layout.zone_size;
        let numbers = (0..self.layout.zones).skip_while(|zone| u64::from(*zone) < first);
        Ok(numbers.take(most).map(|zone| zones.describe(zone)).collect())
    }

    fn reset(&self, start: u64) -> Result<()> {
        self.change("reset zone", start, Zones::reset)?;
        self.keep()?;
        self.inner.discard(start, self.layout.zone_size)
    }

    fn finish(&self, start: u64) -> Result<()> {
        self.change("finish zone", start, Zones::finish)
    }
}

#[cfg(test)]
mod tests;
