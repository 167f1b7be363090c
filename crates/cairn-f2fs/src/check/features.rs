//! Feature bits of the superblock that the inodes disprove.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_check::{Finding, Findings, Place};

use super::{kinds, superblocks};
use crate::error::{Error, Result};
use crate::raw::{Choice, RawVolume};

/// The device with the features that the inodes show, in both copies of the superblock, if those
/// are others. That is a finding.
///
/// # Errors
/// The device failed.
pub(super) fn proved(
    device: &Arc<dyn BlockDevice>,
    findings: &Findings,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    // Of a device with zones no copy in memory is made.
    if device.as_zoned().is_some() {
        return Ok(None);
    }
    let volume = match RawVolume::open(device.clone(), Choice::default()) {
        Ok(volume) if volume.loaded.is_some() => volume,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Ok(_) | Err(_) => return Ok(None),
    };
    let stored = volume.superblock.features;
    let features = volume.proved_features();
    if features == stored {
        return Ok(None);
    }
    let mut superblock = volume.superblock.clone();
    superblock.features = features;
    let finding = Finding::new(&kinds::SUPERBLOCK_FEATURES, Place::field("feature"));
    findings.add(finding.hex(stored.bits(), features.bits()));
    superblocks::in_both(device, &superblock.encode()).map(Some)
}
