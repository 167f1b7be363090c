//! Writing: into memory, and into the store when enough waits.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::memory;
use cairn_block::{Request, Result};

use super::core::Core;
use super::state::{Fresh, State, Status};
use crate::format::SECTOR;

/// Objects on their way. A writer waits while there are so many.
const MOST_FLIGHTS: usize = 4;
/// Ranges after which an object is written, however little data they have.
const MOST_RANGES: usize = 1 << 16;

impl State {
    /// What is open is worth an object of its own.
    fn has_object(&self, object_size: u64) -> bool {
        self.open_bytes >= object_size || self.open.len() >= MOST_RANGES
    }

    /// More can be written. While a flush waits for what is on its way, what is open can grow by
    /// one object.
    fn has_room(&self, object_size: u64) -> bool {
        self.flights.len() < MOST_FLIGHTS && !(self.draining && self.has_object(object_size))
    }
}

impl Core {
    /// Takes in a write, a discard or zeros.
    pub(super) fn change(self: &Arc<Self>, request: &Request) -> Result<()> {
        match request {
            Request::Read { .. } => Ok(()),
            Request::Write { offset, bufs } => self.write(*offset, bufs),
            Request::Discard { offset, len } | Request::WriteZeroes { offset, len } => {
                self.put(*offset / SECTOR, *len / SECTOR, Fresh::Hole)
            }
        }
    }

    /// Copies the data: its owner may need the memory.
    fn write(self: &Arc<Self>, offset: u64, bufs: &[Bytes]) -> Result<()> {
        let mut at = offset;
        let mut left: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let mut source = bufs.iter().flat_map(|buf| buf.chunks(SECTOR as usize));
        let aligned = bufs.iter().all(|buf| (buf.len() as u64).is_multiple_of(SECTOR));
        let joined = if aligned { Vec::new() } else { bufs.concat() };
        let mut pieces = joined.chunks(SECTOR as usize);
        while left > 0 {
            let len = left.min(self.object_size / SECTOR * SECTOR);
            let mut copy = memory::list("an object's data", len as usize)?;
            while (copy.len() as u64) < len {
                let piece = if aligned { source.next() } else { pieces.next() };
                copy.extend_from_slice(piece.unwrap_or_default());
            }
            self.put(at / SECTOR, len / SECTOR, Fresh::Data(copy.into()))?;
            (at, left) = (at + len, left - len);
        }
        Ok(())
    }

    fn put(self: &Arc<Self>, start: u64, sectors: u64, fresh: Fresh) -> Result<()> {
        if sectors == 0 {
            return Ok(());
        }
        self.make_room()?;
        let mut state = self.state.lock();
        state.check()?;
        state.write(start, sectors, fresh);
        state.written += 1;
        if state.has_object(self.object_size) && !state.draining {
            let sealed = state.seal(self.nonce);
            drop(state);
            if let Some(sealed) = sealed {
                let core = self.clone();
                let upload = move || {
                    // A failure is seen by whoever needs the object: a writer or a flush.
                    let _ = core.upload(sealed.id.sequence);
                };
                self.runtime().defer(Box::new(upload));
            }
        }
        Ok(())
    }

    /// Waits until another object may be made.
    fn make_room(&self) -> Result<()> {
        loop {
            let oldest = {
                let state = self.state.lock();
                state.check()?;
                if state.has_room(self.object_size) {
                    return Ok(());
                }
                let oldest = state.flights.front();
                let oldest = oldest.filter(|oldest| oldest.status == Status::Waiting);
                oldest.map(|oldest| oldest.sealed.id.sequence)
            };
            match oldest {
                Some(sequence) => self.upload(sequence)?,
                None => self.wait(|state| {
                    let waits = |status| status == Status::Waiting;
                    let to_write = state.flights.front().is_some_and(|first| waits(first.status));
                    state.stopped.is_some() || state.has_room(self.object_size) || to_write
                }),
            }
        }
    }
}
