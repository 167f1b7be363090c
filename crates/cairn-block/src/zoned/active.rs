//! [`ActiveZones`]: keeps the number of active zones within the device's limit.
//!
//! A zone is active from its first write until it is full, finished or reset. Logs leave a zone
//! when they have allocated its last place. The write to that place may still be in flight when the
//! first write to the next zone comes. If the device has no room for both, the later one waits.
//!
//! Locking: one leaf lock.

use std::collections::BTreeSet;

use cairn_base::ranked_lock::{Mutex, Rank};

/// The active zones of a device. Zones are identified by an index.
pub(super) struct ActiveZones {
    /// 0: any number.
    limit: u32,
    state: Mutex<State>,
}

struct State {
    active: u32,
    waiting: BTreeSet<usize>,
}

impl ActiveZones {
    /// At most `limit` zones (0: any number), `active` of them already.
    pub(super) fn new(limit: u32, active: u32) -> Self {
        Self { limit, state: Mutex::new(Rank::Leaf, State { active, waiting: BTreeSet::new() }) }
    }

    /// Makes one more zone active. If there is no room for it, a later [`ActiveZones::end`] names
    /// it.
    pub(super) fn begin(&self, zone: usize) -> bool {
        let mut state = self.state.lock();
        let room = self.limit == 0 || state.active < self.limit;
        if room {
            state.active += 1;
        } else {
            state.waiting.insert(zone);
        }
        room
    }

    /// Ends the activity of a zone. Returns the waiting zones, each of which must try again.
    #[must_use = "zones wait for their turn"]
    pub(super) fn end(&self) -> BTreeSet<usize> {
        let mut state = self.state.lock();
        state.active -= 1;
        std::mem::take(&mut state.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_zone_is_named_when_there_is_room() {
        let zones = ActiveZones::new(2, 1);
        assert_eq!([3, 4, 5, 4].map(|zone| zones.begin(zone)), [true, false, false, false]);
        assert_eq!(zones.end(), [4, 5].into());
        assert!(zones.begin(5) && !zones.begin(4));
        assert_eq!(zones.end(), [4].into());
        assert!(zones.end().is_empty());
        let any = ActiveZones::new(0, 7);
        assert!((0..100).all(|zone| any.begin(zone)));
    }
}
