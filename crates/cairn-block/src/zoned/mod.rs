//! Zoned devices: parts of the medium that can only be written from front to back, and are reset as
//! a whole.
//!
//! [`ZonedDevice`] is the view of a device's zones ([`crate::BlockDevice::as_zoned`]). [`Emulated`]
//! gives any device zones and enforces their rules; [`HostZoned`] is a zoned block device of the
//! host; [`ZoneOrder`] lets several threads write in one zone: it holds back a write until those
//! before it are done.

mod active;
mod emulated;
mod host;
mod image;
mod order;
mod rules;
mod table;
mod violation;

pub use emulated::Emulated;
pub use host::HostZoned;
pub use image::{create_image, open_image};
pub use order::{PendingReset, ZoneOrder};
pub use rules::ZoneLayout;
pub(crate) use violation::ZoneViolation;

use crate::error::Result;

/// How a zone may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// Anywhere, at any time.
    Conventional,
    /// At the write pointer alone.
    SequentialRequired,
    /// Best at the write pointer.
    SequentialPreferred,
}

/// What state a zone is in, in the words of the standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCondition {
    /// It has no write pointer.
    NotWritePointer,
    /// Nothing was written since its reset.
    Empty,
    /// Opened by a write.
    ImplicitOpen,
    /// Opened by a command.
    ExplicitOpen,
    /// Partly written, and not open.
    Closed,
    /// Nothing more can be written.
    Full,
    /// The device refuses writes.
    ReadOnly,
    /// The device refuses everything.
    Offline,
}

/// One zone. All numbers are bytes; places count from the device's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first byte.
    pub start: u64,
    /// Its length, to the start of the next.
    pub len: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
    /// Where the next write goes; the end of its capacity if it is full or has no write pointer.
    pub write_pointer: u64,
    /// How it may be written.
    pub kind: ZoneKind,
    /// Its state.
    pub condition: ZoneCondition,
}

impl Zone {
    /// Only in order, and only once between two resets.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.kind == ZoneKind::SequentialRequired
    }

    /// One of the zones that [`ZoneLimits::max_active`] limits.
    #[must_use]
    pub fn is_active(&self) -> bool {
        use ZoneCondition::{Closed, ExplicitOpen, ImplicitOpen};
        self.is_sequential() && matches!(self.condition, ImplicitOpen | ExplicitOpen | Closed)
    }

    /// The device has given it up: it takes no writes and no reset, and perhaps no reads.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline)
    }

    /// The first byte behind what can be written.
    #[must_use]
    pub fn writable_end(&self) -> u64 {
        self.start + self.capacity
    }

    /// Bytes written since the last reset.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.write_pointer.saturating_sub(self.start)
    }
}

/// What holds for all sequential zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneLimits {
    /// Bytes from one zone's start to the next.
    pub zone_size: u64,
    /// Zones that can be open at once (0: any number). A write to one more closes another that a
    /// write had opened.
    pub max_open: u32,
    /// Zones that can be open or closed at once (0: any number): neither empty nor full.
    pub max_active: u32,
}

/// The zones of a device.
pub trait ZonedDevice: Send + Sync {
    /// What holds for all sequential zones.
    fn limits(&self) -> ZoneLimits;

    /// At most `most` zones, the first of them that which holds byte `offset`; none behind the
    /// device's end.
    ///
    /// # Errors
    /// The device's.
    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>>;

    /// Gives up the contents of the sequential zone that starts at `start`: it is empty then.
    ///
    /// # Errors
    /// No sequential zone starts there, or the device failed.
    fn reset(&self, start: u64) -> Result<()>;

    /// Makes the sequential zone that starts at `start` full: nothing more is written there until
    /// its reset.
    ///
    /// # Errors
    /// As [`ZonedDevice::reset`].
    fn finish(&self, start: u64) -> Result<()>;
}
