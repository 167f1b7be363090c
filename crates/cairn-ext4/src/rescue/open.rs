//! Opens a volume, and replays its log in memory as far as it is sound.

use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::{Images, JournalArea, Remains};

use crate::error::Result;
use crate::fast_commit::ReplayTarget;
use crate::format::features::Incompat;
use crate::journal_area;
use crate::raw::{RawVolume, SuperblockChoice, journal};
use crate::recovery;

/// Bytes of buffers for the replay.
const BUDGET: u64 = 64 << 20;

/// The volume with what its log holds, and a note of group descriptors that come from backups.
///
/// # Errors
/// There is no superblock as asked for, or the device failed.
pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    choice: SuperblockChoice,
    runtime: &Arc<dyn Runtime>,
) -> Result<RawVolume> {
    let mut volume = replayed(device, choice, runtime)?;
    let backups = (0..volume.layout.groups).filter(|group| volume.is_desc_backup(*group)).count();
    if backups > 0 {
        let groups = volume.layout.groups;
        volume.notes.push(format!(
            "the descriptors of {backups} of {groups} groups are damaged: those of a backup are \
             used"
        ));
    }
    Ok(volume)
}

fn replayed(
    device: Arc<dyn BlockDevice>,
    choice: SuperblockChoice,
    runtime: &Arc<dyn Runtime>,
) -> Result<RawVolume> {
    let volume = RawVolume::open(device.clone(), choice)?;
    // No backup says whether the log has anything: it is as old as the volume.
    let says_clean = !volume.superblock.features().incompat(Incompat::RECOVER);
    if says_clean && volume.backup.is_none() && !holds_log(&volume) {
        return Ok(volume);
    }
    let overlay: Arc<dyn BlockDevice> = match Overlay::new(device) {
        Ok(overlay) => Arc::new(overlay),
        Err(_) => return Ok(volume),
    };
    let (mut notes, mut is_whole) = (volume.notes.clone(), true);
    if let Err(why) = replay(&volume, &overlay, runtime) {
        notes.push(format!("the journal is not replayed in whole: {why}"));
        is_whole = false;
    }
    let mut fresh = RawVolume::open(overlay, choice).unwrap_or(volume);
    fresh.notes = notes;
    fresh.lacks_log = !is_whole;
    Ok(fresh)
}

/// Does the log hold changes that the superblock does not ask for? A mount replays them.
fn holds_log(volume: &RawVolume) -> bool {
    let area = journal::area(volume).ok().flatten();
    area.is_some_and(|area| {
        let is_old = || journal_area::old_log(&area, &volume.superblock);
        journal_area::is_begun(&area) && !is_old().is_ok_and(|old| old.is_some())
    })
}

/// Replays the log into the overlay: with its fast commits, or else what is sound of it.
fn replay(
    volume: &RawVolume,
    overlay: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
) -> Result<(), String> {
    let area = journal::area(volume).map_err(|error| error.to_string())?;
    let Some(mut area) = area else { return Ok(()) };
    area.device = overlay.clone();
    let (budget, images) = (Budget::new(BUDGET), Images::new());
    let target = ReplayTarget { device: overlay, budget: &budget, runtime, images: &images };
    let buffers = BufferCache::new(overlay.clone(), volume.layout.block_size, budget.clone());
    // If that fails, the replay does, too, and says why.
    let _ = cairn_jbd2::correct_superblock(&area);
    let _ = cairn_jbd2::restore_field(&area);
    let whole = recovery::replay(&area, &target, buffers, volume.layout, true);
    let Err(why) = whole.map_err(|error| error.to_string()) else { return Ok(()) };
    let sound = cairn_jbd2::remains(&area).map_err(|error| error.to_string())?;
    if sound.is_whole() && !sound.corrected.is_empty() {
        cairn_jbd2::write_corrected(&area, &sound).map_err(|error| error.to_string())?;
        let buffers = BufferCache::new(overlay.clone(), volume.layout.block_size, budget.clone());
        if recovery::replay(&area, &target, buffers, volume.layout, true).is_ok() {
            return Ok(());
        }
    }
    let images = sound.images.iter().filter(|(pba, _)| volume.layout.contains(**pba, 1));
    for (pba, image) in images {
        let at = pba.get().saturating_mul(volume.layout.block_size.into());
        // Beyond the end of the device there is nothing to be read, either.
        let _ = overlay.write_at(at, image.to_vec());
    }
    // Beside a damaged superblock, the replay cannot end. That the log is empty need not be written
    // here, and fast commits are all that may be missing.
    let is_followed = follow(&area, &target, volume, &sound);
    if sound.is_whole() && is_followed { Ok(()) } else { Err(why) }
}

/// Applies the fast commits behind what is sound of a log. False if some of them are missing.
fn follow(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    volume: &RawVolume,
    sound: &Remains,
) -> bool {
    let Ok((commits, is_damaged)) = cairn_jbd2::fast_commits_of(area, sound.end) else {
        return false;
    };
    let apply = || recovery::apply_fast_commits(area, target, volume.layout, &commits);
    let is_applied =
        commits.is_empty() || (cairn_jbd2::mark_empty(area, sound.next).is_ok() && apply().is_ok());
    is_applied && !is_damaged
}
