//! [`Extent`]: what a range of a device is made of.

use std::ops::Range;

/// Extents that a device tells in one answer.
pub const MAX_EXTENTS: usize = 4096;

/// A range with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// It takes no space.
    pub hole: bool,
    /// It reads as zeros.
    pub zero: bool,
}

impl Extent {
    /// A range with data, as far as anybody knows.
    #[must_use]
    pub fn data(range: Range<u64>) -> Self {
        let len = range.end.saturating_sub(range.start);
        Self { offset: range.start, len, hole: false, zero: false }
    }

    /// A range that takes no space and reads as zeros.
    #[must_use]
    pub fn hole(range: Range<u64>) -> Self {
        Self { hole: true, zero: true, ..Self::data(range) }
    }

    /// The first byte behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Adds an extent to a list. One that continues the last becomes a part of it; one without
    /// bytes is left out.
    pub fn push(self, extents: &mut Vec<Self>) {
        match extents.last_mut() {
            _ if self.len == 0 => {}
            Some(last)
                if (last.hole, last.zero) == (self.hole, self.zero)
                    && last.end() == self.offset =>
            {
                last.len += self.len;
            }
            _ => extents.push(self),
        }
    }
}
