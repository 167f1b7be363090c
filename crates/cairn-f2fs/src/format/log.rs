//! The six logs: what they are for and how they are numbered.

use zerocopy::IntoBytes;

/// A log: the numbers are the types in SIT entries and the indices of `alloc_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoBytes)]
#[repr(u8)]
pub enum Log {
    /// Directory entries.
    HotData = 0,
    /// Ordinary file data.
    WarmData = 1,
    /// Data that will hardly change: cold by extension, moved by cleaning.
    ColdData = 2,
    /// Inodes and direct nodes of directories.
    HotNode = 3,
    /// Inodes, direct nodes and attribute nodes of everything else: the roll-forward chain.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl Log {
    /// Number of logs.
    pub const COUNT: usize = 6;
    /// All, by number.
    pub const ALL: [Self; 6] = [
        Self::HotData,
        Self::WarmData,
        Self::ColdData,
        Self::HotNode,
        Self::WarmNode,
        Self::ColdNode,
    ];
    /// The three data logs.
    pub const DATA: [Self; 3] = [Self::HotData, Self::WarmData, Self::ColdData];
    /// The three node logs.
    pub const NODE: [Self; 3] = [Self::HotNode, Self::WarmNode, Self::ColdNode];

    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        self.raw().into()
    }

    /// The number as stored.
    #[must_use]
    pub(crate) const fn raw(self) -> u8 {
        zerocopy::transmute!(self)
    }

    /// The value of this log among six values in the order of [`Log::ALL`].
    #[must_use]
    pub const fn of<T>(self, values: &[T; Self::COUNT]) -> &T {
        match self {
            Self::HotData => &values[0],
            Self::WarmData => &values[1],
            Self::ColdData => &values[2],
            Self::HotNode => &values[3],
            Self::WarmNode => &values[4],
            Self::ColdNode => &values[5],
        }
    }

    /// As [`Log::of`], for writing.
    pub(crate) const fn of_mut<T>(self, values: &mut [T; Self::COUNT]) -> &mut T {
        match self {
            Self::HotData => &mut values[0],
            Self::WarmData => &mut values[1],
            Self::ColdData => &mut values[2],
            Self::HotNode => &mut values[3],
            Self::WarmNode => &mut values[4],
            Self::ColdNode => &mut values[5],
        }
    }

    /// The log of a stored number.
    #[must_use]
    pub(crate) const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::HotData,
            1 => Self::WarmData,
            2 => Self::ColdData,
            3 => Self::HotNode,
            4 => Self::WarmNode,
            5 => Self::ColdNode,
            _ => return None,
        })
    }

    /// True if it holds node blocks.
    #[must_use]
    pub const fn is_node(self) -> bool {
        matches!(self, Self::HotNode | Self::WarmNode | Self::ColdNode)
    }
}

/// How a log takes blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes)]
#[repr(u8)]
pub enum AllocType {
    /// One after the other in a segment that was free.
    #[default]
    Lfs = 0,
    /// The holes of a segment in use (slack space reuse).
    Ssr = 1,
}

impl AllocType {
    /// The number as stored.
    #[must_use]
    pub(crate) const fn raw(self) -> u8 {
        zerocopy::transmute!(self)
    }

    /// The allocation type of a stored number. All numbers but one mean appending.
    #[must_use]
    pub(crate) const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Ssr,
            _ => Self::Lfs,
        }
    }
}
