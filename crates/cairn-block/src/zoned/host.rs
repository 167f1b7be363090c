//! [`HostZoned`]: a zoned block device of the host.
//!
//! Writes to sequential zones go past the host's page cache, which would write them in an order of
//! its own. A caller that writes from several threads wraps it in a [`super::ZoneOrder`].

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

use super::{Zone, ZoneCondition, ZoneKind, ZoneLimits, ZonedDevice};
use crate::device::{Batch, BlockDevice, Completion, Geometry};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{DirectFile, OpenOptions};
use crate::ioctl::{self, BlkZone};

const SECTOR: u64 = 512;

/// A zoned block device of the host, opened with `O_DIRECT`.
pub struct HostZoned {
    file: DirectFile,
    limits: ZoneLimits,
}

impl HostZoned {
    /// Opens a block device for reading and writing if it is a host-managed zoned one.
    ///
    /// # Errors
    /// As [`DirectFile::open`]; or it does not report its zones.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let Some(queue) = queue_of(path) else { return Ok(None) };
        if attribute(&queue, "zoned").as_deref() != Some("host-managed") {
            return Ok(None);
        }
        let number = |name| attribute(&queue, name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let (max_open, max_active) = (number("max_open_zones"), number("max_active_zones"));
        let mut zoned = Self {
            file: DirectFile::open(path, OpenOptions::write())?,
            limits: ZoneLimits { zone_size: 0, max_open, max_active },
        };
        let first = zoned.report(0, 1)?.into_iter().next();
        let first = first.ok_or_else(|| {
            Error::new(ErrorKind::Io, "report zones", "the device reports no zones")
        })?;
        zoned.limits.zone_size = first.len;
        Ok(Some(zoned))
    }

    /// The bytes of the zone that starts at `start`.
    fn length(&self, operation: &str, start: u64) -> Result<u64> {
        match self.report(start, 1)?.first() {
            Some(zone) if zone.start == start => Ok(zone.len),
            _ => {
                Err(Error::new(ErrorKind::OutOfRange, operation, "no zone starts there")
                    .at(start, 0))
            }
        }
    }
}

/// `/sys/dev/block/MAJOR:MINOR/queue` of a block device.
fn queue_of(path: &Path) -> Option<std::path::PathBuf> {
    let metadata = std::fs::metadata(path).ok()?;
    let device = metadata.file_type().is_block_device().then(|| metadata.rdev())?;
    Some(format!("/sys/dev/block/{}:{}/queue", major(device), minor(device)).into())
}

fn attribute(queue: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(queue.join(name)).ok()?.trim().to_owned())
}

/// One zone as Linux describes it.
fn zone(raw: &BlkZone) -> Result<Zone> {
    let bytes = |sectors: u64| {
        sectors.checked_mul(SECTOR).ok_or_else(|| {
            let detail = format!("zone at sector {} has {sectors} sectors", raw.start);
            Error::new(ErrorKind::Io, "report zones", detail)
        })
    };
    let unknown = |what: &str, value: u8| {
        let detail =
            format!("zone at sector {} has the {what} {value}, which is unknown", raw.start);
        Err(Error::new(ErrorKind::Unsupported, "report zones", detail))
    };
    let kind = match raw.kind {
        1 => ZoneKind::Conventional,
        2 => ZoneKind::SequentialRequired,
        3 => ZoneKind::SequentialPreferred,
        other => return unknown("type", other),
    };
    let condition = match raw.cond {
        0 => ZoneCondition::NotWritePointer,
        1 => ZoneCondition::Empty,
        2 => ZoneCondition::ImplicitOpen,
        3 => ZoneCondition::ExplicitOpen,
        4 => ZoneCondition::Closed,
        13 => ZoneCondition::ReadOnly,
        14 => ZoneCondition::Full,
        15 => ZoneCondition::Offline,
        other => return unknown("condition", other),
    };
    let (start, len, capacity) = (bytes(raw.start)?, bytes(raw.len)?, bytes(raw.capacity)?);
    if len == 0 || capacity > len || start.checked_add(len).is_none() {
        let detail =
            format!("zone at sector {}: {} sectors, capacity {}", raw.start, raw.len, raw.capacity);
        return Err(Error::new(ErrorKind::Io, "report zones", detail));
    }
    let has_pointer = !matches!(condition, ZoneCondition::NotWritePointer | ZoneCondition::Full);
    let write_pointer =
        if has_pointer { bytes(raw.wp)?.clamp(start, start + capacity) } else { start + capacity };
    Ok(Zone { start, len, capacity, write_pointer, kind, condition })
}

impl ZonedDevice for HostZoned {
    fn limits(&self) -> ZoneLimits {
        self.limits
    }

    fn report(&self, offset: u64, most: usize) -> Result<Vec<Zone>> {
        let size = self.file.geometry().size;
        let (mut zones, mut at) = (Vec::new(), offset);
        while zones.len() < most && at < size {
            let report = ioctl::report_zones(self.file.descriptor(), at / SECTOR);
            let report =
                report.map_err(|error| Error::from_io("report zones", error.into()).at(at, 0))?;
            let found = (report.head.nr_zones as usize).min(ioctl::ZONES_AT_ONCE);
            for raw in report.zones.iter().take(found.min(most - zones.len())) {
                let zone = zone(raw)?;
                // Every zone ends after the one before it, so the loop ends.
                at = at.max(zone.start + zone.len);
                zones.push(zone);
            }
            if found == 0 {
                break;
            }
        }
        Ok(zones)
    }

    fn reset(&self, start: u64) -> Result<()> {
        let len = self.length("reset zone", start)?;
        ioctl::reset_zones(self.file.descriptor(), start / SECTOR, len / SECTOR)
            .map_err(|error| Error::from_io("reset zone", error.into()).at(start, len))
    }

    fn finish(&self, start: u64) -> Result<()> {
        let len = self.length("finish zone", start)?;
        ioctl::finish_zones(self.file.descriptor(), start / SECTOR, len / SECTOR)
            .map_err(|error| Error::from_io("finish zone", error.into()).at(start, len))
    }
}

impl BlockDevice for HostZoned {
    fn geometry(&self) -> Geometry {
        // Sequential zones are reset, not discarded.
        Geometry { discard: false, ..self.file.geometry() }
    }

    fn submit(&self, batch: Batch) -> Completion {
        self.file.submit(batch)
    }

    fn flush(&self) -> Result<()> {
        self.file.flush()
    }

    fn as_zoned(&self) -> Option<&dyn ZonedDevice> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_decoded_from_sectors() {
        let raw = BlkZone {
            start: 16,
            len: 8,
            wp: 20,
            kind: 2,
            cond: 2,
            capacity: 6,
            ..BlkZone::default()
        };
        let found = zone(&raw).unwrap();
        assert_eq!(
            (found.start, found.len, found.capacity, found.write_pointer),
            (8192, 4096, 3072, 10240)
        );
        assert_eq!(
            (found.kind, found.condition),
            (ZoneKind::SequentialRequired, ZoneCondition::ImplicitOpen)
        );
        let full = zone(&BlkZone { cond: 14, wp: u64::MAX, ..raw }).unwrap();
        assert_eq!(full.write_pointer, full.writable_end());
        let conventional = BlkZone { kind: 1, cond: 0, wp: u64::MAX, capacity: 8, ..raw };
        assert_eq!(zone(&conventional).unwrap().write_pointer, 12288);
    }

    #[test]
    fn impossible_zones_are_refused() {
        let raw = BlkZone {
            start: 16,
            len: 8,
            wp: 20,
            kind: 2,
            cond: 2,
            capacity: 6,
            ..BlkZone::default()
        };
        for wrong in [
            BlkZone { kind: 9, ..raw },
            BlkZone { cond: 7, ..raw },
            BlkZone { capacity: 9, ..raw },
            BlkZone { len: 0, capacity: 0, ..raw },
            BlkZone { start: u64::MAX / 2, ..raw },
        ] {
            assert!(zone(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_is_no_zoned_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(HostZoned::open(file.path()).unwrap().is_none());
    }
}
