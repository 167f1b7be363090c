//! Completes a move of the tables that was interrupted in between.
//!
//! Larger tables need more room before the main area. They move twice: first behind the place that
//! they will have, then to it. A power cut in between leaves a whole volume that begins later than
//! it could. The next open for writing moves the tables to their place.

use std::sync::Arc;

use cairn_block::BlockDevice;

use super::{Areas, Tables};
use crate::disk::write_superblocks;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;
use crate::format::{Checkpoint, CheckpointFlags, Layout, Superblock};
use crate::sizes::Sizes;

/// The areas that the tables move to, if a move was interrupted in between.
fn place(superblock: &Superblock, layout: &Layout, flags: CheckpointFlags) -> Option<Areas> {
    let bytes = superblock.block_count.checked_mul(BLOCK_BYTES)?;
    let areas = Areas::of_new(layout, flags, bytes).ok()?;
    let fits = areas.main() <= u64::from(layout.cp) && areas.end() >= Areas::of(layout).end();
    fits.then_some(areas)
}

/// Moves the tables to their place, if a resize was interrupted in between. Nothing has happened
/// since the last checkpoint, which is `checkpoint`. Returns whether it did.
///
/// # Errors
/// The tables are damaged, or the device failed.
pub(crate) fn finish(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
    checkpoint: &Checkpoint,
) -> Result<bool> {
    let between = CheckpointFlags::RESIZEFS | CheckpointFlags::UMOUNT;
    if !checkpoint.flags.contains(between) {
        return Ok(false);
    }
    let Some(areas) = place(superblock, layout, checkpoint.flags) else { return Ok(false) };
    let moved = areas.put(superblock, superblock.block_count);
    let new = Layout::new(&moved, device.geometry().size)?;
    let (segments, valid) = (new.main_segments, checkpoint.valid_block_count);
    let sizes = Sizes::of(checkpoint).grown(segments, new.segs_per_sec, valid);
    let Some(sizes) = sizes else { return Ok(false) };
    tracing::info!("a change of the volume's size was interrupted: it is completed");
    let tables = Tables::read(device, layout)?;
    tables.check_nids(areas.nat)?;
    tables.write(&new, sizes)?;
    write_superblocks(&**device, &moved)?;
    Ok(true)
}
