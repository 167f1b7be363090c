//! Alignment of large requests to the stripes of a RAID.
//!
//! A stripe is one chunk of each data disk. A write of whole stripes reads no old data for the
//! parity. A request that is as long as a stripe begins at a stripe. A shorter request that is as
//! long as a chunk begins at a chunk. Blocks that continue a file follow its last block. If no free
//! run begins at a stripe, the request is not aligned.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::format::layout::Layout;

/// The alignment in force: none, until [`Stripes::set`]. It may change while the volume is mounted.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    /// Blocks; 0 for none.
    stripe: AtomicU32,
    chunk: AtomicU32,
}

impl Stripes {
    /// Uses `stripe=BLOCKS`, or the superblock's geometry without it. As in Linux, a stripe longer
    /// than a group is ignored.
    pub(super) fn set(&self, option: Option<u32>, layout: &Layout) {
        let fits = |blocks: u32| (1..=layout.blocks_per_group).contains(&blocks);
        let (stripe, chunk) = match option.filter(|blocks| fits(*blocks)) {
            Some(stripe) => (stripe, 0),
            None => (layout.stripe_width, layout.stride),
        };
        self.stripe.store(if fits(stripe) { stripe } else { 0 }, Ordering::Relaxed);
        self.chunk.store(if fits(chunk) { chunk } else { 0 }, Ordering::Relaxed);
    }

    /// A request for `want` blocks begins at a multiple of this number.
    pub(super) fn unit_for(&self, want: u32) -> u32 {
        let units = [&self.stripe, &self.chunk].map(|blocks| blocks.load(Ordering::Relaxed));
        units.into_iter().find(|unit| *unit > 1 && *unit <= want).unwrap_or(1)
    }
}

/// The blocks of a group at which a request may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    unit: u32,
    /// The group's first block, modulo the unit.
    phase: u32,
}

impl Alignment {
    /// Multiples of `unit` blocks from the start of the volume, in a group that begins at `first`.
    #[must_use]
    pub(crate) fn new(unit: u32, first: u64) -> Self {
        let unit = unit.max(1);
        // Less than the unit.
        Self { unit, phase: (first % u64::from(unit)) as u32 }
    }

    /// The first aligned block at or behind `bit`; `None` if it has no number.
    #[must_use]
    pub(crate) fn next(self, bit: u32) -> Option<u32> {
        let ahead = (u64::from(self.phase) + u64::from(bit)) % u64::from(self.unit);
        // At most the unit.
        let rest = if ahead == 0 { 0 } else { (u64::from(self.unit) - ahead) as u32 };
        bit.checked_add(rest)
    }

    /// The aligned part of a free run, at most `want` blocks. If it is shorter than that, its end
    /// is aligned, too.
    #[must_use]
    pub(crate) fn within(self, (start, len): (u32, u32), want: u32) -> Option<(u32, u32)> {
        let begin = self.next(start)?;
        let left = len.checked_sub(begin - start)?;
        let taken = if left >= want { want } else { left - left % self.unit };
        (taken > 0).then_some((begin, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_on_multiples_counted_from_the_volume_s_start() {
        let aligned = Alignment::new(16, 8193);
        assert_eq!(
            (aligned.next(0), aligned.next(15), aligned.next(16)),
            (Some(15), Some(15), Some(31))
        );
        assert_eq!(Alignment::new(16, 2).next(u32::MAX), None);
        assert_eq!(aligned.within((10, 30), 16), Some((15, 16)));
        assert_eq!(aligned.within((10, 50), 100), Some((15, 32)));
        assert_eq!(aligned.within((16, 20), 16), None);
        assert_eq!(aligned.within((16, 3), 16), None);
        assert_eq!(Alignment::new(1, 7).within((7, 3), 5), Some((7, 3)));
    }
}
