//! [`ErrorSequence`]: every open file hears of a write-back error once.

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::file::CacheError;

/// The write-back errors of one file.
pub struct ErrorSequence {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Errors so far.
    count: u64,
    /// The latest was reported to somebody.
    reported: bool,
    latest: Option<CacheError>,
}

/// Where an open file is in the sequence: errors up to here it has heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCursor(u64);

impl ErrorSequence {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(Rank::LEAF, State::default()) }
    }

    /// Adds an error that every open file shall hear of.
    pub fn record(&self, error: CacheError) {
        let mut state = self.state.lock();
        state.count += 1;
        state.reported = false;
        state.latest = Some(error);
    }

    /// Where a file that is opened now begins. It hears of an error that nobody has heard of yet.
    #[must_use]
    pub fn sample(&self) -> ErrorCursor {
        let state = self.state.lock();
        let unheard = state.latest.is_some() && !state.reported;
        ErrorCursor(state.count - u64::from(unheard))
    }

    /// The latest error since `cursor`, once.
    pub fn check(&self, cursor: &mut ErrorCursor) -> Option<CacheError> {
        let mut state = self.state.lock();
        if cursor.0 >= state.count {
            return None;
        }
        cursor.0 = state.count;
        state.reported = true;
        state.latest.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::MapError;

    #[test]
    fn each_handle_hears_of_an_error_once_and_unheard_ones_wait_for_the_next_open() {
        let errors = ErrorSequence::new();
        let (mut a, mut b) = (errors.sample(), errors.sample());
        assert!(errors.check(&mut a).is_none());
        errors.record(MapError::NoSpace.into());
        let mut late = errors.sample();
        assert!(errors.check(&mut a).is_some() && errors.check(&mut a).is_none());
        assert!(errors.check(&mut b).is_some() && errors.check(&mut late).is_some());
        assert!(errors.check(&mut errors.sample()).is_none());
    }
}
