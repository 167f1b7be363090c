//! `checkpoint=disable`: writes one checkpoint, and none after it. Unmounting discards all later
//! changes; `checkpoint=enable` keeps them.
//!
//! That checkpoint is marked, so that the next mount ignores everything after it. Its blocks are
//! not overwritten: freed ones cannot be used again before checkpoints are enabled. Holes beyond
//! the overprovisioned space do not count as free either. The option's value limits how much that
//! may be at the start.

use std::sync::atomic::Ordering;

use crate::checkpoint::Reason;
use crate::error::{Error, Result};
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::options::UnusableCap;
use crate::store::Store;
use crate::sync::write_data;

/// Writes a checkpoint of all changes, and none after it. No other thread changes the volume
/// meanwhile.
///
/// # Errors
/// More than `cap` would be unusable, although cleaning was tried; or a write failed.
pub(crate) fn disable(ops: &Operations, cap: UnusableCap) -> Result<()> {
    let store = ops.store()?;
    write_data(ops)?;
    store.checkpoints.write(Reason::Sync)?;
    let cap = cap.blocks(store.space.user_blocks());
    let mut unusable = unusable_at_first(store);
    while unusable > cap {
        ops.cleaner.clean_one()?;
        let left = unusable_at_first(store);
        if left >= unusable {
            return Err(Error::Option(format!(
                "checkpoint=disable: {left} blocks would be unusable, and {cap} are allowed: give \
                 checkpoint=disable:{left}, or free some space"
            )));
        }
        unusable = left;
    }
    store.checkpoints.stop_merging();
    store.checkpoints.write(Reason::Pause)?;
    store.unusable_at_first.store(unusable, Ordering::Relaxed);
    Ok(())
}

/// Writes a checkpoint of all changes, and further ones from then on. No other thread changes the
/// volume meanwhile.
///
/// # Errors
/// A write failed.
pub(crate) fn enable(ops: &Operations) -> Result<()> {
    let store = ops.store()?;
    write_data(ops)?;
    store.checkpoints.write(Reason::Resume)?;
    store.space.unlimit();
    Ok(())
}

/// Starts or ends the daemon that merges checkpoints. It runs while the volume is writable,
/// checkpoints are enabled, and the option is on.
pub(crate) fn switch_merging(mount: &MountState) {
    let Some(store) = &mount.disk.store else { return };
    let wanted = mount.options().checkpoint_merge;
    if wanted && !mount.is_read_only() && !store.checkpoints.is_disabled() {
        store.checkpoints.start_merging();
    } else {
        store.checkpoints.stop_merging();
    }
}

/// Blocks in holes of segments, of data or of nodes (whichever is more), beyond the space that is
/// overprovisioned anyway.
fn unusable_at_first(store: &Store) -> u64 {
    let holes = store.segments.holes().into_iter().max().unwrap_or(0);
    let overprovision =
        u64::from(store.space.overprovision_segments()) * u64::from(BLOCKS_PER_SEGMENT);
    let reserved =
        u64::from(store.space.reserved_sections()) * u64::from(store.layout.section_capacity());
    holes.saturating_sub(overprovision.saturating_sub(reserved))
}
