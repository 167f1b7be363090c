//! Rules of zones that a request can break, and the report of one that did.

use std::fmt;

/// The broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ZoneRule {
    /// The write begins before or behind the write pointer.
    WritePointer,
    /// The write is no multiple of 4096 bytes.
    Alignment,
    /// The write continues beyond the zone's capacity.
    Capacity,
    /// The zone is full.
    Full,
    /// The device has zone has failed: it is read-only or offline.
    Failed,
    /// The zone would be one more active zone than the device can have.
    ActiveLimit,
    /// A part of a sequential zone is discarded, or zeroed elsewhere than at its write pointer.
    Discard,
    /// The read goes behind the write pointer, on a device that refuses that.
    Read,
    /// There is no write pointer to move: the zone is conventional, or the offset is not a zone's
    /// start.
    NoWritePointer,
}

impl ZoneRule {
    const fn text(self) -> &'static str {
        match self {
            Self::WritePointer => "writes to a sequential zone go to its write pointer",
            Self::Alignment => "writes to a sequential zone are whole blocks of 4096 bytes",
            Self::Capacity => "the zone's capacity ends before",
            Self::Full => "the zone is full: reset it first",
            Self::Failed => "the zone has failed: copy elsewhere what can still be read",
            Self::ActiveLimit => "too many zones are active: finish or reset one first",
            Self::Discard => "a sequential zone cannot be discarded in part: reset it",
            Self::Read => "nothing was written there yet",
            Self::NoWritePointer => "no sequential zone starts there",
        }
    }
}

/// A request against the rules of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ZoneViolation {
    /// Number of the zone.
    pub zone: u32,
    /// Its write pointer, in bytes from the device's start.
    pub write_pointer: u64,
    /// Byte offset of the request.
    pub offset: u64,
    /// The rule that it broke.
    pub rule: ZoneRule,
}

impl fmt::Display for ZoneViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}, write pointer {}: {}", self.zone, self.write_pointer, self.rule.text())
    }
}
