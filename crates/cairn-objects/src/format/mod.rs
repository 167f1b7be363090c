//! The bytes of objects: docs/object-volumes.md has the layout. All integers are little-endian.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod corrupt;
pub(crate) mod data;
pub(crate) mod id;
pub(crate) mod local_log;
pub(crate) mod manifest;
pub(crate) mod map;

pub(crate) use corrupt::{Corrupt, Result};
pub(crate) use id::ObjectId;

/// Bytes of a sector, the unit of maps.
pub(crate) const SECTOR: u64 = 512;
/// Version of the layout of all but data objects, which this program writes, and the newest that it
/// reads.
pub(crate) const VERSION: u32 = 1;

/// CRC-32C with the usual inversion.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |sum, part| cairn_base::checksum::crc32c(sum, part))
}

#[cfg(test)]
mod tests;
