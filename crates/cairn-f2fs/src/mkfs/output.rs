//! [`Output`]: the device of a new volume, from the loss of its old contents to the superblocks.

use cairn_block::{BlockDevice, BlockDeviceExt};

use super::error::Error;
use super::geometry::Geometry;
use super::identity::Identity;
use super::packs::{self, Contents};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, SEGMENT_BYTES, SegNo};
use crate::format::{Features, Layout, Superblock, superblock};

/// A volume that is being written.
pub(super) struct Output<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) geometry: &'a Geometry,
    pub(super) layout: &'a Layout,
    pub(super) identity: &'a Identity,
}

impl Output<'_> {
    /// Drops what was on the device: erases the start, discards `bytes`, and zeroes what must be
    /// zero. Roll-forward of the new volume begins in the segment `chain`. Returns whether the
    /// device discarded.
    pub(super) fn prepare(&self, bytes: u64, chain: SegNo) -> Result<bool, Error> {
        erase(self.device)?;
        let trimmed = give_up(self.device, bytes)?;
        self.zero_areas(chain)?;
        Ok(trimmed)
    }

    pub(super) fn write_blocks(&self, block: u64, bytes: Vec<u8>) -> Result<(), Error> {
        Ok(self.device.write_at(block * BLOCK_BYTES, bytes)?)
    }

    /// Writes both checkpoint packs, and then the superblocks.
    pub(super) fn finish(
        &self,
        contents: &Contents,
        superblock: &Superblock,
        large_nat_bitmap: bool,
        trimmed: bool,
    ) -> Result<(), Error> {
        let Self { geometry, layout, identity, .. } = self;
        let large = large_nat_bitmap;
        for (at, bytes) in packs::blocks(geometry, layout, identity, contents, large, trimmed) {
            self.write_blocks(at.get(), bytes)?;
        }
        self.device.flush()?;
        write_superblocks(self.device, &superblock.encode())
    }

    /// Zeroes the checkpoint area, SIT and NAT, and old nodes that roll-forward could take for the
    /// new volume's; for a reproducible volume everything.
    fn zero_areas(&self, chain: SegNo) -> Result<(), Error> {
        let (layout, cp) = (self.layout, u64::from(self.layout.cp) * BLOCK_BYTES);
        // Summaries of free segments have no meaning.
        self.device.write_zeroes(cp, u64::from(layout.ssa) * BLOCK_BYTES - cp)?;
        if layout.features.contains(Features::BLKZONED) {
            // Sequential zones have been reset. Conventional zones contain at most the beginning of
            // the main area.
            return self.zero_conventional_main();
        }
        let (at, len) = if self.identity.reproducible {
            let segments = layout.ssa_segments + layout.main_segments;
            (u64::from(layout.ssa) * BLOCK_BYTES, u64::from(segments) * SEGMENT_BYTES)
        } else {
            (layout.address(chain, 0).bytes(), SEGMENT_BYTES)
        };
        Ok(self.device.write_zeroes(at, len)?)
    }

    /// Zeroes the part of the main area in conventional zones.
    fn zero_conventional_main(&self) -> Result<(), Error> {
        let zones =
            self.device.as_zoned().map_or(Ok(Vec::new()), |zoned| zoned.report(0, usize::MAX))?;
        let (start, main) = (
            u64::from(self.layout.main) * BLOCK_BYTES,
            u64::from(self.layout.main_segments) * SEGMENT_BYTES,
        );
        let first = zones.iter().find(|zone| zone.is_sequential()).map_or(start, |zone| zone.start);
        let len = first.clamp(start, start + main) - start;
        Ok(self.device.write_zeroes(start, len)?)
    }
}

/// Drops the old contents: resets whole zones and discards the rest, if the device can. Returns
/// whether it did.
fn give_up(device: &dyn BlockDevice, bytes: u64) -> Result<bool, Error> {
    let Some(zoned) = device.as_zoned() else {
        return Ok(device.geometry().discard && device.discard(0, bytes).is_ok());
    };
    for zone in zoned.report(0, usize::MAX)? {
        if zone.is_sequential() {
            zoned.reset(zone.start)?;
        } else if device.geometry().discard {
            // A discard is a hint: areas that must be zero are written later.
            let _ = device.discard(zone.start, zone.len.min(bytes.saturating_sub(zone.start)));
        }
    }
    Ok(true)
}

/// Erases the start, so that an interrupted run leaves nothing that looks like a filesystem.
fn erase(device: &dyn BlockDevice) -> Result<(), Error> {
    device.write_at(0, vec![0; 2 * BLOCK_SIZE])?;
    Ok(device.flush()?)
}

/// Writes the backup first: if the primary is on the device, so is the backup.
fn write_superblocks(device: &dyn BlockDevice, bytes: &[u8]) -> Result<(), Error> {
    let mut block = vec![0; BLOCK_SIZE];
    block[superblock::OFFSET..].copy_from_slice(bytes);
    for at in [BLOCK_BYTES, 0] {
        device.write_at(at, block.clone())?;
        device.flush()?;
    }
    Ok(())
}
