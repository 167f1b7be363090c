//! Creates a volume with the present defaults of mke2fs.
//!
//! First `plan` decides features, sizes and the place of every structure. Then everything is
//! written: zeros for inode tables and journal, files, bitmaps, descriptors, and the primary
//! superblock last, so that an interrupted run leaves no filesystem. Nothing is left for lazy
//! initialisation.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, Geometry};

use crate::error::{Error, Result};
use crate::format::features::Features;

pub(crate) mod added;
mod block_map;
mod created;
mod features;
mod files;
mod groups;
mod identity;
pub(crate) mod journal;
mod options;
mod output;
mod plan;
pub mod populate;
mod ranges;
mod sizes;

use identity::Identity;
use plan::Plan;

pub use created::CreatedVolume;
pub use options::MkfsOptions;

/// Creates an ext4 volume on `device` and replaces its contents.
///
/// # Errors
/// [`crate::Error::Option`] if options contradict each other or do not fit the device; the device
/// failed.
pub fn make(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<CreatedVolume> {
    let identity = Identity::new(options, runtime);
    let mut plan = plan(&*device, options, &identity)?;
    let mut output = output::Output::new(device, plan.layout.block_size);
    output.erase_signature()?;
    plan.place_tables()?;
    plan.zero_tables(&mut output)?;
    files::write(&mut plan, &mut output, &identity)?;
    groups::write(&mut plan, &mut output)?;
    Ok(CreatedVolume::new(&plan))
}

/// The plan of a volume whose blocks are not smaller than the device's sectors: nobody could mount
/// it.
fn plan(device: &dyn BlockDevice, options: &MkfsOptions, identity: &Identity) -> Result<Plan> {
    let Geometry { size, logical_block, .. } = device.geometry();
    let plan = Plan::new(options, size, identity, Features::default())?;
    match (plan.layout.block_size, options.block_size) {
        (blocks, _) if blocks.is_multiple_of(logical_block.max(1)) => Ok(plan),
        (blocks, Some(_)) => Err(Error::Option(format!(
            "blocks of {blocks} bytes are smaller than the sectors of the device: give at least \
             {logical_block}"
        ))),
        (_, None) => {
            let options = MkfsOptions { block_size: Some(logical_block), ..options.clone() };
            Plan::new(&options, size, identity, Features::default())
        }
    }
}

#[cfg(test)]
mod tests;
