//! Replays the journal after a crash.

use std::sync::Arc;

use cairn_cache::block::BufferCache;
use cairn_jbd2::Images;
use cairn_jbd2::{Error as JournalError, FastCommit, JournalArea};

use crate::error::{Error, Result};
use crate::fast_commit::{self, ReplayTarget};
use crate::format::layout::Layout;
use crate::store::LiveSuperblock;

/// Result of a replay.
pub(crate) struct Replayed {
    /// Buffers with the replayed contents.
    pub buffers: Arc<BufferCache>,
    /// The layout, which the replay may change.
    pub layout: Layout,
    /// Why a writable volume must not be written.
    pub refused: Option<Arc<str>>,
}

/// Replays an unclean journal with its fast commits: to the device if the volume is writable,
/// otherwise in memory. Everything that was read before may be stale, so buffers and layout are
/// new.
///
/// If a transaction of the log is damaged, the log is not replayed: the volume shows the state
/// before that transaction and is read-only until e2fsck has run.
pub(crate) fn replay(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
) -> Result<Replayed> {
    match replay_whole(area, target, buffers, layout, writable) {
        Err(Error::Journal(damage @ JournalError::Checksum { .. })) => {
            salvage(area, target, writable, &damage)
        }
        other => other,
    }
}

fn salvage(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    writable: bool,
    damage: &JournalError,
) -> Result<Replayed> {
    let overlay = over(target, cairn_jbd2::salvage_in_memory(area)?);
    tracing::error!(%damage, "a committed transaction of the journal is damaged: repair all of it");
    if writable {
        cairn_jbd2::note_damage(area)?;
    }
    let buffers = BufferCache::with_overlay(
        target.device.clone(),
        area.block_size,
        target.budget.clone(),
        overlay,
    );
    let layout = layout_of(&buffers, target)?;
    let reason = format!(
        "a committed transaction of the journal is damaged ({damage}); the volume shows the state \
         before it: repair all of it"
    );
    Ok(Replayed { buffers, layout, refused: Some(reason.into()) })
}

fn replay_whole(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
) -> Result<Replayed> {
    let commits = cairn_jbd2::fast_commits(area)?;
    if !commits.is_empty() {
        return replay_fast_commits(area, target, &layout, &commits, writable);
    }
    let fresh = if writable {
        let done = cairn_jbd2::recover(area, target.device)?;
        if done.transactions == 0 {
            return Ok(Replayed { buffers, layout, refused: None });
        }
        tracing::info!(transactions = done.transactions, blocks = done.blocks, "journal replayed");
        BufferCache::new(target.device.clone(), layout.block_size, target.budget.clone())
    } else {
        overlaid(area, target, layout.block_size)?
    };
    let layout = layout_of(&fresh, target)?;
    Ok(Replayed { buffers: fresh, layout, refused: None })
}

/// The last state of the log with its fast commits. If those do not fit, the volume shows the state
/// without them and is read-only.
fn replay_fast_commits(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    layout: &Layout,
    commits: &[FastCommit],
    writable: bool,
) -> Result<Replayed> {
    let buffers = overlaid(area, target, layout.block_size)?;
    let layout = layout_of(&buffers, target)?;
    match fast_commit::apply(target, &buffers, layout, &area.extents, commits) {
        Ok(()) if writable => {
            let done = cairn_jbd2::recover_with(area, target.device, || buffers.write_back())?;
            tracing::info!(
                transactions = done.transactions,
                fast_commits = commits.len(),
                "journal replayed"
            );
            let buffers =
                BufferCache::new(target.device.clone(), layout.block_size, target.budget.clone());
            let layout = layout_of(&buffers, target)?;
            Ok(Replayed { buffers, layout, refused: None })
        }
        Ok(()) => Ok(Replayed { buffers, layout, refused: None }),
        Err(error @ (Error::Device(_) | Error::Journal(_))) => Err(error),
        Err(error) => {
            let reason = format!(
                "the last changes, made by fast commits, cannot be replayed and are not shown \
                 ({error}); mount with Linux once, or repair all of it, which drops them"
            );
            let buffers = overlaid(area, target, layout.block_size)?;
            Ok(Replayed { buffers, layout, refused: Some(reason.into()) })
        }
    }
}

/// Buffers in which the replayed log replaces blocks of the device.
fn overlaid(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    block_size: u32,
) -> Result<Arc<BufferCache>> {
    let overlay = over(target, cairn_jbd2::replay_in_memory(area)?);
    Ok(BufferCache::with_overlay(target.device.clone(), block_size, target.budget.clone(), overlay))
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
