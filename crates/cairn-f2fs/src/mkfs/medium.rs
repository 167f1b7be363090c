//! What a volume is made on: one device, or several one behind the other, perhaps with zones.
//!
//! The first device holds the metadata. With zones, everything that is written in place must lie
//! before the first sequential one.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::Concat;

use super::error::Error;
use crate::format::units::SEGMENT_BYTES;
use crate::zones::too_few_active;

/// Bytes of a path in the superblock, with the zero behind it.
const PATH_BYTES: usize = 64;

/// A device of a volume on several devices, with the path where the next mount finds it.
#[derive(Clone)]
pub struct NamedDevice {
    /// Path that the superblock names.
    pub path: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// Sizes and zones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Medium {
    /// Bytes of each device.
    pub(crate) sizes: Vec<u64>,
    pub(crate) zones: Option<MediumZones>,
}

/// The zones of a medium, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MediumZones {
    /// From one zone's start to the next.
    pub(crate) size: u64,
    /// Writable bytes of a sequential zone.
    pub(crate) capacity: u64,
    /// Bytes before the first sequential zone of its device.
    pub(crate) conventional: u64,
    /// The device with the sequential zones.
    pub(crate) device: usize,
}

impl From<u64> for Medium {
    fn from(bytes: u64) -> Self {
        Self { sizes: vec![bytes], zones: None }
    }
}

impl Medium {
    /// The medium of these devices. If there is only one, the volume takes `size` bytes of it.
    pub(super) fn of(devices: &[NamedDevice], size: Option<u64>) -> Result<Self, Error> {
        let mut sizes: Vec<u64> =
            devices.iter().map(|named| named.device.geometry().size).collect();
        if let (Some(wanted), [whole]) = (size, &mut sizes[..]) {
            if wanted > *whole {
                return Err(Error::Option(format!(
                    "the volume cannot have {wanted} bytes: the device has {whole}"
                )));
            }
            *whole = wanted;
        }
        let mut zones = None;
        for (index, named) in devices.iter().enumerate() {
            let Some(found) = zones_of(index, &*named.device)? else { continue };
            match zones {
                None => zones = Some(found),
                Some(first)
                    if (first.size, first.capacity) != (found.size, found.capacity)
                        || found.conventional > 0 =>
                {
                    return Err(Error::Option(
                        "all zones must have the same size and capacity, the conventional ones \
                         first"
                            .into(),
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(Self { sizes, zones })
    }
}

fn zones_of(index: usize, device: &dyn BlockDevice) -> Result<Option<MediumZones>, Error> {
    let Some(zoned) = device.as_zoned() else { return Ok(None) };
    if let Some(reason) = too_few_active(device) {
        return Err(Error::Option(reason.into()));
    }
    let zones = zoned.report(0, usize::MAX)?;
    let Some(first) = zones.iter().find(|zone| zone.is_sequential()) else { return Ok(None) };
    let same = |zone: &cairn_block::zoned::Zone| {
        let behind = zone.start >= first.start;
        zone.is_sequential() == behind
            && (!behind || (zone.len, zone.capacity) == (first.len, first.capacity))
    };
    if !zones.iter().all(same) {
        return Err(Error::Option(
            "all zones must have the same size and capacity, the conventional ones first".into(),
        ));
    }
    if !first.len.is_power_of_two() || first.len < SEGMENT_BYTES || first.capacity < SEGMENT_BYTES {
        let text = "F2FS needs zones whose size is a power of two, with a capacity of at least 2 \
            MiB; these have";
        return Err(Error::Option(format!(
            "{text} {} bytes and a capacity of {}",
            first.len, first.capacity
        )));
    }
    Ok(Some(MediumZones {
        size: first.len,
        capacity: first.capacity,
        conventional: first.start,
        device: index,
    }))
}

/// All devices as one, with the first `used` bytes of each; a single device is taken whole.
pub(super) fn whole(devices: &[NamedDevice], used: &[u64]) -> Result<Arc<dyn BlockDevice>, Error> {
    let [one] = devices else {
        let parts = devices.iter().zip(used).map(|(named, used)| (named.device.clone(), *used));
        return Ok(Arc::new(Concat::new(parts.collect())?));
    };
    Ok(one.device.clone())
}

/// The path as the superblock holds it.
pub(super) fn stored_path(path: &str) -> Result<[u8; PATH_BYTES], Error> {
    if path.is_empty() || path.len() >= PATH_BYTES || path.contains('\0') {
        let text = format!(
            "the superblock has room for a path of 1 to 63 bytes; `{path}` has {}",
            path.len()
        );
        return Err(Error::Option(text));
    }
    let mut stored = [0; PATH_BYTES];
    stored[..path.len()].copy_from_slice(path.as_bytes());
    Ok(stored)
}
