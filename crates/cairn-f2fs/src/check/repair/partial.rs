//! A repair that leaves something must not leave a volume that is harder to mount than before.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_block::wrap::Overlay;
use cairn_check::Findings;

use super::super::replay;
use super::super::volume::Volume;
use super::recovery::CACHE_BYTES;
use crate::error::{Error, Result};
use crate::format::units::SegNo;
use crate::options::MountOptions;

/// Does everything that mounts the volume before the repair mount it after the repair?
///
/// # Errors
/// The device failed.
pub(super) fn is_no_worse(
    before: &Arc<dyn BlockDevice>,
    after: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
) -> Result<bool> {
    if without_damage(are_counts_right(before))? && !without_damage(are_counts_right(after))? {
        return Ok(false);
    }
    Ok(is_mounted(after, runtime)? || !is_mounted(before, runtime)?)
}

/// Linux mounts no volume whose SIT has another number of nodes than the checkpoint counts, or more
/// blocks.
fn are_counts_right(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    let Some(volume) = Volume::open(device.clone(), &Findings::new())? else { return Ok(false) };
    let (mut nodes, mut all) = (0_u64, 0_u64);
    for segno in (0..volume.layout.main_segments).map(SegNo) {
        let Some(entry) = volume.sit_entry(segno)? else { return Ok(false) };
        let valid = u64::from(entry.valid_blocks());
        all = all.saturating_add(valid);
        if entry.log.is_node() {
            nodes = nodes.saturating_add(valid);
        }
    }
    let checkpoint = &volume.loaded.checkpoint;
    Ok(nodes == u64::from(checkpoint.valid_node_count) && all <= checkpoint.valid_block_count)
}

/// Does Cairn mount the volume, and recover what was fsynced?
fn is_mounted(device: &Arc<dyn BlockDevice>, runtime: &Arc<dyn Runtime>) -> Result<bool> {
    let above: Arc<dyn BlockDevice> = Arc::new(Overlay::new(device.clone())?);
    let options = MountOptions { cache_bytes: CACHE_BYTES, ..MountOptions::default() };
    let mounted = replay::recovered(above, runtime.clone(), &options);
    without_damage(mounted.map(|_| true))
}

/// Damage is no error: then it is not so.
fn without_damage(result: Result<bool>) -> Result<bool> {
    match result {
        Err(error @ (Error::Device(_) | Error::Data(_))) => Err(error),
        Err(_) => Ok(false),
        known => known,
    }
}
