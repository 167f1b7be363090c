//! The rules of zones, and their state: pure, without I/O.
//!
//! A sequential zone is written only at its write pointer, within its capacity, in whole blocks.
//! Only a reset of the whole zone drops its contents. The limit of open zones is kept by closing
//! another zone, the limit of active zones by refusing the write.

use std::collections::VecDeque;

use super::violation::{ZoneRule, ZoneViolation};
use super::{Zone, ZoneCondition, ZoneKind, ZoneLimits};
use crate::error::{Error, ErrorKind, Result};

/// Unit of writes to sequential zones, in bytes.
pub(super) const BLOCK: u64 = 4096;

/// Zones of an emulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// Bytes a zone, a multiple of 4096.
    pub zone_size: u64,
    /// Bytes of a sequential zone that can be written.
    pub capacity: u64,
    /// Conventional zones, which come first.
    pub conventional: u32,
    /// All zones.
    pub zones: u32,
    /// See [`ZoneLimits::max_open`].
    pub max_open: u32,
    /// See [`ZoneLimits::max_active`].
    pub max_active: u32,
    /// True if reads after the write pointer return zeros; otherwise they fail.
    pub unrestricted_reads: bool,
}

impl ZoneLayout {
    /// `zones` zones of `zone_size` bytes, the first `conventional` of them conventional, without
    /// limits.
    #[must_use]
    pub const fn new(zone_size: u64, conventional: u32, zones: u32) -> Self {
        Self {
            zone_size,
            capacity: zone_size,
            conventional,
            zones,
            max_open: 0,
            max_active: 0,
            unrestricted_reads: true,
        }
    }

    /// Bytes of the device.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.zone_size * self.zones as u64
    }

    pub(super) fn limits(&self) -> ZoneLimits {
        ZoneLimits {
            zone_size: self.zone_size,
            max_open: self.max_open,
            max_active: self.max_active,
        }
    }

    /// Checks that a device can have such zones.
    ///
    /// # Errors
    /// The numbers contradict each other.
    pub fn check(&self) -> Result<()> {
        let wrong = |detail: &str| Err(Error::new(ErrorKind::Unsupported, "emulate zones", detail));
        if self.zone_size == 0
            || !self.zone_size.is_multiple_of(BLOCK)
            || !self.capacity.is_multiple_of(BLOCK)
        {
            return wrong("the zone size and capacity must be multiples of 4096 bytes");
        }
        if self.capacity == 0 || self.capacity > self.zone_size {
            return wrong("the capacity must be at most the zone size, and not 0");
        }
        if self.zones == 0 || self.conventional > self.zones {
            return wrong(
                "there must be at least one zone, and not more conventional zones than zones",
            );
        }
        if self.zone_size.checked_mul(self.zones.into()).is_none_or(|size| size > 1 << 60) {
            return wrong("the zones are too many or too large");
        }
        if self.max_active != 0 && self.max_open > self.max_active {
            return wrong("no more zones can be open than active");
        }
        Ok(())
    }
}

/// A zone's state: bytes written, and whether it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Bytes from the zone's start to the write pointer.
    pub(super) written: u64,
    /// True if it was finished before its capacity was written.
    pub(super) finished: bool,
    /// Which requests the device still accepts for it.
    pub(super) health: Health,
}

/// Which requests a device still accepts for a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    #[default]
    Good,
    ReadOnly,
    Offline,
}

/// The state of all zones.
#[derive(Clone, Debug)]
pub(super) struct Zones {
    pub(super) layout: ZoneLayout,
    states: Vec<State>,
    /// Opened by writes, the one written longest ago first.
    open: VecDeque<u32>,
    /// Neither empty nor full.
    active: u32,
}

impl Zones {
    /// Zones in these states; missing ones are empty.
    pub(super) fn new(layout: ZoneLayout, mut states: Vec<State>) -> Self {
        states.resize(layout.zones as usize, State::default());
        let mut zones = Self { layout, states, open: VecDeque::new(), active: 0 };
        let active =
            (layout.conventional..layout.zones).filter(|zone| zones.is_active(*zone)).count();
        zones.active = u32::try_from(active).expect("no more than all zones");
        zones
    }

    pub(super) fn zone_of(&self, offset: u64) -> u32 {
        u32::try_from(offset / self.layout.zone_size).expect("requests lie within the device")
    }

    fn start(&self, zone: u32) -> u64 {
        u64::from(zone) * self.layout.zone_size
    }

    pub(super) fn state(&self, zone: u32) -> State {
        self.states[zone as usize]
    }

    pub(super) fn is_sequential(&self, zone: u32) -> bool {
        zone >= self.layout.conventional
    }

    fn is_full(&self, zone: u32) -> bool {
        let state = self.state(zone);
        state.finished || state.written == self.layout.capacity
    }

    fn is_active(&self, zone: u32) -> bool {
        let state = self.state(zone);
        state.written > 0 && !self.is_full(zone) && state.health == Health::Good
    }

    /// The first byte that was not written.
    pub(super) fn write_pointer(&self, zone: u32) -> u64 {
        let written =
            if self.is_full(zone) { self.layout.capacity } else { self.state(zone).written };
        self.start(zone) + written
    }

    /// The first byte of the zone that reads as zero although the zone could be written.
    pub(super) fn data_end(&self, zone: u32) -> u64 {
        self.start(zone) + self.state(zone).written
    }

    pub(super) fn describe(&self, zone: u32) -> Zone {
        let layout = &self.layout;
        let start = self.start(zone);
        if !self.is_sequential(zone) {
            let (len, kind) = (layout.zone_size, ZoneKind::Conventional);
            let condition = ZoneCondition::NotWritePointer;
            return Zone { start, len, capacity: len, write_pointer: start + len, kind, condition };
        }
        let condition = match () {
            () if self.state(zone).health == Health::ReadOnly => ZoneCondition::ReadOnly,
            () if self.state(zone).health == Health::Offline => ZoneCondition::Offline,
            () if self.is_full(zone) => ZoneCondition::Full,
            () if self.open.contains(&zone) => ZoneCondition::ImplicitOpen,
            () if self.state(zone).written > 0 => ZoneCondition::Closed,
            () => ZoneCondition::Empty,
        };
        Zone {
            start,
            len: layout.zone_size,
            capacity: layout.capacity,
            write_pointer: self.write_pointer(zone),
            kind: ZoneKind::SequentialRequired,
            condition,
        }
    }

    fn violation(&self, zone: u32, offset: u64, rule: ZoneRule) -> ZoneViolation {
        ZoneViolation { zone, write_pointer: self.write_pointer(zone), offset, rule }
    }

    /// Moves write pointers as a write of `len` bytes at `offset` does. Conventional zones take all
    /// writes. A write may begin in one, but may continue into a sequential zone only at that
    /// zone's write pointer. Returns the zone whose pointer moved, with its old state.
    pub(super) fn write(
        &mut self,
        offset: u64,
        len: u64,
    ) -> Result<Option<(u32, State)>, ZoneViolation> {
        if len == 0 || !self.is_sequential(self.zone_of(offset + len - 1)) {
            return Ok(None);
        }
        let zone = self.zone_of(offset).max(self.layout.conventional);
        let before = self.state(zone);
        // A write that continues in the next zone is refused: the capacity ends at the zone's end,
        // or before.
        self.append(zone, offset.max(self.start(zone)), offset + len)?;
        Ok(Some((zone, before)))
    }

    /// Restores a pointer.
    pub(super) fn restore(&mut self, zone: u32, state: State) {
        self.leave(zone);
        self.states[zone as usize] = state;
        if self.is_active(zone) {
            self.active += 1;
            self.open.push_back(zone);
        }
    }

    fn append(&mut self, zone: u32, from: u64, end: u64) -> Result<(), ZoneViolation> {
        let refuse = |rule| Err(self.violation(zone, from, rule));
        if self.state(zone).health != Health::Good {
            return refuse(ZoneRule::Failed);
        }
        if self.is_full(zone) {
            return refuse(ZoneRule::Full);
        }
        if from != self.write_pointer(zone) {
            return refuse(ZoneRule::WritePointer);
        }
        if !(end - from).is_multiple_of(BLOCK) {
            return refuse(ZoneRule::Alignment);
        }
        if end > self.start(zone) + self.layout.capacity {
            return refuse(ZoneRule::Capacity);
        }
        let was_active = self.is_active(zone);
        let limit = self.layout.max_active;
        if !was_active && limit != 0 && self.active >= limit {
            return refuse(ZoneRule::ActiveLimit);
        }
        self.states[zone as usize].written += end - from;
        self.active += u32::from(!was_active);
        self.open.retain(|other| *other != zone);
        if self.is_full(zone) {
            self.active -= 1;
        } else {
            self.open.push_back(zone);
            if self.layout.max_open != 0 && self.open.len() > self.layout.max_open as usize {
                self.open.pop_front();
            }
        }
        Ok(())
    }

    /// Checks that a range may be discarded, or zeroed elsewhere than at the write pointer.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<(), ZoneViolation> {
        if len == 0 {
            return Ok(());
        }
        let last = self.zone_of(offset + len - 1);
        if self.is_sequential(last) {
            let zone = self.zone_of(offset).max(self.layout.conventional);
            return Err(self.violation(zone, offset, ZoneRule::Discard));
        }
        Ok(())
    }

    /// Checks that a range may be read.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<(), ZoneViolation> {
        if len == 0 {
            return Ok(());
        }
        let zones = self.zone_of(offset)..=self.zone_of(offset + len - 1);
        if let Some(lost) = zones.clone().find(|zone| self.state(*zone).health == Health::Offline) {
            return Err(self.violation(lost, offset, ZoneRule::Failed));
        }
        if self.layout.unrestricted_reads {
            return Ok(());
        }
        let mut sequential = zones.filter(|zone| self.is_sequential(*zone));
        let behind = sequential.find(|zone| {
            let end = (self.start(*zone) + self.layout.zone_size).min(offset + len);
            end > self.write_pointer(*zone)
        });
        behind.map_or(Ok(()), |zone| Err(self.violation(zone, offset, ZoneRule::Read)))
    }

    /// The parts of a range that read as zeros, whatever is stored there.
    pub(super) fn unwritten(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = offset;
        while at < offset + len {
            let zone = self.zone_of(at);
            let end = (self.start(zone) + self.layout.zone_size).min(offset + len);
            let from = at.max(self.data_end(zone));
            if self.is_sequential(zone) && from < end {
                parts.push((from, end - from));
            }
            at = end;
        }
        parts
    }

    /// The sequential zone that starts at a byte, to be reset or finished.
    pub(super) fn sequential_at(&self, start: u64) -> Result<u32, ZoneViolation> {
        if start >= self.layout.size() {
            let zone = self.layout.zones;
            return Err(ZoneViolation {
                zone,
                write_pointer: start,
                offset: start,
                rule: ZoneRule::NoWritePointer,
            });
        }
        let zone = self.zone_of(start);
        if !self.is_sequential(zone) || self.start(zone) != start {
            return Err(self.violation(zone, start, ZoneRule::NoWritePointer));
        }
        match self.state(zone).health {
            Health::Good => Ok(zone),
            Health::ReadOnly | Health::Offline => {
                Err(self.violation(zone, start, ZoneRule::Failed))
            }
        }
    }

    pub(super) fn reset(&mut self, zone: u32) {
        self.leave(zone);
        self.states[zone as usize] = State::default();
    }

    pub(super) fn finish(&mut self, zone: u32) {
        self.leave(zone);
        self.states[zone as usize].finished = true;
    }

    pub(super) fn fail(&mut self, zone: u32, health: Health) {
        self.leave(zone);
        self.states[zone as usize].health = health;
    }

    fn leave(&mut self, zone: u32) {
        self.active -= u32::from(self.is_active(zone));
        self.open.retain(|other| *other != zone);
    }
}
