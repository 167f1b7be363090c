//! [`ZoneOrder`]: sends writes to sequential zones in the order of their offsets, whatever order
//! they come in.
//!
//! Several threads take places in one zone one after the other and then write at the same time. A
//! write that comes before its turn waits as a pending [`Completion`], without a thread. When the
//! gap before it is filled, it is sent together with the writes that follow it. One write of a zone
//! is in flight at a time. When a write fails, or a place is given up ([`ZoneOrder::give_up`]),
//! everything behind it in its zone fails until the zone is reset or finished: the zone cannot be
//! written there any more.
//!
//! A write to an empty zone also waits while the device has as many active zones as it can
//! ([`super::active`]).
//!
//! Locking: a leaf lock around each zone's lane, not held while the device works.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::ranked_lock::{Mutex, Rank};

use super::active::ActiveZones;
use super::{Zone, ZoneLimits, ZonedDevice};
use crate::bounds::{split_off, total_len};
use crate::device::{Batch, BlockDevice, Completer, Completion, Durability, Geometry, Request};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::join::join;

mod lane;

use lane::{Lane, Waiting};

/// A zoned device whose callers need not write a zone in order.
pub struct ZoneOrder {
    lanes: Arc<Lanes>,
}

struct Lanes {
    inner: Arc<dyn BlockDevice>,
    /// First bytes of the sequential zones, ascending.
    starts: Vec<u64>,
    /// The bytes behind them.
    ends: Vec<u64>,
    /// The bytes after their writable parts.
    writable_ends: Vec<u64>,
    lanes: Vec<Mutex<Lane>>,
    active: ActiveZones,
}

impl ZoneOrder {
    /// Around a device with zones.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no zones; or the device failed.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Result<Self> {
        let Some(zoned) = inner.as_zoned() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "order writes",
                "the device has no zones",
            ));
        };
        let zones: Vec<Zone> =
            zoned.report(0, usize::MAX)?.into_iter().filter(Zone::is_sequential).collect();
        let limit = zoned.limits().max_active;
        let starts = zones.iter().map(|zone| zone.start).collect();
        let ends = zones.iter().map(|zone| zone.start + zone.len).collect();
        let writable_ends = zones.iter().map(Zone::writable_end).collect();
        let lanes: Vec<Lane> = zones.iter().map(Lane::new).collect();
        let active = lanes.iter().filter(|lane| lane.active).count();
        let active =
            ActiveZones::new(limit, u32::try_from(active).expect("zones have 32-bit numbers"));
        let lanes = lanes.into_iter().map(|lane| Mutex::new(Rank::Leaf, lane)).collect();
        Ok(Self { lanes: Arc::new(Lanes { inner, starts, ends, writable_ends, lanes, active }) })
    }

    /// Records that the place at byte `offset` will never be written: present and later writes
    /// behind it in its zone fail.
    pub fn give_up(&self, offset: u64) {
        let Some(lane) = self.lanes.find(offset) else { return };
        let error = Error::new(
            ErrorKind::Io,
            Operation::Write,
            "a write before it in the same zone was given up",
        )
        .at(offset, 0);
        self.lanes.break_off(lane, error);
    }

    /// Where the next write to the sequential zone with byte `offset` goes; `None` for conventional
    /// zones.
    #[must_use]
    pub fn next(&self, offset: u64) -> Option<u64> {
        Some(self.lanes.lanes[self.lanes.find(offset)?].lock().next)
    }

    /// Drops the contents of the zone that starts at `start`: the next write goes to its start,
    /// after a reset unless the zone is empty. No write to it may be in flight. A conventional zone
    /// is left as it is.
    pub fn begin_anew(&self, start: u64) {
        let Ok(index) = self.lanes.starts.binary_search(&start) else { return };
        let mut lane = self.lanes.lanes[index].lock();
        assert!(lane.waiting.is_empty(), "a zone is begun anew while writes wait in it");
        if lane.next != start || lane.broken.is_some() {
            lane.next = start;
            lane.stale = true;
            lane.broken = None;
        }
    }

    /// As [`ZoneOrder::begin_anew`], for a zone without pending writes: [`PendingReset::carry_out`]
    /// resets it, and later writes wait for that. `None` if it is empty, in use, or conventional.
    #[must_use]
    pub fn start_reset(&self, start: u64) -> Option<PendingReset> {
        let index = self.lanes.starts.binary_search(&start).ok()?;
        let mut lane = self.lanes.lanes[index].lock();
        let written = lane.next != start || lane.stale || lane.broken.is_some();
        if !written || lane.busy || !lane.waiting.is_empty() {
            return None;
        }
        (lane.next, lane.stale, lane.busy, lane.broken) = (start, true, true, None);
        Some(PendingReset { lanes: self.lanes.clone(), index })
    }

    fn split(&self, mut batch: Batch) -> Completion {
        batch.requests =
            batch.requests.into_iter().flat_map(|request| self.lanes.cut(request)).collect();
        let fua = batch.durability.fua;
        let ordered = |request: &Request| match request {
            Request::Write { offset, bufs } => {
                !bufs.is_empty() && self.lanes.find(*offset).is_some()
            }
            _ => false,
        };
        if !batch.requests.iter().any(ordered) {
            return self.lanes.inner.submit(batch);
        }
        if batch.durability.preflush
            && let Err(error) = self.lanes.inner.flush()
        {
            return Completion::ready(Err(error));
        }
        let (ordered, rest): (Vec<_>, Vec<_>) = batch.requests.into_iter().partition(ordered);
        let mut parts = Vec::with_capacity(ordered.len() + 1);
        if !rest.is_empty() {
            let durability = Durability { preflush: false, fua };
            parts.push(self.lanes.inner.submit(Batch { requests: rest, durability }));
        }
        for request in ordered {
            if let Request::Write { offset, bufs } = request {
                parts.push(self.lanes.offer(offset, bufs, fua));
            }
        }
        join(parts)
    }
}

impl Lanes {
    /// The lane of the sequential zone that holds a byte.
    fn find(&self, offset: u64) -> Option<usize> {
        let after = self.starts.partition_point(|start| *start <= offset);
        let lane = after.checked_sub(1)?;
        (offset < self.ends[lane]).then_some(lane)
    }

    /// A write that crosses zones becomes one write for each zone.
    fn cut(&self, request: Request) -> Vec<Request> {
        let Request::Write { mut offset, mut bufs } = request else { return vec![request] };
        let mut pieces = Vec::new();
        loop {
            let len = total_len(&bufs);
            let next = self.starts.partition_point(|start| *start <= offset);
            let border = match next
                .checked_sub(1)
                .and_then(|lane| self.ends.get(lane))
                .filter(|end| **end > offset)
            {
                Some(end) => Some(*end),
                None => self.starts.get(next).copied(),
            };
            let Some(border) = border.filter(|border| *border < offset + len) else {
                pieces.push(Request::Write { offset, bufs });
                return pieces;
            };
            let rest = split_off(
                &mut bufs,
                usize::try_from(border - offset).expect("the buffers are in memory"),
            );
            pieces.push(Request::Write { offset, bufs });
            (offset, bufs) = (border, rest);
        }
    }

    fn offer(self: &Arc<Self>, offset: u64, bufs: Vec<Bytes>, fua: bool) -> Completion {
        let Some(index) = self.find(offset) else {
            let detail = "the write is in no sequential zone";
            return Completion::ready(Err(Error::new(
                ErrorKind::OutOfRange,
                Operation::Write,
                detail,
            )
            .at(offset, 0)));
        };
        let len = total_len(&bufs);
        let (completion, completer) = Completion::pending();
        {
            let mut lane = self.lanes[index].lock();
            if let Some(error) = &lane.broken {
                return Completion::ready(Err(error.clone()));
            }
            if offset < lane.next || lane.waiting.contains_key(&offset) {
                // The device below says what is wrong with it.
                drop(lane);
                let requests = vec![Request::Write { offset, bufs }];
                return self
                    .inner
                    .submit(Batch { requests, durability: Durability { preflush: false, fua } });
            }
            lane.waiting.insert(offset, Waiting { bufs, len, fua, completer });
        }
        self.pump(index);
        completion
    }

    /// Stops writes to the zone. It no longer counts as active, so that other zones do not wait for
    /// it.
    fn break_off(self: &Arc<Self>, index: usize, error: Error) {
        let failed = {
            let mut lane = self.lanes[index].lock();
            lane.busy = false;
            lane.break_off(error)
        };
        failed.into_iter().for_each(|(waiting, error)| waiting.completer.complete(Err(error)));
        self.end_active(index);
    }

    /// Counts a zone as active before its first write; false if it has to wait.
    fn begin_active(self: &Arc<Self>, index: usize) -> bool {
        if !self.lanes[index].lock().begins() {
            return true;
        }
        if !self.active.begin(index) {
            return false;
        }
        let begins = {
            let mut lane = self.lanes[index].lock();
            let begins = lane.begins();
            lane.active |= begins;
            begins
        };
        if !begins {
            // Another thread was faster, or has stopped the zone.
            self.active.end().into_iter().for_each(|waiting| self.pump(waiting));
        }
        true
    }

    /// The zone is full, empty or broken.
    fn end_active(self: &Arc<Self>, index: usize) {
        if std::mem::take(&mut self.lanes[index].lock().active) {
            self.active.end().into_iter().for_each(|waiting| self.pump(waiting));
        }
    }

    /// Sends the writes whose turn it is.
    fn pump(self: &Arc<Self>, index: usize) {
        if !self.begin_active(index) {
            return;
        }
        let (stale, taken) = {
            let mut lane = self.lanes[index].lock();
            (lane.stale, lane.take_ready())
        };
        let Some((offset, ready)) = taken else { return };
        if stale {
            match self.zoned().reset(self.starts[index]) {
                Ok(()) => self.lanes[index].lock().stale = false,
                Err(error) => {
                    ready
                        .into_iter()
                        .for_each(|waiting| waiting.completer.complete(Err(error.clone())));
                    self.break_off(index, error);
                    return;
                }
            }
        }
        let fua = ready.iter().any(|waiting| waiting.fua);
        let len: u64 = ready.iter().map(|waiting| waiting.len).sum();
        let (bufs, completers): (Vec<Vec<Bytes>>, Vec<Completer>) =
            ready.into_iter().map(|waiting| (waiting.bufs, waiting.completer)).unzip();
        let requests = vec![Request::Write { offset, bufs: bufs.into_iter().flatten().collect() }];
        let lanes = self.clone();
        self.inner
            .submit(Batch { requests, durability: Durability { preflush: false, fua } })
            .then(move |outcome| {
                let outcome = outcome.map(drop);
                match &outcome {
                    Ok(()) => {
                        let mut lane = lanes.lanes[index].lock();
                        (lane.busy, lane.next) = (false, offset + len);
                    }
                    Err(error) => lanes.break_off(index, error.clone()),
                }
                for completer in completers {
                    completer.complete(outcome.clone().map(|()| Vec::new()));
                }
                if outcome.is_ok() && offset + len == lanes.writable_ends[index] {
                    lanes.end_active(index);
                }
                lanes.pump(index);
            });
    }

    fn zoned(&self) -> &dyn ZonedDevice {
        self.inner.as_zoned().expect("a device does not lose its zones")
    }

    /// The zone is empty again, so earlier failures no longer matter.
    fn renew(self: &Arc<Self>, start: u64) -> Result<()> {
        let Ok(index) = self.starts.binary_search(&start) else { return Ok(()) };
        if let Some(zone) = self.zoned().report(start, 1)?.first() {
            // Empty or full: not active.
            self.end_active(index);
            *self.lanes[index].lock() = Lane::new(zone);
        }
        Ok(())
    }
}

/// A zone that is about to be reset; see [`ZoneOrder::start_reset`].
#[must_use = "the zone takes no writes until it is reset"]
pub struct PendingReset {
    lanes: Arc<Lanes>,
    index: usize,
}

impl PendingReset {
    /// Resets the zone, and allows writes to it. If the reset fails, the next write tries it again.
    ///
    /// # Errors
    /// The device's.
    pub fn carry_out(self) -> Result<()> {
        let outcome = self.lanes.zoned().reset(self.lanes.starts[self.index]);
        if outcome.is_ok() {
            self.lanes.lanes[self.index].lock().stale = false;
            self.lanes.end_active(self.index);
        }
        outcome
    }
}

impl Drop for PendingReset {
    fn drop(&mut self) {
        self.lanes.lanes[self.index].lock().busy = false;
        self.lanes.pump(self.index);
    }
}

impl BlockDevice for ZoneOrder {
    fn geometry(&self) -> Geometry {
        self.lanes.inner.geometry()
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.split(batch)
    }

    fn flush(&self) -> Result<()> {
        self.lanes.inner.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        Some(self)
    }
}

/// Reset and finish a zone only while no write to it is pending.
impl ZonedDevice for ZoneOrder {
    fn limits(&self) -> ZoneLimits {
        self.lanes.zoned().limits()
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        self.lanes.zoned().report(offset, most)
    }

    fn reset(&self, start: u64) -> Result<()> {
        self.lanes.zoned().reset(start)?;
        self.lanes.renew(start)
    }

    fn finish(&self, start: u64) -> Result<()> {
        self.lanes.zoned().finish(start)?;
        self.lanes.renew(start)
    }
}

#[cfg(test)]
mod tests;
