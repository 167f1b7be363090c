//! [`ErrorSequence`]: each open handle gets a write-back error once, as with Linux's `errseq_t`.

use std::collections::HashMap;

use cairn_base::ranked_lock::{Mutex, Rank};

use crate::file::CacheError;

/// The write-back errors of one file, and which handles have got them.
///
/// A handle is a number of the caller's choice. Callers without a handle share the number 0, which
/// is always open.
pub struct ErrorSequence {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of errors so far.
    count: u64,
    /// A handle has got the latest error.
    reported: bool,
    latest: Option<CacheError>,
    /// For each open handle, `count` at its last check.
    open: HashMap<u64, u64>,
    /// The same for callers without a handle.
    without_handle: u64,
}

impl ErrorSequence {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(Rank::Leaf, State::default()) }
    }

    /// Records an error for every open handle.
    pub(crate) fn record(&self, error: CacheError) {
        let mut state = self.state.lock();
        state.count += 1;
        state.reported = false;
        state.latest = Some(error);
    }

    /// Opens a handle. It gets later errors, and the latest error if no handle has got that.
    pub fn open(&self, handle: u64) {
        let mut state = self.state.lock();
        let unheard = state.latest.is_some() && !state.reported;
        let heard = state.count - u64::from(unheard);
        state.open.insert(handle, heard);
    }

    /// Closes a handle.
    pub fn close(&self, handle: u64) {
        self.state.lock().open.remove(&handle);
    }

    /// True if a handle is open, if nobody has got the latest error, or if the lock is taken and
    /// the answer is unknown.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        let needed = |state: &State| !state.open.is_empty() || (state.count > 0 && !state.reported);
        self.state.try_lock().is_none_or(|state| needed(&state))
    }

    /// Returns the latest error if the handle has not got it, and marks it as reported to the
    /// handle. `None` for a handle that is not open.
    #[must_use]
    pub fn check_and_advance(&self, handle: u64) -> Option<CacheError> {
        let state = &mut *self.state.lock();
        let heard =
            if handle == 0 { &mut state.without_handle } else { state.open.get_mut(&handle)? };
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
        assert!(!errors.is_needed());
        errors.open(1);
        errors.open(2);
        assert!(errors.is_needed() && errors.check_and_advance(1).is_none());
        errors.record(MapError::NoSpace.into());
        errors.open(3);
        assert!(errors.check_and_advance(1).is_some() && errors.check_and_advance(1).is_none());
        assert!(errors.check_and_advance(2).is_some() && errors.check_and_advance(3).is_some());
        errors.open(4);
        assert!(errors.check_and_advance(4).is_none(), "others have heard of it");
        (1..=4).for_each(|handle| errors.close(handle));
        assert!(!errors.is_needed() && errors.check_and_advance(1).is_none());
    }

    #[test]
    fn those_without_a_handle_hear_of_an_error_once() {
        let errors = ErrorSequence::new();
        assert!(errors.check_and_advance(0).is_none());
        errors.record(MapError::NoSpace.into());
        errors.record(MapError::NoSpace.into());
        assert!(errors.is_needed());
        assert!(errors.check_and_advance(0).is_some() && errors.check_and_advance(0).is_none());
        assert!(!errors.is_needed());
    }
}
