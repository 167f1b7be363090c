//! [`Extent`]: what a range of an export is made of (the metadata context `base:allocation`).

/// Bits of a status.
const HOLE: u32 = 1;
const ZERO: u32 = 2;

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
    pub(crate) const fn told(offset: u64, len: u64, flags: u32) -> Self {
        Self { offset, len, hole: flags & HOLE != 0, zero: flags & ZERO != 0 }
    }

    pub(crate) const fn flags(&self) -> u32 {
        (if self.hole { HOLE } else { 0 }) | if self.zero { ZERO } else { 0 }
    }
}

/// Adds an extent; one that continues the last becomes a part of it.
pub(crate) fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last)
            if (last.hole, last.zero) == (next.hole, next.zero)
                && last.offset.saturating_add(last.len) == next.offset =>
        {
            last.len += next.len;
        }
        _ => extents.push(next),
    }
}
