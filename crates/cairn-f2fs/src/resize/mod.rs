//! Changes the size of a volume that nobody has mounted.
//!
//! What is moved is moved as cleaning does it, by a mounted volume (`Cleaner::evacuate`). It is
//! then unmounted, with a checkpoint that says that the size changes (`RESIZEFS`). Where the tables
//! stay, the superblock and a checkpoint for it follow (`in_place`): everything is written before
//! but one block of each, which are then written one after the other. A crash at any time leaves a
//! volume that the next mount for writing completes, or leaves as it was.
//!
//! A volume that grows so far that its tables become larger has them written anew, where nothing of
//! it is: first behind the place that they will have, then at that place (`crate::tables`). Each
//! of these is a whole volume, and one write of the superblock decides between them.
//!
//! A host without room for a write has not changed the volume, whose last checkpoint is whole.
//! [`needs`] says before how much may be written.

mod in_place;
mod plan;
mod room;

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_vfs::FileSystem;

use crate::checkpoint::load;
use crate::disk::write_superblocks;
use crate::error::{Error, Result};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};
use crate::format::{Checkpoint, CheckpointFlags, Features, Layout, SegNo, Superblock, sit};
use crate::gc::BackgroundGc;
use crate::options::MountOptions;
use crate::probe::probe;
use crate::sizes::{Sizes, adopted};
use crate::store::Store;
use crate::tables::{Areas, Tables};
use crate::volume::F2fs;

pub use room::needs;

use plan::{State, Step};

/// Memory for blocks that were read.
const CACHE_BYTES: u64 = 1 << 20;

/// Sizes before and after, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// Bytes of the volume on a device.
///
/// # Errors
/// There is no such volume, it is damaged, or the device failed.
pub fn size(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    Ok(state(device)?.block_count.saturating_mul(BLOCK_BYTES))
}

/// Bytes of the smallest volume that this one can become. It is recovered if it was not unmounted
/// cleanly.
///
/// # Errors
/// As [`size()`]; the volume cannot be recovered, or its size cannot change.
pub fn least(device: &Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<u64> {
    let found = state(device)?;
    let clean = found.checkpoint.flags.intersection(flags_between()) == CheckpointFlags::UMOUNT;
    if clean {
        return Ok(found.least());
    }
    open(device.clone(), runtime)?.unmount()?;
    Ok(state(device)?.least())
}

/// Refuses a size that a volume cannot have, if its device had it.
///
/// # Errors
/// As [`resize`].
pub fn check(device: &Arc<dyn BlockDevice>, bytes: u64) -> Result<()> {
    check_way(state(device)?, bytes)
}

/// Gives a volume the size of `wanted` bytes, which the device has already. It is recovered if it
/// was not unmounted cleanly.
///
/// # Errors
/// [`Error::Refused`] if the volume cannot have this size; it is damaged or cannot be recovered;
/// the device failed.
pub fn resize(
    device: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    wanted: u64,
) -> Result<Resized> {
    let found = state(device)?;
    let before = found.block_count.saturating_mul(BLOCK_BYTES);
    // What is refused is refused before anything is written.
    check_way(found, wanted)?;
    loop {
        let volume = open(device.clone(), runtime.clone())?;
        let found = state(device)?;
        let step = found.next(wanted);
        let done = step.and_then(|step| take(&volume, &found, &step, device).map(|()| step));
        // Where a step has failed before it closed the volume.
        let closed = volume.unmount();
        if done? == Step::Done {
            closed?;
            return Ok(Resized { before, after: size(device)? });
        }
    }
}

fn flags_between() -> CheckpointFlags {
    CheckpointFlags::UMOUNT | CheckpointFlags::RESIZEFS
}

/// Fails if one of the steps to a size is not possible.
fn check_way(mut state: State, wanted: u64) -> Result<()> {
    loop {
        let step = state.next(wanted)?;
        if matches!(step, Step::Done | Step::Shrink(..)) {
            return Ok(());
        }
        state = state.after(&step);
    }
}

/// The state that the last checkpoint describes.
fn state(device: &Arc<dyn BlockDevice>) -> Result<State> {
    let found = probe(&**device)?.ok_or(Error::NotF2fs { found: 0 })?;
    refuse(&found.superblock)?;
    let layout = found.layout;
    let buffers = BufferCache::new(device.clone(), BLOCK_SIZE as u32, Budget::new(CACHE_BYTES));
    Ok(State {
        layout,
        checkpoint: adopted(load(&buffers, &layout)?, &layout).checkpoint,
        areas: Areas::of(&layout),
        block_count: found.superblock.block_count,
    })
}

fn refuse(superblock: &Superblock) -> Result<()> {
    let features = superblock.features;
    let what = if features.contains(Features::BLKZONED) {
        "a zoned volume"
    } else if superblock.device_lengths().len() > 1 {
        "a volume on several devices"
    } else if features.contains(Features::RO) {
        "a volume with the feature ro"
    } else {
        return Ok(());
    };
    Err(Error::Refused(format!(
        "the size of {what} cannot change: make a new volume of that size with the same \
         files"
    )))
}

fn open(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<Arc<F2fs>> {
    let options = MountOptions { background_gc: BackgroundGc::Off, ..MountOptions::default() };
    let volume = F2fs::open(device, runtime, &options)?;
    match volume.read_only_reason() {
        Some(reason) => Err(Error::Refused(format!("it cannot be written: {reason}"))),
        None => Ok(volume),
    }
}

/// Makes one step. It closes the volume.
fn take(volume: &F2fs, found: &State, step: &Step, device: &Arc<dyn BlockDevice>) -> Result<()> {
    let superblock = &volume.disk.superblock;
    let per_section = found.layout.segs_per_sec;
    match *step {
        Step::Done => Ok(()),
        Step::Shrink(areas, sizes, blocks) => {
            let target = target(device, areas.put(superblock, blocks))?;
            let sections = areas.main_segments / per_section..found.layout.sections;
            evacuate(volume, sections)?;
            store(volume)?.segments.give_up_barred();
            close(volume)?;
            in_place::shrink(device, &found.layout, &target, sizes)
        }
        Step::Extend(areas, sizes, blocks) => {
            let target = target(device, areas.put(superblock, blocks))?;
            close(volume)?;
            clear_entries(volume, areas.main_segments)?;
            in_place::extend(device, &found.layout, &target, sizes)
        }
        Step::Move { between, last, sizes, blocks } => {
            let last = target(device, last.put(superblock, blocks))?;
            let tables = Tables::read(device, &found.layout);
            tables.and_then(|tables| tables.check_nids(last.segment_count_nat))?;
            let mut layout = found.layout;
            if let Some((areas, sizes)) = between {
                let freed = found.layout.main_segments - areas.main_segments;
                let between = target(device, areas.put(superblock, superblock.block_count))?;
                evacuate(volume, 0..freed / per_section)?;
                close(volume)?;
                layout = rewrite(volume, &layout, &between, sizes)?;
            } else {
                close(volume)?;
            }
            rewrite(volume, &layout, &last, sizes).map(drop)
        }
    }
}

/// A superblock that describes a possible volume on this device.
fn target(device: &Arc<dyn BlockDevice>, superblock: Superblock) -> Result<Superblock> {
    Layout::new(&superblock, device.geometry().size)?;
    Ok(superblock)
}

fn store(volume: &F2fs) -> Result<&Arc<Store>> {
    volume.mount.store()
}

fn evacuate(volume: &F2fs, sections: std::ops::Range<u32>) -> Result<()> {
    volume.cleaner.evacuate(sections).map_err(|error| match error {
        Error::Vfs(cairn_vfs::Error::NoSpace) => Error::Refused(
            "the files find no room in the rest of the volume: remove some, or give a larger size"
                .into(),
        ),
        other => other,
    })
}

/// Unmounts the volume, whose checkpoint then says that the size changes.
fn close(volume: &F2fs) -> Result<()> {
    store(volume)?.checkpoints.raise(CheckpointFlags::RESIZEFS);
    Ok(volume.unmount()?)
}

/// Writes the tables for the areas of another superblock, and then that.
fn rewrite(volume: &F2fs, old: &Layout, target: &Superblock, sizes: Sizes) -> Result<Layout> {
    let device = &volume.disk.device;
    let new = Layout::new(target, device.geometry().size)?;
    Tables::read(device, old)?.write(&new, sizes)?;
    write_superblocks(&**device, target)?;
    Ok(new)
}

/// Makes SIT entries empty that no segment has had so far. Entries of segments in the same block do
/// not change, so that even a torn write is harmless.
fn clear_entries(volume: &F2fs, main_segments: u32) -> Result<()> {
    let (device, layout) = (&volume.disk.device, &volume.disk.layout);
    let checkpoint: Checkpoint = store(volume)?.checkpoints.last();
    let first = Layout::sit_place(SegNo(layout.main_segments)).0;
    let end = main_segments.div_ceil(sit::SEGMENTS_PER_BLOCK);
    for block in first..end {
        let at = layout.sit_address(block, checkpoint.sit_side(block)).get() * BLOCK_BYTES;
        let old = device.read_at(at, BLOCK_SIZE)?.to_vec();
        let mut new = old.clone();
        let begin = block * sit::SEGMENTS_PER_BLOCK;
        for segno in begin.max(layout.main_segments)..begin + sit::SEGMENTS_PER_BLOCK {
            sit::clear_entry(&mut new, Layout::sit_place(SegNo(segno)).1);
        }
        if new != old {
            device.write_at(at, new)?;
        }
    }
    Ok(())
}
