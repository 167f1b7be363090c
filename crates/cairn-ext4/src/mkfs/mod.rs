//! Creates a volume with the present defaults of mke2fs.
//!
//! First `plan` decides features, sizes and the place of every structure. Then everything is
//! written: zeros for inode tables and journal, files, bitmaps, descriptors, and the primary
//! superblock last, so that an interrupted run leaves no filesystem. Nothing is left for lazy
//! initialisation.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;

use crate::error::Result;
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

use identity::Identity;

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
    let mut plan =
        plan::Plan::new(options, device.geometry().size, &identity, Features::default())?;
    let mut output = output::Output::new(device, plan.layout.block_size);
    output.erase_signature()?;
    plan.place_tables()?;
    plan.zero_tables(&mut output)?;
    files::write(&mut plan, &mut output, &identity)?;
    groups::write(&mut plan, &mut output)?;
    Ok(CreatedVolume::new(&plan))
}

#[cfg(test)]
mod tests;
