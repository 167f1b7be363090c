//! Data that the kernel was allowed to take and may still hold, by file.

use std::collections::HashMap;
use std::ops::Range;

/// Bytes of one file.
struct Place {
    range: Range<u64>,
    /// True if all writers of these bytes may use root-reserved blocks.
    reserved: bool,
}

/// Granted data, by file.
#[derive(Default)]
pub(super) struct Grants {
    places: HashMap<u64, Place>,
    /// True if some of the data may be in any file.
    pub(super) anywhere: bool,
}

/// What is known of data that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Granted {
    /// No write(2) has returned for it.
    No,
    /// A user who may not use root-reserved blocks may have written it.
    WithoutReserved,
    /// Only users who may use root-reserved blocks have written it.
    WithReserved,
}

impl Grants {
    pub(super) fn add(&mut self, node: u64, range: &Range<u64>, reserved: bool) {
        let place =
            self.places.entry(node).or_insert_with(|| Place { range: range.clone(), reserved });
        place.range = place.range.start.min(range.start)..place.range.end.max(range.end);
        place.reserved &= reserved;
    }

    /// What is known of these bytes. `unasked`: data that the kernel took without a question, in
    /// any file, may still arrive.
    pub(super) fn of(&self, node: u64, range: &Range<u64>, unasked: bool) -> Granted {
        let overlaps =
            |place: &&Place| place.range.start < range.end && range.start < place.range.end;
        match self.places.get(&node).filter(overlaps) {
            Some(place) if place.reserved => Granted::WithReserved,
            Some(_) => Granted::WithoutReserved,
            None if self.anywhere && unasked => Granted::WithoutReserved,
            None => Granted::No,
        }
    }

    /// Each file and its range.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, Range<u64>)> {
        self.places.iter().map(|(node, place)| (*node, place.range.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_covers_a_range_of_one_file() {
        let mut grants = Grants::default();
        grants.add(1, &(4096..8192), true);
        assert_eq!(grants.of(1, &(0..4096), true), Granted::No);
        assert_eq!(grants.of(1, &(0..4097), true), Granted::WithReserved);
        assert_eq!(grants.of(2, &(4096..8192), true), Granted::No);
        grants.add(1, &(0..10), false);
        assert_eq!(grants.of(1, &(8000..9000), true), Granted::WithoutReserved);
        grants.anywhere = true;
        assert_eq!(grants.of(2, &(0..1), true), Granted::WithoutReserved);
        assert_eq!(grants.of(2, &(0..1), false), Granted::No);
        assert_eq!(grants.places().collect::<Vec<_>>(), [(1, 0..8192)]);
    }
}
