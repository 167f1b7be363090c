//! Reading: from what waits in memory, from objects on their way, and from the store.

use std::ops::Range;

use bytes::Bytes;
use cairn_block::{Error, ErrorKind, Operation, Result};

use super::core::Core;
use super::state::{Fresh, State};
use crate::format::SECTOR;
use crate::map::Place;
use crate::opening::has_changed;
use crate::store::{self, RESTORE};

/// How often an object may have been removed between the look at the map and the request.
const MOST_MOVES: u32 = 4;

/// Where a part of a request is.
enum Source {
    Memory(Range<u64>, Bytes),
    Store(Place),
}

impl State {
    /// Where the sectors of a range are. What is left out reads as zeros.
    fn sources(&self, range: Range<u64>) -> Vec<Source> {
        let mut found = Vec::new();
        let mut left = vec![range];
        let layers = self.flights.iter().rev().map(|flight| &flight.sealed.extents);
        for layer in std::iter::once(&self.open).chain(layers) {
            let mut below = Vec::new();
            for range in left {
                for (part, fresh) in layer.within(range.clone()) {
                    if let Fresh::Data(bytes) = fresh {
                        found.push(Source::Memory(part, bytes));
                    }
                }
                below.extend(layer.gaps(range));
            }
            left = below;
        }
        for range in left {
            found.extend(self.map.lookup(range).map(Source::Store));
        }
        found
    }
}

/// The part of a request's buffer that has these sectors.
fn part<'a>(buf: &'a mut [u8], first: u64, sectors: &Range<u64>) -> &'a mut [u8] {
    let at = |sector: u64| ((sector - first) * SECTOR) as usize;
    &mut buf[at(sectors.start)..at(sectors.end)]
}

impl Core {
    /// Fills `buf` from byte `offset`.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        let first = offset / SECTOR;
        let mut moves = 0;
        loop {
            match self.read_once(first, first + len / SECTOR, buf) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind == store::ErrorKind::Missing && moves < MOST_MOVES => {
                    moves += 1;
                }
                Err(error) => return Err(self.unreadable(error).at(offset, len)),
            }
        }
    }

    fn read_once(&self, first: u64, end: u64, buf: &mut [u8]) -> store::Result<()> {
        let sources = self.state.lock().sources(first..end);
        buf.fill(0);
        for source in sources {
            match source {
                Source::Memory(sectors, bytes) => {
                    let to = part(buf, first, &sectors);
                    to.copy_from_slice(&bytes[..to.len()]);
                }
                Source::Store(Place { sectors, id, length, offset }) => {
                    self.cache.read(id, length, offset, part(buf, first, &sectors))?;
                }
            }
        }
        Ok(())
    }

    /// What a failed read means: the manifest tells whether an object that is not there is lost, or
    /// a writer has removed it since the volume was opened.
    fn unreadable(&self, error: store::Error) -> Error {
        let mut error = Error { operation: Operation::Read, ..error.into() };
        if error.kind == ErrorKind::NotFound {
            error.kind = ErrorKind::Io;
            let tag = self.state.lock().tag.clone();
            let volume = &self.volume;
            let why = match has_changed(&self.requests, volume, &tag) {
                Ok(false) => format!("it is lost: {RESTORE}"),
                Ok(true) => format!(
                    "a writer has changed the volume {volume} since it was opened, and may have \
                     removed the object: open it again, or read from a snapshot"
                ),
                Err(why) => format!(
                    "it is lost, or a writer has removed it since the volume {volume} was opened, \
                     which the store does not tell ({}): open it again",
                    why.detail
                ),
            };
            error.detail = format!("{}: {why}", error.detail);
        }
        error
    }
}
