//! Replays the journal after a crash.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_jbd2::Images;
use cairn_jbd2::{FastCommit, JournalArea};

use crate::error::{Error, Result};
use crate::fast_commit::{self, ReplayTarget};
use crate::format::features::Incompat;
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::journal_area::old_log;
use crate::replayed_device::ReplayedDevice;
use crate::store::LiveSuperblock;

/// Result of a replay.
pub(crate) struct Replayed {
    /// Buffers with the replayed contents.
    pub buffers: Arc<BufferCache>,
    /// The layout, which the replay may change.
    pub layout: Layout,
    /// The device, with what the log holds.
    pub device: Arc<dyn BlockDevice>,
}

/// Marks a log as empty that is older than the volume ([`old_log`]). True if nothing is to be
/// replayed: the log is such a one, or is empty, and the superblock asks for no recovery.
/// Transactions that are left in the journal then were replayed or cleared.
///
/// # Errors
/// The device failed.
pub(crate) fn forget_old(
    area: &JournalArea,
    superblock: &Superblock,
    writable: bool,
) -> Result<bool> {
    let asks = superblock.features().incompat(Incompat::RECOVER);
    if !asks && cairn_jbd2::read_superblock(area).is_ok_and(|log| log.start == 0) {
        return Ok(true);
    }
    let Some(next) = old_log(area, superblock)? else { return Ok(false) };
    tracing::warn!("the log of the journal is older than the volume: it is not replayed");
    if writable {
        cairn_jbd2::mark_empty(area, next)?;
    }
    Ok(true)
}

/// Replays an unclean journal with its fast commits: to the device if the volume is writable,
/// otherwise in memory. Everything that was read before may be stale, so buffers and layout are
/// new.
///
/// # Errors
/// The device failed. [`Error::Unreplayable`] if a committed transaction of the log, a fast commit,
/// or the journal's superblock is damaged: nothing was written.
pub(crate) fn replay(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
) -> Result<Replayed> {
    let of_log = |error| Error::from(error).of_journal();
    if let Some(lost) = cairn_jbd2::lost_field(area).map_err(of_log)? {
        let (block, what, value) = (0, lost.field, lost.stored.into());
        let expected = "what leads to the log, which has a committed transaction";
        return Err(of_log(cairn_jbd2::Error::Corrupt { block, what, value, expected }));
    }
    let commits = cairn_jbd2::fast_commits(area).map_err(of_log)?;
    replay_with(area, target, buffers, layout, writable, &commits).map_err(of_journal)
}

/// As [`replay`], but only with the fast commits before the first that is damaged.
///
/// # Errors
/// As [`replay`].
pub(crate) fn replay_intact(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
) -> Result<Replayed> {
    let commits = cairn_jbd2::intact_fast_commits(area)?;
    replay_with(area, target, buffers, layout, writable, &commits).map_err(of_journal)
}

fn of_journal(error: Error) -> Error {
    match error {
        Error::Journal(_) => error.of_journal(),
        other => other,
    }
}

fn replay_with(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
    commits: &[FastCommit],
) -> Result<Replayed> {
    let device = target.device.clone();
    if !commits.is_empty() {
        return replay_fast_commits(area, target, &layout, commits, writable);
    }
    if !writable {
        return overlaid(area, target, layout.block_size);
    }
    let done = cairn_jbd2::recover(area, target.device)?;
    if done.transactions == 0 {
        return Ok(Replayed { buffers, layout, device });
    }
    tracing::info!(transactions = done.transactions, blocks = done.blocks, "journal replayed");
    let buffers = BufferCache::new(device.clone(), layout.block_size, target.budget.clone());
    let layout = layout_of(&buffers, target)?;
    Ok(Replayed { buffers, layout, device })
}

/// The last state of the log with its fast commits.
fn replay_fast_commits(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    layout: &Layout,
    commits: &[FastCommit],
    writable: bool,
) -> Result<Replayed> {
    let replayed = overlaid(area, target, layout.block_size)?;
    let (buffers, layout) = (&replayed.buffers, replayed.layout);
    fast_commit::apply(target, buffers, layout, &area.extents, commits).map_err(
        |error| match error {
            Error::Device(_) | Error::Journal(_) => error,
            other => Error::Unreplayable(Box::new(other)),
        },
    )?;
    if !writable {
        return Ok(replayed);
    }
    let done = cairn_jbd2::recover_with(area, target.device, || buffers.write_back())?;
    tracing::info!(
        transactions = done.transactions,
        fast_commits = commits.len(),
        "journal replayed"
    );
    let device = target.device.clone();
    let buffers = BufferCache::new(device.clone(), layout.block_size, target.budget.clone());
    let layout = layout_of(&buffers, target)?;
    Ok(Replayed { buffers, layout, device })
}

/// Applies fast commits to a volume whose log is empty, because all that is known of it is on the
/// volume. Nothing is written if they do not fit.
///
/// # Errors
/// The device failed, or they do not fit the volume.
pub(crate) fn apply_fast_commits(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    layout: Layout,
    commits: &[FastCommit],
) -> Result<()> {
    let Replayed { buffers, layout, .. } = overlaid(area, target, layout.block_size)?;
    fast_commit::apply(target, &buffers, layout, &area.extents, commits)?;
    Ok(buffers.write_back()?)
}

/// Buffers and a device in which the replayed log replaces blocks of the device.
fn overlaid(area: &JournalArea, target: &ReplayTarget<'_>, block_size: u32) -> Result<Replayed> {
    let (below, budget) = (target.device.clone(), target.budget.clone());
    let log = cairn_jbd2::replay_in_memory(area)?;
    let device: Arc<dyn BlockDevice> = match log.is_empty() {
        true => below.clone(),
        false => Arc::new(ReplayedDevice::new(below.clone(), block_size, &log)),
    };
    let buffers = BufferCache::with_overlay(below, block_size, budget, over(target, log));
    let layout = layout_of(&buffers, target)?;
    Ok(Replayed { buffers, layout, device })
}

/// The blocks of the log together with those of a backup. A committed block is newer.
fn over(target: &ReplayTarget<'_>, log: Images) -> Images {
    let mut images = target.images.clone();
    images.extend(log);
    images
}

fn layout_of(buffers: &Arc<BufferCache>, target: &ReplayTarget<'_>) -> Result<Layout> {
    let block_size = buffers.block_size();
    let superblock = LiveSuperblock::new(block_size).read(buffers)?;
    Ok(Layout::new(&superblock, target.device.geometry().size)?)
}
