//! One zone of [`super::ZoneOrder`]: the writes that wait for their turn.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::device::Completer;
use crate::error::Error;
use crate::zoned::Zone;

/// Waiting writes are merged up to this many bytes.
const MERGED: u64 = 4 << 20;

/// The waiting writes of one zone.
pub(super) struct Lane {
    /// Where the next write goes.
    pub(super) next: u64,
    pub(super) busy: bool,
    /// True if the zone is reset before its next write.
    pub(super) stale: bool,
    /// True if the zone counts as active.
    pub(super) active: bool,
    pub(super) broken: Option<Error>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
}

pub(super) struct Waiting {
    pub(super) bufs: Vec<Bytes>,
    pub(super) len: u64,
    pub(super) fua: bool,
    pub(super) completer: Completer,
}

impl Lane {
    pub(super) fn new(zone: &Zone) -> Self {
        let (next, active) = (zone.write_pointer, zone.is_active());
        Self { next, busy: false, stale: false, active, broken: None, waiting: BTreeMap::new() }
    }

    /// Stops writes: all waiting writes fail.
    pub(super) fn break_off(&mut self, error: Error) -> Vec<(Waiting, Error)> {
        let waiting = std::mem::take(&mut self.waiting);
        self.broken = Some(error.clone());
        waiting.into_values().map(|waiting| (waiting, error.clone())).collect()
    }

    /// True if the next write makes the zone active.
    pub(super) fn begins(&self) -> bool {
        !self.active && !self.busy && self.broken.is_none() && self.waiting.contains_key(&self.next)
    }

    /// The writes whose turn it is, up to about [`MERGED`] bytes.
    pub(super) fn take_ready(&mut self) -> Option<(u64, Vec<Waiting>)> {
        if self.busy || self.broken.is_some() {
            return None;
        }
        let (start, mut at, mut ready) = (self.next, self.next, Vec::new());
        while at - start < MERGED
            && let Some(waiting) = self.waiting.remove(&at)
        {
            at += waiting.len;
            ready.push(waiting);
        }
        self.busy = !ready.is_empty();
        self.busy.then_some((start, ready))
    }
}
