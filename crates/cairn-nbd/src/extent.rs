//! Extents as the metadata context `base:allocation` tells them.

use cairn_block::Extent;

/// Bits of a status.
const HOLE: u32 = 1;
const ZERO: u32 = 2;

/// The extent that a status tells.
pub(crate) const fn told(offset: u64, len: u64, flags: u32) -> Extent {
    Extent { offset, len, hole: flags & HOLE != 0, zero: flags & ZERO != 0 }
}

/// The status that tells an extent.
pub(crate) const fn flags(extent: &Extent) -> u32 {
    (if extent.hole { HOLE } else { 0 }) | if extent.zero { ZERO } else { 0 }
}
