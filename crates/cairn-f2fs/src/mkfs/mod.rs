//! Making a volume, as mkfs.f2fs does with its defaults.
//!
//! Everything is decided first: features, geometry, the root directory's blocks. Then it is
//! written: what was there is discarded, the tables are zeroed, nodes and tables, both checkpoint
//! packs, and the superblocks last, so that an interrupted run leaves no filesystem. Unlike
//! mkfs.f2fs's, the second pack is complete: a volume whose first pack is lost before the first
//! mount opens as what it is, empty.
//!
//! **Old node blocks.** Roll-forward follows node blocks that carry the last checkpoint's version.
//! A volume made where another one was must not meet that one's: the version is random, and the
//! block where the chain would begin is zeroed. A reproducible volume cannot have a random version;
//! it gets a main area of zeros instead.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, BlockDeviceExt};
use uuid::Uuid;

use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, BLOCKS_PER_SEGMENT, SEGMENT_BYTES};
use crate::format::{Features, Layout, Log, superblock};

mod error;
mod extensions;
mod features;
mod geometry;
mod identity;
mod medium;
mod options;
mod packs;
mod super_block;
mod tree;

use identity::Identity;
use medium::Medium;
use tree::Tree;

pub use error::Error;
pub(crate) use geometry::{Geometry, spare_segments};
pub use medium::NamedDevice;
pub use options::MkfsOptions;

/// The volume that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedVolume {
    /// UUID.
    pub(crate) uuid: Uuid,
    /// Blocks of 4096 bytes.
    pub(crate) blocks: u64,
    /// Blocks that users can have.
    pub user_blocks: u64,
    /// Feature names.
    pub(crate) features: Vec<String>,
}

/// Makes an F2FS volume on `device`, replacing its contents.
///
/// # Errors
/// Options that do not fit each other or the device, or a device error.
pub fn make(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<CreatedVolume, Error> {
    make_on(&[NamedDevice { path: String::new(), device }], options, runtime)
}

/// Makes an F2FS volume on several devices, the first of which gets the metadata. Their paths go to
/// the superblock: the next mount finds them there.
///
/// # Errors
/// As [`make`].
///
/// # Panics
/// There is no device.
pub fn make_on(
    devices: &[NamedDevice],
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<CreatedVolume, Error> {
    let mut features = features::choose(&options.features)?;
    features.set(Features::BLKZONED, options.zoned);
    check(options)?;
    if options.size.is_some() && devices.len() > 1 {
        return Err(Error::Option(
            "a volume on several devices takes them whole: give no size".into(),
        ));
    }
    let medium = Medium::of(devices, options.size)?;
    let geometry = Geometry::new(medium, options)?;
    let device = medium::whole(devices, &geometry.device_bytes())?;
    let bytes = options.size.unwrap_or(device.geometry().size);
    let identity = Identity::new(options, runtime);
    let sectors = device.geometry().logical_block;
    let paths: Vec<String> = devices.iter().map(|named| named.path.clone()).collect();
    let superblock = super_block::build(
        &geometry,
        features,
        &identity,
        options.label.as_deref(),
        sectors,
        &paths,
    )?;
    let layout = Layout::new(&superblock, bytes).expect("mkfs makes only what can be opened");
    let tree = Tree::new(&geometry, &layout, &identity);

    erase(&*device)?;
    let trimmed = give_up(&*device, bytes)?;
    let maker = Maker {
        device: &*device,
        geometry: &geometry,
        layout: &layout,
        identity: &identity,
        tree: &tree,
    };
    maker.zero_areas()?;
    maker.write_tree()?;
    maker.write_packs(options.large_nat_bitmap, trimmed)?;
    device.flush()?;
    write_superblocks(&*device, &superblock.encode())?;
    Ok(CreatedVolume {
        uuid: identity.uuid,
        blocks: geometry.block_count,
        user_blocks: geometry.user_blocks,
        features: features.names(),
    })
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

fn check(options: &MkfsOptions) -> Result<(), Error> {
    if options.overprovision.is_some_and(|percent| !(percent > 0.0 && percent < 100.0)) {
        return Err(Error::Option("the overprovision is a percentage between 0 and 100".into()));
    }
    Ok(())
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

/// Everything that is written.
struct Maker<'a> {
    device: &'a dyn BlockDevice,
    geometry: &'a Geometry,
    layout: &'a Layout,
    identity: &'a Identity,
    tree: &'a Tree,
}

impl Maker<'_> {
    fn write_blocks(&self, block: u64, bytes: Vec<u8>) -> Result<(), Error> {
        Ok(self.device.write_at(block * BLOCK_BYTES, bytes)?)
    }

    /// Zeroes the checkpoint area, SIT and NAT, and old nodes that roll-forward could take for the
    /// new volume's.
    fn zero_areas(&self) -> Result<(), Error> {
        let (layout, cp) = (self.layout, u64::from(self.layout.cp) * BLOCK_BYTES);
        self.device.write_zeroes(cp, u64::from(layout.ssa) * BLOCK_BYTES - cp)?;
        if layout.features.contains(Features::BLKZONED) {
            // Sequential zones have been reset. Conventional zones contain at most the beginning of
            // the main area.
            return self.zero_conventional_main();
        }
        let (at, len) = if self.identity.reproducible {
            (u64::from(layout.main) * BLOCK_BYTES, u64::from(layout.main_segments) * SEGMENT_BYTES)
        } else {
            let segment = self.geometry.logs[Log::WarmNode.index()];
            (layout.address(segment, 0).bytes(), u64::from(BLOCKS_PER_SEGMENT) * BLOCK_BYTES)
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

    fn write_tree(&self) -> Result<(), Error> {
        for (address, block) in &self.tree.blocks {
            self.write_blocks(address.pba().get(), block.clone())?;
        }
        self.write_blocks(self.layout.nat.into(), self.tree.first_nat_block())
    }

    fn write_packs(&self, large_nat_bitmap: bool, trimmed: bool) -> Result<(), Error> {
        for (at, bytes) in packs::blocks(
            self.geometry,
            self.layout,
            self.identity,
            self.tree,
            large_nat_bitmap,
            trimmed,
        ) {
            self.write_blocks(at.get(), bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
