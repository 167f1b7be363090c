//! Data that the kernel was allowed to take and may still hold, by file.

use std::collections::HashMap;
use std::ops::Range;

/// Bytes of one file.
struct Place {
    range: Range<u64>,
    /// True if all writers of these bytes may use root-reserved blocks.
    admitted: bool,
}

/// Granted data, by file.
#[derive(Default)]
pub(super) struct Promises {
    places: HashMap<u64, Place>,
    /// True if some of the data may be in any file.
    pub(super) anywhere: bool,
}

/// What is known of data that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promised {
    /// No write(2) has returned for it.
    Not,
    /// A user who may not use root-reserved blocks may have written it.
    ToOthers,
    /// Only users who may use root-reserved blocks have written it.
    ToAdmitted,
}

impl Promises {
    pub(super) fn add(&mut self, node: u64, range: &Range<u64>, admitted: bool) {
        let place =
            self.places.entry(node).or_insert_with(|| Place { range: range.clone(), admitted });
        place.range = place.range.start.min(range.start)..place.range.end.max(range.end);
        place.admitted &= admitted;
    }

    /// What is known of these bytes. `unasked`: data that the kernel took without a question, in
    /// any file, may still arrive.
    pub(super) fn of(&self, node: u64, range: &Range<u64>, unasked: bool) -> Promised {
        let overlaps =
            |place: &&Place| place.range.start < range.end && range.start < place.range.end;
        match self.places.get(&node).filter(overlaps) {
            Some(place) if place.admitted => Promised::ToAdmitted,
            Some(_) => Promised::ToOthers,
            None if self.anywhere && unasked => Promised::ToOthers,
            None => Promised::Not,
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
    fn a_promise_is_of_a_file_and_a_range() {
        let mut promises = Promises::default();
        promises.add(1, &(4096..8192), true);
        assert_eq!(promises.of(1, &(0..4096), true), Promised::Not);
        assert_eq!(promises.of(1, &(0..4097), true), Promised::ToAdmitted);
        assert_eq!(promises.of(2, &(4096..8192), true), Promised::Not);
        promises.add(1, &(0..10), false);
        assert_eq!(promises.of(1, &(8000..9000), true), Promised::ToOthers);
        promises.anywhere = true;
        assert_eq!(promises.of(2, &(0..1), true), Promised::ToOthers);
        assert_eq!(promises.of(2, &(0..1), false), Promised::Not);
        assert_eq!(promises.places().collect::<Vec<_>>(), [(1, 0..8192)]);
    }
}
