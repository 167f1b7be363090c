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
use cairn_block::BlockDevice;

use crate::format::{Layout, Log};

mod casefold;
mod created;
mod error;
mod extensions;
mod features;
mod geometry;
mod identity;
mod medium;
mod options;
mod output;
mod packs;
pub mod populate;
mod quota;
mod super_block;
mod tree;

use identity::Identity;
use medium::Medium;
use output::Output;
use tree::Tree;

pub use created::CreatedVolume;
pub use error::Error;
pub(crate) use geometry::{Geometry, spare_segments};
pub use medium::NamedDevice;
pub use options::MkfsOptions;

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
    let choice = features::choose(options)?;
    options.check()?;
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
        (&choice, tree::quota_inodes(&choice)),
        &identity,
        options.label.as_deref(),
        sectors,
        &paths,
    )?;
    let layout = Layout::new(&superblock, bytes).expect("mkfs makes only what can be opened");
    let tree = Tree::new(&geometry, &layout, &identity, &choice.owners);

    let output =
        Output { device: &*device, geometry: &geometry, layout: &layout, identity: &identity };
    let trimmed = output.prepare(bytes, geometry.logs[Log::WarmNode.index()])?;
    for (address, block) in &tree.blocks {
        output.write_blocks(address.pba().get(), block.clone())?;
    }
    output.write_blocks(layout.nat.into(), tree.first_nat_block())?;
    let contents = tree.contents(&geometry);
    output.finish(&contents, &superblock, options.large_nat_bitmap, trimmed)?;
    Ok(CreatedVolume::new(&geometry, choice.features, &identity))
}

#[cfg(test)]
mod tests;
