//! [`State`]: what is written and not yet in the store, and where the rest is.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use cairn_block::{Error, Result};

use crate::extents::{Extents, Piece};
use crate::format::data::{self, Entry, Maker};
use crate::format::manifest::Manifest;
use crate::format::{ObjectId, SECTOR};
use crate::map::Map;
use crate::store::Tag;

/// What was written to a range.
#[derive(Clone, Debug)]
pub(super) enum Fresh {
    /// These bytes, or more.
    Data(Bytes),
    /// Zeros.
    Hole,
}

impl Piece for Fresh {
    fn skip(&mut self, sectors: u64) {
        if let Self::Data(bytes) = self {
            *bytes = bytes.slice((sectors * SECTOR) as usize..);
        }
    }

    fn follows(&self, before: &Self, _: u64) -> bool {
        matches!((self, before), (Self::Hole, Self::Hole))
    }
}

/// A data object on its way.
pub(super) struct Sealed {
    pub(super) id: ObjectId,
    /// What it has, for readers.
    pub(super) extents: Extents<Fresh>,
    /// Its index.
    pub(super) entries: Vec<Entry>,
    /// Its bytes.
    pub(super) body: Vec<Bytes>,
    pub(super) length: u64,
    /// [`State::written`] when it was made: what a flush needs is in it or in those before.
    pub(super) covers: u64,
    /// It says that all objects before it were in the store when it was made.
    pub(super) vouches: bool,
}

/// Where a sealed object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Nobody writes it now.
    Waiting,
    /// A thread does.
    Busy,
    /// It is in the store; one before it may not be.
    Stored,
}

/// A sealed object and its status.
pub(super) struct Flight {
    pub(super) sealed: Arc<Sealed>,
    pub(super) status: Status,
    /// What it has and the local log has not.
    pub(super) unlogged: Extents<Fresh>,
}

/// A flush that failed.
pub(super) struct Failed {
    pub(super) attempt: u64,
    pub(super) covers: u64,
    pub(super) error: Error,
}

/// All that changes. In the order of age: `map`, `flights`, `open`.
pub(super) struct State {
    /// Written since the last object was sealed.
    pub(super) open: Extents<Fresh>,
    /// Bytes of data in it.
    pub(super) open_bytes: u64,
    /// What of it the local log has not.
    pub(super) unlogged: Extents<Fresh>,
    /// What older writes could not be logged, and how many writes it takes to make it old: it is
    /// in the store when these are.
    pub(super) returned: (Extents<Fresh>, u64),
    /// Flushes go to the local log.
    pub(super) logs: bool,
    /// Why a record could not be written, the last time.
    pub(super) log_error: Option<String>,
    /// Somebody writes to it.
    pub(super) logging: bool,
    /// Of the batches written, so many are in it, or in the store.
    pub(super) logged: u64,
    /// Records of it below this number are durable. 0: it is not begun.
    pub(super) recorded: u64,
    /// Sealed objects, in the order of their sequences. The first is not in the store.
    pub(super) flights: VecDeque<Flight>,
    /// What the store has without a gap.
    pub(super) map: Map,
    /// The sequence behind the last object in `map`.
    pub(super) applied: u64,
    /// The next object's sequence.
    pub(super) next: u64,
    /// Batches that changed something.
    pub(super) written: u64,
    /// Of these, so many are in the store.
    pub(super) durable: u64,
    /// Of these, so many are there with an object that vouches for those before it. If one of them
    /// is lost, the next opening misses it.
    pub(super) vouched: u64,
    /// A caller of flush writes.
    pub(super) flushing: bool,
    /// It waits until no object is on its way, before it makes its own. No other is made.
    pub(super) draining: bool,
    /// Counts them.
    pub(super) attempts: u64,
    pub(super) failed: Option<Failed>,
    /// Why nothing can be written any more.
    pub(super) stopped: Option<Error>,
    /// A checkpoint is being written.
    pub(super) checkpointing: bool,
    /// The manifest in the store.
    pub(super) manifest: Manifest,
    pub(super) tag: Tag,
    /// The generation of the next checkpoint. A failed one may have left its map objects.
    pub(super) generation: u64,
    /// `applied` at the last checkpoint.
    pub(super) checkpointed: u64,
}

/// Index and data of an object with these ranges. Its head takes the place of the first part.
pub(super) fn pack(open: &Extents<Fresh>) -> (Vec<(u64, u32, bool)>, Vec<Bytes>) {
    let mut extents: Vec<(u64, u32, bool)> = Vec::new();
    let mut body = vec![Bytes::new()];
    for (range, fresh) in open.iter() {
        let hole = matches!(fresh, Fresh::Hole);
        if let Fresh::Data(bytes) = fresh {
            body.push(bytes.slice(..((range.end - range.start) * SECTOR) as usize));
        }
        let mut start = range.start;
        while start < range.end {
            let left = range.end - start;
            let continued = extents.last_mut().filter(|(first, count, kind)| {
                *kind == hole && first + u64::from(*count) == start && *count < u32::MAX
            });
            match continued {
                Some((_, count, _)) => {
                    let more = u32::try_from(left).unwrap_or(u32::MAX).min(u32::MAX - *count);
                    *count += more;
                    start += u64::from(more);
                }
                None => extents.push((start, 0, hole)),
            }
        }
    }
    (extents, body)
}

impl State {
    /// The state after an opening.
    pub(super) fn new(map: Map, manifest: Manifest, tag: Tag) -> Self {
        Self {
            open: Extents::default(),
            open_bytes: 0,
            unlogged: Extents::default(),
            returned: (Extents::default(), 0),
            logs: false,
            log_error: None,
            logging: false,
            logged: 0,
            recorded: 0,
            flights: VecDeque::new(),
            map,
            applied: 0,
            next: 0,
            written: 0,
            durable: 0,
            vouched: 0,
            flushing: false,
            draining: false,
            attempts: 0,
            failed: None,
            stopped: None,
            checkpointing: false,
            generation: manifest.generation + 1,
            manifest,
            tag,
            checkpointed: 0,
        }
    }

    /// Takes in a range that was written.
    pub(super) fn write(&mut self, start: u64, sectors: u64, fresh: Fresh) {
        let range = start..start + sectors;
        let mut replaced = 0;
        self.open.clear(range.clone(), |part, fresh| {
            let sectors = part.end - part.start;
            replaced += if matches!(fresh, Fresh::Data(_)) { sectors * SECTOR } else { 0 };
        });
        if matches!(fresh, Fresh::Data(_)) {
            self.open_bytes += sectors * SECTOR;
        }
        self.open_bytes -= replaced;
        if self.logs {
            self.unlogged.clear(range.clone(), |_, _| {});
            self.unlogged.insert(range.clone(), fresh.clone());
        }
        self.open.insert(range, fresh);
    }

    /// Makes an object of what is open. None if that is nothing, and no object needs another that
    /// vouches for it.
    pub(super) fn seal(&mut self, nonce: u64) -> Option<Arc<Sealed>> {
        if self.open.is_empty() && self.vouched == self.durable {
            return None;
        }
        let (extents, mut body) = pack(&self.open);
        let Manifest { id: log, epoch, .. } = self.manifest;
        let id = ObjectId { log, epoch, sequence: self.next };
        let maker = Maker { nonce, stable: self.applied, recorded: self.recorded };
        let (head, entries) = data::encode(id, maker, &extents, &body);
        body[0] = head;
        let sealed = Arc::new(Sealed {
            id,
            extents: std::mem::take(&mut self.open),
            entries,
            length: crate::store::total(&body),
            body,
            covers: self.written,
            vouches: self.applied == self.next,
        });
        self.open_bytes = 0;
        self.next += 1;
        let unlogged = std::mem::take(&mut self.unlogged);
        let flight = Flight { sealed: sealed.clone(), status: Status::Waiting, unlogged };
        self.flights.push_back(flight);
        Some(sealed)
    }

    /// Where a sealed object is; none if it is in the map.
    pub(super) fn status(&mut self, sequence: u64) -> Option<&mut Status> {
        let at = sequence.checked_sub(self.applied)?;
        Some(&mut self.flights.get_mut(usize::try_from(at).ok()?)?.status)
    }

    /// Takes objects that are in the store without a gap into the map.
    pub(super) fn advance(&mut self) {
        let sectors = self.manifest.size / SECTOR;
        while self.flights.front().is_some_and(|flight| flight.status == Status::Stored) {
            let Some(Flight { sealed, .. }) = self.flights.pop_front() else { break };
            self.map.apply(sealed.id, sealed.length, &sealed.entries, sectors);
            self.applied = sealed.id.sequence + 1;
            self.durable = sealed.covers;
            if sealed.vouches {
                self.vouched = sealed.covers;
            }
        }
        if self.returned.1 <= self.durable {
            self.returned.0 = Extents::default();
        }
    }

    /// Fails if nothing can be written any more.
    pub(super) fn check(&self) -> Result<()> {
        self.stopped.clone().map_or(Ok(()), Err)
    }
}
