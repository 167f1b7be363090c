//! [`Map`]: which sector of the disk lies in which data object.
//!
//! It counts the live sectors of each object, and knows the regions that changed since the last
//! checkpoint.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use cairn_base::units::{as_index, stored};

use crate::extents::{Extents, Piece};
use crate::format::data::Entry;
use crate::format::map::{MapExtent, MapPart, REGION};
use crate::format::{ObjectId, SECTOR};

/// Most extents of a map object: 12 MiB.
const MOST_EXTENTS: usize = 1 << 19;

/// A place in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Located {
    object: u32,
    offset: u64,
}

impl Piece for Located {
    fn skip(&mut self, sectors: u64) {
        self.offset += sectors * SECTOR;
    }

    fn follows(&self, before: &Self, sectors: u64) -> bool {
        self.object == before.object && self.offset == before.offset + sectors * SECTOR
    }
}

/// A data object that some sector lies in.
#[derive(Clone, Copy, Debug)]
struct Used {
    id: ObjectId,
    length: u64,
    live: u64,
}

/// Sectors that lie in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Sectors of the disk.
    pub(crate) sectors: Range<u64>,
    /// The object.
    pub(crate) id: ObjectId,
    /// Its bytes.
    pub(crate) length: u64,
    /// Where the first sector is in it.
    pub(crate) offset: u64,
}

/// The regions of a range that is not empty.
const fn regions(range: &Range<u64>) -> RangeInclusive<u64> {
    range.start / REGION..=(range.end - 1) / REGION
}

/// The map of a disk.
#[derive(Debug, Default)]
pub(crate) struct Map {
    extents: Extents<Located>,
    objects: Vec<Used>,
    /// Free places in `objects`.
    free: Vec<u32>,
    numbers: HashMap<ObjectId, u32>,
    dirty: BTreeSet<u64>,
    /// Objects that have lost their last live sector.
    died: u64,
}

impl Map {
    /// The place of an object in `objects`.
    fn number(&mut self, id: ObjectId, length: u64) -> u32 {
        if let Some(number) = self.numbers.get(&id) {
            return *number;
        }
        let used = Used { id, length, live: 0 };
        let number = if let Some(number) = self.free.pop() {
            self.objects[as_index(number)] = used;
            number
        } else {
            self.objects.push(used);
            stored(self.objects.len() - 1)
        };
        self.numbers.insert(id, number);
        number
    }

    /// Sectors now read as zeros.
    fn clear(&mut self, range: Range<u64>) {
        let Self { extents, objects, free, numbers, died, dirty, .. } = self;
        extents.clear(range, |part, located| {
            dirty.extend(regions(&part));
            let used = &mut objects[as_index(located.object)];
            used.live -= part.end - part.start;
            if used.live == 0 {
                *died += 1;
                numbers.remove(&used.id);
                free.push(located.object);
            }
        });
    }

    fn put(&mut self, range: Range<u64>, id: ObjectId, length: u64, offset: u64) {
        self.clear(range.clone());
        self.dirty.extend(regions(&range));
        let object = self.number(id, length);
        self.objects[as_index(object)].live += range.end - range.start;
        self.extents.insert(range, Located { object, offset });
    }

    /// Takes in the index of the next data object of the log. What lies beyond `sectors` is left
    /// out.
    pub(crate) fn apply(&mut self, id: ObjectId, length: u64, entries: &[Entry], sectors: u64) {
        for entry in entries {
            let range = entry.start..entry.end().min(sectors);
            match entry.offset {
                Some(offset) if !range.is_empty() => self.put(range, id, length, offset),
                _ => self.clear(range),
            }
        }
    }

    /// Takes in the valid regions of a map object. They are as clean as the object.
    pub(crate) fn load(&mut self, part: &MapPart, regions: &BTreeSet<u64>) {
        for extent in &part.extents {
            if regions.contains(&(extent.start / REGION)) {
                let (id, length) = part.objects[as_index(extent.object)];
                let range = extent.start..extent.start + u64::from(extent.count);
                self.put(range, id, length, extent.offset);
            }
        }
        self.dirty.clear();
        self.died = 0;
    }

    /// Where the sectors of a range are. What is left out reads as zeros.
    pub(crate) fn lookup(&self, range: Range<u64>) -> impl Iterator<Item = Place> + '_ {
        self.extents.within(range).map(|(sectors, Located { object, offset })| {
            let Used { id, length, .. } = self.objects[as_index(object)];
            Place { sectors, id, length, offset }
        })
    }

    /// The regions that changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.dirty)
    }

    /// Regions that a failed checkpoint did not write.
    pub(crate) fn put_back(&mut self, regions: &BTreeSet<u64>) {
        self.dirty.extend(regions);
    }

    /// All regions with something in them.
    pub(crate) fn regions(&self) -> BTreeSet<u64> {
        let mut regions = BTreeSet::new();
        for (range, _) in self.extents.iter() {
            regions.extend(self::regions(&range));
        }
        regions
    }

    /// The map objects of these regions, each with its own.
    pub(crate) fn encode(&self, regions: &BTreeSet<u64>) -> Vec<(MapPart, BTreeSet<u64>)> {
        let mut parts = Vec::new();
        let mut part = (MapPart::default(), BTreeSet::new());
        let mut numbers = HashMap::new();
        for region in regions {
            for (range, located) in self.extents.within(region * REGION..(region + 1) * REGION) {
                let used = self.objects[as_index(located.object)];
                let object = *numbers.entry(located.object).or_insert_with(|| {
                    part.0.objects.push((used.id, used.length));
                    stored(part.0.objects.len() - 1)
                });
                let count = stored(range.end - range.start);
                let offset = located.offset;
                part.0.extents.push(MapExtent { start: range.start, count, object, offset });
                part.1.insert(*region);
            }
            if part.0.extents.len() >= MOST_EXTENTS {
                parts.push(std::mem::take(&mut part));
                numbers.clear();
            }
        }
        if !part.1.is_empty() {
            parts.push(part);
        }
        parts
    }

    /// The objects that sectors lie in: bytes, and live bytes.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (ObjectId, u64, u64)> + '_ {
        let used = self.numbers.values().map(|number| self.objects[as_index(*number)]);
        used.map(|Used { id, length, live }| (id, length, live * SECTOR))
    }

    /// What lies in these objects.
    pub(crate) fn within(&self, objects: &HashSet<ObjectId>) -> Vec<Place> {
        self.lookup(0..u64::MAX).filter(|place| objects.contains(&place.id)).collect()
    }

    /// Number of extents.
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// How many objects have lost their last live sector since the last call.
    pub(crate) fn take_died(&mut self) -> u64 {
        std::mem::take(&mut self.died)
    }

    /// How many have since then.
    pub(crate) const fn died(&self) -> u64 {
        self.died
    }
}
