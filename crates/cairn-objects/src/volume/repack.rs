//! Repacking: what lives in objects that are mostly dead is written into the log again. Then
//! nobody needs these objects.

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use cairn_base::memory;
use cairn_block::Result;

use super::core::Core;
use super::state::{Fresh, State};
use crate::format::{ObjectId, SECTOR};
use crate::gc;
use crate::map::Place;

/// An object is repacked if at most one part in so many lives.
const LIVE_PART: u64 = 4;
/// So many objects are worth the requests.
const FEWEST_VICTIMS: usize = 16;
/// Objects without a live sector after which they are removed.
const FEWEST_DEAD: u64 = 64;

/// A part of an object in memory.
struct Read {
    place: Place,
    bytes: Bytes,
}

impl State {
    /// Objects of this volume that are mostly dead, those with least in them first, as many as one
    /// new object takes.
    fn victims(&self, most_bytes: u64) -> HashSet<ObjectId> {
        let mut found: Vec<(u64, ObjectId)> = Vec::new();
        for (id, length, live) in self.map.objects() {
            if id.log == self.manifest.id && live.saturating_mul(LIVE_PART) <= length {
                found.push((live, id));
            }
        }
        found.sort_unstable();
        let mut bytes = 0;
        let fits = |(live, _): &(u64, ObjectId)| {
            bytes += *live;
            bytes <= most_bytes
        };
        found.into_iter().take_while(fits).map(|(_, id)| id).collect()
    }

    /// The parts of a range that nobody has written since it was looked up.
    fn unchanged(&self, place: &Place) -> Vec<Range<u64>> {
        let mut left = vec![place.sectors.clone()];
        let layers = self.flights.iter().map(|flight| &flight.sealed.extents);
        for layer in std::iter::once(&self.open).chain(layers) {
            left = left.into_iter().flat_map(|range| layer.gaps(range)).collect();
        }
        let same = |now: &Place| {
            let offset = place.offset + (now.sectors.start - place.sectors.start) * SECTOR;
            (now.id, now.offset) == (place.id, offset)
        };
        left.into_iter()
            .flat_map(|range| self.map.lookup(range).filter(same).map(|now| now.sectors))
            .collect()
    }
}

impl Core {
    /// Repacks some objects, or removes dead ones. False if there is not enough to do.
    pub(super) fn reclaim(&self) -> Result<bool> {
        let (victims, died) = {
            let state = self.state.lock();
            (state.victims(self.object_size), state.map.died())
        };
        if victims.len() >= FEWEST_VICTIMS {
            return Ok(self.repack(victims)? > 0);
        }
        if died >= FEWEST_DEAD {
            self.remove_dead()?;
        }
        Ok(false)
    }

    /// Repacks what one new object takes. How many objects that were.
    pub(super) fn repack_some(&self) -> Result<u64> {
        let victims = self.state.lock().victims(self.object_size);
        self.repack(victims)
    }

    /// Repacks these objects, as far as no other volume needs them.
    fn repack(&self, mut victims: HashSet<ObjectId>) -> Result<u64> {
        let shared = gc::needed_by_others(&self.requests, &self.volume)?;
        victims.retain(|id| !shared.needs(id));
        let places = self.state.lock().map.within(&victims);
        let mut reads = Vec::new();
        for place in places {
            let bytes = (place.sectors.end - place.sectors.start) * SECTOR;
            let mut data = memory::zeroed("an object's data", bytes as usize)?;
            self.cache.read(place.id, place.length, place.offset, &mut data)?;
            reads.push(Read { place, bytes: data.into() });
        }
        let mut moved = 0;
        {
            let mut state = self.state.lock();
            state.check()?;
            for Read { place, bytes } in reads {
                for range in state.unchanged(&place) {
                    let at = |sector: u64| ((sector - place.sectors.start) * SECTOR) as usize;
                    let bytes = bytes.slice(at(range.start)..at(range.end));
                    moved += bytes.len() as u64;
                    state.write(range.start, range.end - range.start, Fresh::Data(bytes));
                }
            }
            state.written += u64::from(moved > 0);
        }
        self.flush_to_store()?;
        self.counters.repacked_objects.add(victims.len() as u64);
        self.counters.repacked_bytes.add(moved);
        self.remove_dead()?;
        Ok(victims.len() as u64)
    }

    /// Removes what no manifest needs.
    fn remove_dead(&self) -> Result<()> {
        self.checkpoint(false)?;
        self.state.lock().map.take_died();
        let removed = gc::collect(&self.requests)?;
        self.counters.removed_objects.add(removed.objects);
        Ok(())
    }
}
