//! Volumes on zoned devices: the checks before one is opened.
//!
//! Sections are zones. Everything outside the main area is written in place, so it lies before the
//! first sequential zone.
//!
//! Zones may have less capacity than size. Then no section is written beyond the capacity,
//! conventional ones included, as in Linux.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::zoned::{Zone, ZoneOrder};

use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, SEGMENT_BYTES};
use crate::format::{Features, Layout, Log};

/// Why the volume can only be read on this device, if its zones are the reason.
pub(crate) fn read_only_reason(
    features: Features,
    device: &dyn BlockDevice,
) -> Option<&'static str> {
    match (features.contains(Features::BLKZONED), device.as_zoned().is_some()) {
        (true, false) => Some(
            "the volume was made for a zoned device (feature blkzoned), but this device has no \
             zones: give the zoned device",
        ),
        (false, true) => Some(
            "the device has zones, but the volume was made without them: make it again with zones",
        ),
        (true, true) => too_few_active(device),
        (false, false) => None,
    }
}

/// The reason for a device that cannot have an active zone for each log.
pub(crate) fn too_few_active(device: &dyn BlockDevice) -> Option<&'static str> {
    let limits = device.as_zoned()?.limits();
    (1..Log::COUNT as u32).contains(&limits.max_active).then_some(
        "the device allows fewer than six active zones, and each of a volume's six logs \
            needs one: use another device",
    )
}

/// Wraps the device so that its zones are written in order, and sets the writable part of a section
/// in the layout.
///
/// # Errors
/// The zones are not the volume's sections, or the device failed.
pub(crate) fn ordered(device: Arc<dyn BlockDevice>, layout: &mut Layout) -> Result<Arc<ZoneOrder>> {
    let zones = match device.as_zoned() {
        Some(zoned) => zoned.report(0, usize::MAX)?,
        None => Vec::new(),
    };
    layout.unusable_per_section = unusable_per_section(&zones, layout)?;
    check_active(&zones, &*device, layout)?;
    Ok(Arc::new(ZoneOrder::new(device)?))
}

/// Blocks at the end of each section that are beyond its zone's capacity; 0 on a device without
/// zones.
///
/// # Errors
/// As [`ordered`].
pub(crate) fn unusable(device: &dyn BlockDevice, layout: &Layout) -> Result<u32> {
    match device.as_zoned() {
        Some(zoned) => unusable_per_section(&zoned.report(0, usize::MAX)?, layout),
        None => Ok(0),
    }
}

/// The first byte after the volume's sections.
fn main_end(layout: &Layout) -> u64 {
    (u64::from(layout.main) + layout.main_blocks()) * BLOCK_BYTES
}

/// Active zones beyond the volume, which Cairn never finishes or resets.
pub(crate) fn active_behind(zones: &[Zone], layout: &Layout) -> usize {
    zones.iter().filter(|zone| zone.is_active() && zone.start >= main_end(layout)).count()
}

/// Each log needs a zone that can be active.
fn check_active(zones: &[Zone], device: &dyn BlockDevice, layout: &Layout) -> Result<()> {
    let limit = device.as_zoned().map_or(0, |zoned| zoned.limits().max_active) as usize;
    let behind = active_behind(zones, layout);
    if limit >= Log::COUNT && limit - behind.min(limit) < Log::COUNT {
        let text = format!(
            "{behind} of the {limit} zones that may be active are after the end of the volume, and \
             each of the volume's six logs needs one: finish or reset those zones (blkzone), or \
             open the volume with ro"
        );
        return Err(Error::Feature(text));
    }
    Ok(())
}

/// Blocks at the end of each section that are beyond its zone's capacity.
fn unusable_per_section(zones: &[Zone], layout: &Layout) -> Result<u32> {
    let mut unusable = None;
    let section = u64::from(layout.segs_per_sec) * SEGMENT_BYTES;
    let main = u64::from(layout.main) * BLOCK_BYTES;
    for zone in zones.iter().filter(|zone| zone.is_sequential()) {
        let fault = if zone.has_failed() && zone.start < main_end(layout) {
            Some("has failed (it is read-only or offline)")
        } else if zone.start < main {
            Some("lies in the volume's metadata, which is written in place")
        } else if !(zone.start - main).is_multiple_of(section) || zone.len != section {
            Some("is not one of the volume's sections")
        } else if zone.capacity < SEGMENT_BYTES {
            Some("holds less than a segment")
        } else if *unusable.get_or_insert(zone.len - zone.capacity) != zone.len - zone.capacity {
            Some("has another capacity than those before it")
        } else {
            None
        };
        if let Some(fault) = fault {
            let text = format!(
                "the zone of {} bytes at byte {} {fault}: open the volume with ro",
                zone.len, zone.start
            );
            return Err(Error::Feature(text));
        }
    }
    // The result is less than a section. A part of a block is not usable.
    Ok(unusable.unwrap_or(0).div_ceil(BLOCK_BYTES) as u32)
}
