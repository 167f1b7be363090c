//! [`Room`]: free clusters for what a repair makes and copies. It remembers where searches have
//! ended, so that the copies of a file in many pieces do not look at the same clusters once for
//! each piece.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cairn_check::BlockSet;

/// Where searches go on. Nothing gets free while a round mends.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Before the place there are not so many free clusters side by side. Both grow together.
    searched: RefCell<BTreeMap<u64, u64>>,
}

impl Room {
    /// Takes clusters side by side, from the start of the volume on. `None` if there are none.
    pub(super) fn take(
        &self,
        claimed: &BlockSet,
        (first, end): (u64, u64),
        clusters: u64,
    ) -> Option<u64> {
        let known = self.searched.borrow().range(..=clusters).next_back().map(|(_, at)| *at);
        let found = take_in(claimed, (first.max(known.unwrap_or(0)), end), clusters);
        let reached = found.unwrap_or(end);
        let mut searched = self.searched.borrow_mut();
        searched.retain(|other, at| *other < clusters || *at > reached);
        searched.insert(clusters, reached);
        found
    }
}

/// Takes clusters side by side between two places. `None` if there are none.
pub(super) fn take_in(claimed: &BlockSet, (first, end): (u64, u64), clusters: u64) -> Option<u64> {
    let mut at = first;
    loop {
        let behind = at.saturating_add(clusters);
        if behind > end {
            return None;
        }
        let used = claimed.bits_at(at).trailing_ones();
        if used > 0 {
            at = at.saturating_add(used.into());
            continue;
        }
        match claimed.next(at) {
            Some(next) if next < behind => at = next,
            _ => {
                claimed.insert_range(at, clusters, &mut |_, _| ());
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set with gaps of 1, 2, ... clusters, each behind two clusters in use.
    fn with_gaps(most: u64) -> (BlockSet, u64) {
        let set = BlockSet::new(1 << 16).unwrap();
        let mut at = 0;
        for gap in 1..=most {
            set.insert_range(at, 2, &mut |_, _| ());
            at += 2 + gap;
        }
        (set, at)
    }

    #[test]
    fn a_room_finds_what_a_search_from_the_start_finds() {
        for sizes in [&[1, 1, 1, 1, 1][..], &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], &[20, 1, 2, 19]]
        {
            let ((one, end), (other, _)) = (with_gaps(12), with_gaps(12));
            let room = Room::default();
            for size in sizes.iter().cycle().take(100) {
                let found = room.take(&one, (0, end), *size);
                assert_eq!(found, take_in(&other, (0, end), *size), "{size} of {sizes:?}");
            }
            assert_eq!(one.count(), other.count());
        }
    }

    #[test]
    fn a_search_goes_on_where_the_last_one_ended() {
        let (set, end) = with_gaps(8);
        let room = Room::default();
        let mut last = 0;
        while let Some(at) = room.take(&set, (0, end), 2) {
            assert!(at >= last && room.searched.borrow().get(&2) == Some(&at));
            last = at;
        }
        // A smaller one lies before; a larger one does not, and is not looked for there.
        assert_eq!(*room.searched.borrow(), BTreeMap::from([(2, end)]));
        assert!(room.take(&set, (0, end), 1).is_some_and(|at| at < last));
        assert_eq!(room.take(&set, (0, end), 3), None);
    }

    #[test]
    fn what_is_taken_lies_between_the_places() {
        let (set, end) = with_gaps(3);
        assert_eq!(take_in(&set, (3, end), 1), Some(5));
        assert_eq!(take_in(&set, (0, 7), 2), None);
        assert_eq!(take_in(&set, (0, end), 4), None);
        assert_eq!(take_in(&set, (0, end), 3), Some(end - 3));
    }
}
