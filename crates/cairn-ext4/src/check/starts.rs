//! Extents that begin at another file block than their neighbours and the size leave for them.
//!
//! One wrong bit of `ee_block` takes an extent far away: what follows it in the leaf seems to be
//! out of order, or, if it is the last one, the file seems to be as long as its blocks are not. The
//! place that is free between its neighbours says where it was, if only one place is possible.

use crate::format::extent::Extent;

/// Where an extent of a leaf begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Where it says, as far as can be told.
    Stored,
    /// At this file block.
    Moved(u64),
    /// Not where it says, and nothing says where.
    Unknown,
}

/// What is known of the rest of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The first block that the first extent may have.
    pub(super) from: u64,
    /// The first block of the next leaf.
    pub(super) behind: Option<u64>,
    /// Blocks of the size.
    pub(super) size: u64,
    /// Blocks of the volume.
    pub(super) volume: u64,
}

/// Where each extent of a leaf begins.
pub(super) fn of(extents: &[Extent], around: Around) -> impl Iterator<Item = Start> + use<'_> {
    let mut from = around.from;
    let mut rest = extents;
    std::iter::from_fn(move || {
        let (extent, behind) = rest.split_first()?;
        let start = match limit(extent, behind, from, around) {
            Some(limit) => placed(extent, from, limit),
            None => Start::Stored,
        };
        let end = match start {
            Start::Stored => extent.end(),
            Start::Moved(start) => start.saturating_add(extent.len),
            Start::Unknown => from,
        };
        from = from.max(end);
        rest = behind;
        Some(start)
    })
}

/// The block before which an extent must end that is not where it says. `None` if it may be there,
/// or if another one may be wrong as well.
fn limit(extent: &Extent, behind: &[Extent], from: u64, around: Around) -> Option<u64> {
    let is_too_long = extent.end() > around.size;
    match (behind, around.behind) {
        ([next, rest @ ..], _) => {
            let fits = next.start >= from && next.start < extent.end();
            let is_it = match rest.first() {
                Some(after) => after.start >= next.end() && after.start < extent.end(),
                None => is_too_long && next.end() <= around.size,
            };
            (fits && is_it).then_some(next.start)
        }
        ([], Some(next)) => {
            let fits = next >= from && next < extent.end() && next < around.size;
            (fits && is_too_long).then_some(next)
        }
        // Nothing is written behind the end, but which of the two is wrong? A file is rarely
        // longer than its volume.
        ([], None) => {
            let is_it = extent.start >= around.size && extent.end() > around.volume;
            (is_it && !extent.unwritten).then_some(around.size)
        }
    }
}

/// The only place for an extent: all that is free, or that with one bit changed.
fn placed(extent: &Extent, from: u64, limit: u64) -> Start {
    if from.saturating_add(extent.len) == limit {
        return Start::Moved(from);
    }
    let fits = |start: &u64| *start >= from && start.saturating_add(extent.len) <= limit;
    let mut places = (0..u32::BITS).map(|bit| extent.start ^ (1 << bit)).filter(fits);
    match (places.next(), places.next()) {
        (Some(start), None) => Start::Moved(start),
        _ => Start::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Pba;

    use super::*;

    const FAR: u64 = 1 << 31;

    fn starts(extents: &[(u64, u64)], behind: Option<u64>, size: u64) -> Vec<Start> {
        let extents = extents.iter().map(|(start, len)| Extent {
            start: *start,
            len: *len,
            pba: Pba(100),
            unwritten: false,
        });
        let extents: Vec<_> = extents.collect();
        of(&extents, Around { from: 0, behind, size, volume: 1000 }).collect()
    }

    #[test]
    fn an_extent_that_is_far_away_goes_where_there_is_room() {
        use Start::{Moved, Stored, Unknown};
        for (extents, behind, size, right) in [
            // All is in order; the last one lies behind the end, but not far.
            (&[(0, 4), (4, 4), (20, 1)][..], None, 21, &[Stored, Stored, Stored][..]),
            (&[(0, 4), (600, 4)], None, 8, &[Stored, Stored]),
            // The last one, which fills the rest, or has one place.
            (&[(0, 4), (FAR + 4, 4)], None, 8, &[Stored, Moved(4)]),
            (&[(0, 4), (FAR + 6, 4)], None, 30, &[Stored, Moved(6)]),
            (&[(FAR, 8)], None, 8, &[Moved(0)]),
            (&[(0, 4), (FAR + 40, 4)], None, 30, &[Stored, Unknown]),
            (&[(0, 8), (FAR + 8, 4)], None, 8, &[Stored, Unknown]),
            // One before others.
            (
                &[(0, 4), (FAR + 4, 4), (8, 4), (12, 4)],
                None,
                16,
                &[Stored, Moved(4), Stored, Stored],
            ),
            (&[(FAR, 4), (8, 4), (12, 4)], None, 16, &[Moved(0), Stored, Stored]),
            (&[(0, 4), (FAR + 4, 4), (8, 4)], None, 12, &[Stored, Moved(4), Stored]),
            (&[(0, 4), (14, 4), (8, 4), (12, 4)], None, 16, &[Stored, Moved(4), Stored, Stored]),
            // The one behind it begins too early.
            (&[(0, 4), (4, 4), (0, 4), (12, 4)], None, 16, &[Stored; 4]),
            (&[(0, 4), (4, 4), (1, 4)], None, 12, &[Stored; 3]),
            // The last one of a leaf.
            (&[(0, 4), (FAR + 4, 4)], Some(8), 12, &[Stored, Moved(4)]),
            (&[(0, 4), (4, 4)], Some(6), 12, &[Stored, Stored]),
        ] {
            assert_eq!(starts(extents, behind, size), right, "{extents:?}, {behind:?}, {size}");
        }
    }
}
