//! Who is likely to request a checkpoint soon: calls under way that change names, and fsyncs, from
//! their start to the answer.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Calls under way.
#[derive(Debug, Default)]
pub(super) struct Coming(AtomicUsize);

/// A call under way, until this is dropped.
#[must_use = "the call counts until this is dropped"]
pub(crate) struct Announced<'c>(&'c Coming);

impl Coming {
    /// A call begins.
    pub(super) fn announce(&self) -> Announced<'_> {
        self.0.fetch_add(1, Relaxed);
        Announced(self)
    }

    /// Calls under way without the `waiting` ones, whose requests have arrived.
    pub(super) fn on_their_way(&self, waiting: usize) -> usize {
        self.0.load(Relaxed).saturating_sub(waiting)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_on_its_way_until_it_waits_or_ends() {
        let coming = Coming::default();
        let (first, second) = (coming.announce(), coming.announce());
        assert_eq!((coming.on_their_way(0), coming.on_their_way(1)), (2, 1));
        drop(first);
        assert_eq!((coming.on_their_way(1), coming.on_their_way(5)), (0, 0));
        drop(second);
        assert_eq!(coming.on_their_way(0), 0);
    }
}
