//! Who is likely to request a checkpoint soon: calls under way that change names, and fsyncs, from
//! their start to the answer.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Calls under way, and calls that have begun so far.
#[derive(Debug, Default)]
pub(super) struct Coming {
    under_way: AtomicUsize,
    begun: AtomicU64,
}

/// What [`Coming`] tells at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Calls under way whose requests have not arrived.
    pub(super) under_way: usize,
    /// Calls that have begun so far.
    pub(super) begun: u64,
}

/// A call under way, until this is dropped.
#[must_use = "the call counts until this is dropped"]
pub(crate) struct Announced<'c>(&'c Coming);

impl Coming {
    /// A call begins.
    pub(super) fn announce(&self) -> Announced<'_> {
        self.under_way.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        Announced(self)
    }

    /// The signs, when `waiting` requests have arrived.
    pub(super) fn signs(&self, waiting: usize) -> Signs {
        let under_way = self.under_way.load(Relaxed).saturating_sub(waiting);
        Signs { under_way, begun: self.begun.load(Relaxed) }
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_on_its_way_until_it_waits_or_ends() {
        let coming = Coming::default();
        let (first, second) = (coming.announce(), coming.announce());
        let signs = |under_way, begun| Signs { under_way, begun };
        assert_eq!((coming.signs(0), coming.signs(1)), (signs(2, 2), signs(1, 2)));
        drop(first);
        assert_eq!((coming.signs(1), coming.signs(5)), (signs(0, 2), signs(0, 2)));
        drop(second);
        assert_eq!(coming.signs(0), signs(0, 2));
    }
}
