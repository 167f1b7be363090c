//! [`ErrorSequence`]: every open handle hears of a write-back error once.

use std::collections::HashMap;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::file::CacheError;

/// The write-back errors of one file, and who has heard of them.
///
/// Handles are numbers that mean something to the caller. All who have none share the number 0, which is always open.
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
    /// How many of the errors each open handle has heard of.
    open: HashMap<u64, u64>,
    /// The same of those who have no handle.
    without_handle: u64,
}

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

    /// A handle hears of errors from now on, and of the latest one if nobody has heard of that yet.
    pub fn open(&self, handle: u64) {
        let mut state = self.state.lock();
        let unheard = state.latest.is_some() && !state.reported;
        let heard = state.count - u64::from(unheard);
        state.open.insert(handle, heard);
    }

    /// A handle is no more.
    pub fn close(&self, handle: u64) {
        self.state.lock().open.remove(&handle);
    }

    /// Is any handle open? True if that cannot be told at once.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.try_lock().is_none_or(|state| !state.open.is_empty())
    }

    /// The latest error that a handle has not heard of yet: it does now. None for a handle that is not open.
    #[must_use]
    pub fn check_and_advance(&self, handle: u64) -> Option<CacheError> {
        let state = &mut *self.state.lock();
        let heard = if handle == 0 { &mut state.without_handle } else { state.open.get_mut(&handle)? };
        if std::mem::replace(heard, state.count) == state.count {
            return None;
        }
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
        assert!(!errors.is_open());
        errors.open(1);
        errors.open(2);
        assert!(errors.is_open() && errors.check_and_advance(1).is_none());
        errors.record(MapError::NoSpace.into());
        errors.open(3);
        assert!(errors.check_and_advance(1).is_some() && errors.check_and_advance(1).is_none());
        assert!(errors.check_and_advance(2).is_some() && errors.check_and_advance(3).is_some());
        errors.open(4);
        assert!(errors.check_and_advance(4).is_none(), "others have heard of it");
        (1..=4).for_each(|handle| errors.close(handle));
        assert!(!errors.is_open() && errors.check_and_advance(1).is_none());
    }

    #[test]
    fn those_without_a_handle_hear_of_an_error_once() {
        let errors = ErrorSequence::new();
        assert!(errors.check_and_advance(0).is_none());
        errors.record(MapError::NoSpace.into());
        errors.record(MapError::NoSpace.into());
        assert!(errors.check_and_advance(0).is_some() && errors.check_and_advance(0).is_none());
        assert!(!errors.is_open());
    }
}
