//! After a crash: the journal's replay, and inodes that were being deleted or cut.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino, Pba};
use cairn_cache::block::BufferCache;
use cairn_cache::mapper::Run;
use cairn_cache::status::State as Mapped;
use cairn_jbd2::Images;
use cairn_jbd2::{Error as JournalError, FastCommit, JournalArea};

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::fast_commit::{self, ReplayTarget};
use crate::format::extent::SystemBlocks;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::inode::truncate;
use crate::map::{BlockMap, MapContext, NoSource};
use crate::orphan::Slot;
use crate::superblock::LiveSuperblock;
use crate::volume::Volume;

/// Most extents a system file is taken to have: more means a loop or a lie.
const MAX_SYSTEM_EXTENTS: usize = 1 << 20;

/// Extents of a system file (journal, orphan file), read straight from its record: volume structures need not be open. `system`: what
/// is known of them.
pub(crate) fn file_extents(
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    system: SystemBlocks<'_>,
    ino: Ino,
) -> Result<Vec<(FileBlock, Pba, u64)>> {
    let record = raw_record(layout, buffers, ino)?;
    let seed = layout.checksum.for_inode(ino, record.generation);
    let context = MapContext { ino, seed, layout, system, buffers, source: &NoSource };
    let map = BlockMap::new(context, record.flags.contains(InodeFlags::EXTENTS));
    let blocks = record.size / u64::from(layout.block_size);
    let mut extents = Vec::new();
    let mut at = 0;
    while at < blocks {
        let found = map.lookup(&record.block, FileBlock(at))?;
        let part = found.clip(at, blocks);
        match part.map(|part| (part.state, part.len)) {
            Some((Mapped::Mapped(pba), len)) if extents.len() < MAX_SYSTEM_EXTENTS => {
                extents.push((FileBlock(at), pba, len));
                at += len;
            }
            _ => {
                let what = "hole in a system file";
                return Err(Corrupt::Mapping { ino, at: FileBlock(at), pba: Pba(0), what, value: 0 }.into());
            }
        }
    }
    Ok(extents)
}

/// An inode record, found through its group's descriptor alone.
fn raw_record(layout: &Layout, buffers: &Arc<BufferCache>, ino: Ino) -> Result<Record> {
    let location = crate::groups::locate_unopened(buffers, layout, ino)?;
    let image = buffers.get(location.pba)?.image();
    let end = location.offset + layout.inode_size as usize;
    let raw = image.get(location.offset..end).unwrap_or_default();
    Ok(Record::decode(raw, ino, layout)?)
}

/// What a replay leaves.
pub(crate) struct Replayed {
    /// Buffers that show it.
    pub buffers: Arc<BufferCache>,
    /// The layout, which may have changed.
    pub layout: Layout,
    /// Why the volume must not be written although it could be.
    pub refused: Option<Arc<str>>,
}

/// Replays an unclean journal, fast commits included: to the device if the volume is writable, else over the device in
/// memory. What was read before may be stale afterwards, so buffers and layout are made anew.
///
/// A log with a damaged transaction is not replayed: the volume shows what comes before, read-only, until e2fsck has run.
pub(crate) fn replay(
    area: &JournalArea,
    target: &ReplayTarget<'_>,
    buffers: Arc<BufferCache>,
    layout: Layout,
    writable: bool,
) -> Result<Replayed> {
    match replay_whole(area, target, buffers, layout, writable) {
        Err(Error::Journal(damage @ JournalError::Checksum { .. })) => salvage(area, target, writable, &damage),
        other => other,
    }
}

fn salvage(area: &JournalArea, target: &ReplayTarget<'_>, writable: bool, damage: &JournalError) -> Result<Replayed> {
    let overlay = over(target, cairn_jbd2::salvage_in_memory(area)?);
    tracing::error!(%damage, "a committed transaction of the journal is damaged: run e2fsck");
    if writable {
        cairn_jbd2::note_damage(area)?;
    }
    let buffers = BufferCache::with_overlay(target.device.clone(), area.block_size, target.budget.clone(), overlay);
    let layout = layout_of(&buffers, target)?;
    let reason = format!(
        "a committed transaction of the journal is damaged ({damage}); what comes before it is shown: run e2fsck"
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

/// The log's last state with the fast commits after it. If they do not fit, the volume stays as the log has it, read-only.
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
            tracing::info!(transactions = done.transactions, fast_commits = commits.len(), "journal replayed");
            let buffers = BufferCache::new(target.device.clone(), layout.block_size, target.budget.clone());
            let layout = layout_of(&buffers, target)?;
            Ok(Replayed { buffers, layout, refused: None })
        }
        Ok(()) => Ok(Replayed { buffers, layout, refused: None }),
        Err(error @ (Error::Device(_) | Error::Journal(_))) => Err(error),
        Err(error) => {
            let reason = format!(
                "the last changes, made by fast commits, cannot be replayed and are not shown ({error}); \
                 run `e2fsck` or mount with Linux once"
            );
            let buffers = overlaid(area, target, layout.block_size)?;
            Ok(Replayed { buffers, layout, refused: Some(reason.into()) })
        }
    }
}

/// Buffers that show the replayed log over the device.
fn overlaid(area: &JournalArea, target: &ReplayTarget<'_>, block_size: u32) -> Result<Arc<BufferCache>> {
    let overlay = over(target, cairn_jbd2::replay_in_memory(area)?);
    Ok(BufferCache::with_overlay(target.device.clone(), block_size, target.budget.clone(), overlay))
}

/// What the log has over what a backup has: a block that was committed is newer.
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

/// Finishes what the orphan records tell: nameless inodes are deleted, others cut to their size. One that cannot be is left to
/// e2fsck, which the superblock asks for; nobody is kept from mounting for it.
pub(crate) fn finish_orphans(volume: &Arc<Volume>, slots: Vec<(Ino, Slot)>) -> Result<()> {
    let (listed, whole) = orphan_list(volume)?;
    if let Err(error) = volume.observe(whole) {
        tracing::warn!(%error, "the list of orphans ends early: run e2fsck");
        note_if_unread(volume, &error);
        if listed.is_empty() {
            clear_list(volume)?;
        }
    }
    let in_file: Vec<Ino> = slots.iter().map(|(ino, _)| *ino).collect();
    let all: Vec<Ino> = in_file.iter().chain(&listed).copied().collect();
    volume.orphans.adopt(slots, listed);
    for ino in in_file {
        drop_stale_slot(volume, ino)?;
    }
    for ino in all.into_iter().filter(|ino| volume.orphans.contains(*ino)) {
        if let Err(error) = volume.observe(finish_orphan(volume, ino)) {
            tracing::warn!(%ino, %error, "an orphan could not be deleted or cut: run e2fsck");
            note_if_unread(volume, &error);
            if volume.is_read_only() {
                break;
            }
            drop_record(volume, ino)?;
        }
    }
    Ok(())
}

fn finish_orphan(volume: &Arc<Volume>, ino: Ino) -> Result<()> {
    let inode = volume.inode(ino)?;
    if inode.state.read().record.links == 0 {
        crate::inode::delete::delete_inode(volume, &inode)
    } else {
        truncate::finish(volume, &inode)
    }
}

/// Damage has been noted; an orphan that could not be read is one for e2fsck, too.
fn note_if_unread(volume: &Volume, error: &Error) {
    if !matches!(error, Error::Corrupt(_)) && !volume.is_read_only() {
        volume.note_damage(error);
    }
}

fn clear_list(volume: &Volume) -> Result<()> {
    if volume.is_read_only() {
        return Ok(());
    }
    let handle = volume.begin(volume.credits.orphan)?;
    volume.superblock.set_last_orphan(volume, &handle, 0)?;
    handle.finish();
    Ok(())
}

/// Takes an orphan off the records.
fn drop_record(volume: &Volume, ino: Ino) -> Result<()> {
    let handle = volume.begin(volume.credits.orphan)?;
    volume.orphans.remove(volume, &handle, ino)?;
    handle.finish();
    Ok(())
}

/// e2fsck 1.47 deletes the orphans of a replayed journal and leaves their slots in the orphan file.
fn drop_stale_slot(volume: &Arc<Volume>, ino: Ino) -> Result<()> {
    if volume.groups.inode_in_use(ino)? {
        return Ok(());
    }
    drop_record(volume, ino)
}

/// The list that starts in the superblock, head first, as far as it can be followed; and why no further.
pub(crate) fn orphan_list(volume: &Volume) -> Result<(Vec<Ino>, Result<()>)> {
    let mut next = volume.superblock.read(&volume.buffers)?.raw.s_last_orphan.get();
    let mut members = Vec::new();
    let mut seen = std::collections::HashSet::new();
    while next != 0 {
        let ino = Ino(u64::from(next));
        if next > volume.layout.inodes_count || !seen.insert(next) {
            let what = "orphan list leaves the volume or runs in a circle";
            return Ok((members, Err(Corrupt::Orphan { what, value: u64::from(next) }.into())));
        }
        next = match volume.read_record(ino) {
            Ok(record) => record.dtime,
            Err(error) => return Ok((members, Err(error))),
        };
        members.push(ino);
    }
    Ok((members, Ok(())))
}

/// Everything from a byte on, in blocks.
pub(crate) fn blocks_from(layout: &Layout, size: u64) -> Run {
    let first = size.div_ceil(u64::from(layout.block_size));
    Run { start: FileBlock(first), len: u64::MAX - first }
}
