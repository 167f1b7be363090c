//! Which of two copies is meant.

/// One of the two checkpoint packs, or of the two copies of a NAT or SIT block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first.
    First,
    /// The second.
    Second,
}

impl Side {
    /// The other side.
    #[must_use]
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Start of the side in an area whose first side has `blocks` blocks.
    pub(super) const fn start(self, blocks: u64) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => blocks,
        }
    }

    /// From a bit of a version bitmap.
    #[must_use]
    pub(crate) const fn of_bit(second: bool) -> Self {
        if second { Self::Second } else { Self::First }
    }
}
