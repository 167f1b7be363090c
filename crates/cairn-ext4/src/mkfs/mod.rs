//! Creates a volume with the present defaults of mke2fs.
//!
//! First `plan` decides features, sizes and the place of every structure. Then everything is
//! written: zeros for inode tables and journal, files, bitmaps, descriptors, and the primary
//! superblock last, so that an interrupted run leaves no filesystem. Nothing is left for lazy
//! initialisation.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use uuid::Uuid;

use crate::error::Result;

mod block_map;
mod features;
mod files;
mod groups;
mod identity;
mod options;
mod output;
mod plan;
mod ranges;

use identity::Identity;

pub use options::MkfsOptions;

/// What mkfs created.
#[derive(Clone, Debug)]
pub struct CreatedVolume {
    /// UUID.
    pub uuid: Uuid,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u64,
    /// Feature names.
    pub features: Vec<String>,
}

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
    let mut plan = plan::Plan::new(options, device.geometry().size, &identity)?;
    let mut output = output::Output::new(device, plan.layout.block_size);
    output.erase_signature()?;
    plan.place_tables(&mut output)?;
    files::write(&mut plan, &mut output, &identity)?;
    groups::write(&mut plan, &mut output)?;
    Ok(CreatedVolume {
        uuid: identity.uuid,
        block_size: plan.layout.block_size,
        blocks: plan.layout.blocks_count,
        inodes: plan.layout.inodes_count,
        journal_blocks: plan.journal_blocks,
        features: plan.layout.features.names(),
    })
}

#[cfg(test)]
mod tests;
