//! Finds the blocks of the journal: by its inode, or by the copy of its map that the superblock
//! has.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::{Ino, Tid};
use cairn_block::BlockDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_jbd2::JournalArea;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::extent::{MAGIC, SystemBlocks};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{Inode as Record, InodeFlags, mode};
use crate::format::layout::{Layout, inodes};
use crate::format::superblock::Superblock;
use crate::info;
use crate::log_age::{self, Evidence};
use crate::system_file::{raw_record, record_extents};

/// Bytes of buffers for the journal's inode.
const BUDGET: u64 = 1 << 20;
/// `s_jnl_backup_type` of a copy of the map and size of the journal's inode.
const BACKUP_OF_BLOCKS: u8 = 1;
/// Why nobody replays a log that may be older than the volume.
pub(crate) const NOT_TELLING: &str =
    "a time that tells whether the log is newer than the volume, which asks for no recovery";

/// The blocks of the journal, read from its inode. `None` if the volume has none.
///
/// # Errors
/// It is on another device, its inode is damaged, or the device failed.
pub(crate) fn journal_area(
    superblock: &Superblock,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<JournalArea>> {
    if !layout.features.compat(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    if info::has_external_journal(superblock) {
        return Err(Error::Feature(info::EXTERNAL_JOURNAL.to_owned()));
    }
    let ino = number(superblock);
    let record = raw_record(layout, buffers, ino)?;
    for (field, value, is_wrong) in [
        ("i_mode", u64::from(record.mode), !record.is_regular()),
        ("i_links_count", u64::from(record.links), record.links == 0),
    ] {
        if is_wrong {
            return Err(
                Corrupt::Inode { ino, field, value, problem: "not that of a journal" }.into()
            );
        }
    }
    let extents = record_extents(layout, buffers, SystemBlocks::NONE, ino, &record)?;
    let (device, since) = (device.clone(), since(superblock));
    Ok(Some(JournalArea { device, block_size: layout.block_size, extents, since }))
}

/// Does the journal hold changes that a mount replays, whatever the superblock says? False if it
/// cannot be read: whoever needs it finds out why.
///
/// # Errors
/// The device failed.
pub(crate) fn holds_log(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<bool> {
    match readable(device, superblock, layout)? {
        Some(area) => Ok(is_begun(&area) && !matches!(age(&area, superblock)?, Age::Old(_))),
        None => Ok(false),
    }
}

/// Does the journal have a log, be it an old one? As [`holds_log`].
///
/// # Errors
/// As [`holds_log`].
pub(crate) fn has_start(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<bool> {
    Ok(readable(device, superblock, layout)?.is_some_and(|area| is_begun(&area)))
}

/// The journal, if it can be read.
fn readable(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<Option<JournalArea>> {
    let buffers = BufferCache::new(device.clone(), layout.block_size, Budget::new(BUDGET));
    match journal_area(superblock, layout, &buffers, device) {
        Err(error @ Error::Device(_)) => Err(error),
        found => Ok(found.ok().flatten()),
    }
}

/// Does the log hold changes? False if its superblock cannot be read.
pub(crate) fn is_begun(area: &JournalArea) -> bool {
    cairn_jbd2::read_superblock(area).is_ok_and(|log| log.start != 0)
}

/// How old a log is that no superblock asks for.
pub(crate) enum Age {
    /// It is older than the volume. The number for the next transaction.
    Old(Tid),
    /// It has changes that the volume lacks.
    New,
    /// Nothing tells. The number for the next transaction, and inodes that differ.
    Unknown(Tid, BTreeSet<Ino>),
}

/// Is the log from before the volume was last left in order? The superblock asks for no recovery,
/// and was written after all transactions of the journal: then the write that marked the log as
/// empty was lost. Linux clears any log that the superblock does not ask for. In the second of the
/// last commit, inodes tell.
///
/// # Errors
/// The device failed.
pub(crate) fn age(area: &JournalArea, superblock: &Superblock) -> Result<Age> {
    if superblock.features().incompat(Incompat::RECOVER) || !is_begun(area) {
        return Ok(Age::New);
    }
    let last = match cairn_jbd2::survey::last_commit(area) {
        Err(error @ cairn_jbd2::Error::Device(_)) => return Err(error.into()),
        found => found.unwrap_or(None),
    };
    let written = superblock.written();
    let Some((time, next)) = last.filter(|(time, _)| *time <= written) else { return Ok(Age::New) };
    if time < written {
        return Ok(Age::Old(next));
    }
    let layout = Layout::new(superblock, area.device.geometry().size)?;
    Ok(match log_age::compare(area, &layout)? {
        Evidence::Volume => Age::Old(next),
        Evidence::Log => Age::New,
        Evidence::None(inodes) => Age::Unknown(next, inodes),
    })
}

/// Is the log an old one ([`age`])? Returns the number for the next transaction.
///
/// # Errors
/// The device failed. [`Error::Unreplayable`] if nothing tells.
pub(crate) fn old_log(area: &JournalArea, superblock: &Superblock) -> Result<Option<Tid>> {
    match age(area, superblock)? {
        Age::Old(next) => Ok(Some(next)),
        Age::New => Ok(None),
        Age::Unknown(..) => {
            let (what, value) = ("time of the last commit", superblock.written());
            let why = cairn_jbd2::Error::Corrupt { block: 0, what, value, expected: NOT_TELLING };
            Err(Error::from(why).of_journal())
        }
    }
}

/// When the volume was made or mounted last: nothing of the log is older.
pub(crate) fn since(superblock: &Superblock) -> u64 {
    let raw = &superblock.raw;
    let time = |low: u32, high: u8| u64::from(high) << 32 | u64::from(low);
    let made = time(raw.s_mkfs_time.get(), raw.s_mkfs_time_hi);
    made.max(time(raw.s_mtime.get(), raw.s_mtime_hi))
}

/// As [`journal_area`], for a mount. If the descriptor of the group that the inode is in is
/// damaged, the log may have a good one: it is found by the copy of the map.
///
/// # Errors
/// As [`journal_area`]; [`Error::Unreplayable`] if the inode is damaged.
pub(crate) fn to_mount(
    superblock: &Superblock,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<JournalArea>> {
    match journal_area(superblock, layout, buffers, device) {
        Err(Error::Corrupt(why)) if why.is_of_descriptors() => {
            let is_unclean = superblock.features().incompat(Incompat::RECOVER);
            let copy =
                if is_unclean { by_copy(superblock, layout, buffers, device)? } else { None };
            copy.map_or(Err(why.into()), |area| Ok(Some(area)))
        }
        Err(why @ (Error::Corrupt(_) | Error::Vfs(_))) => Err(why.of_journal()),
        other => other,
    }
}

/// A journal, and why it is found by the copy of its map, if it is.
pub(crate) struct Found {
    pub(crate) area: JournalArea,
    pub(crate) damage: Option<Error>,
}

/// The journal by its inode, or else by the copy of its map. `None` if the volume has none.
///
/// # Errors
/// As [`journal_area`], if the copy leads to no journal, either.
pub(crate) fn by_any(
    superblock: &Superblock,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<Found>> {
    let usual = journal_area(superblock, layout, buffers, device);
    let why = match &usual {
        Err(Error::Device(_) | Error::Feature(_)) | Ok(None) => None,
        Err(why) => Some(why.clone()),
        Ok(Some(area)) => match cairn_jbd2::read_superblock(area) {
            Ok(_) | Err(cairn_jbd2::Error::Device(_)) => None,
            Err(why) => Some(why.into()),
        },
    };
    let Some(why) = why else { return Ok(usual?.map(|area| Found { area, damage: None })) };
    match by_copy(superblock, layout, buffers, device)? {
        Some(area) if !is_same(&usual, &area) => Ok(Some(Found { area, damage: Some(why) })),
        _ => Ok(usual?.map(|area| Found { area, damage: None })),
    }
}

/// The superblock with the usual number of the journal's inode, if the volume needs a recovery, the
/// number that it has leads to no journal, and the usual one does.
///
/// # Errors
/// The device failed.
pub(crate) fn by_usual_number(
    superblock: &Superblock,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<Superblock>> {
    let usual = u32::try_from(inodes::JOURNAL.get()).unwrap_or(0);
    let is_unclean = superblock.features().incompat(Incompat::RECOVER);
    if !is_unclean || superblock.raw.s_journal_inum.get() == usual {
        return Ok(None);
    }
    let leads = |superblock: &Superblock| match journal_area(superblock, layout, buffers, device) {
        Ok(Some(area)) => match cairn_jbd2::read_superblock(&area) {
            Err(why @ cairn_jbd2::Error::Device(_)) => Err(why.into()),
            read => Ok(read.is_ok()),
        },
        Err(why @ Error::Device(_)) => Err(why),
        _ => Ok(false),
    };
    let mut other = superblock.clone();
    other.raw.s_journal_inum = usual.into();
    Ok((!leads(superblock)? && leads(&other)?).then_some(other))
}

fn is_same(usual: &Result<Option<JournalArea>>, copy: &JournalArea) -> bool {
    matches!(usual, Ok(Some(area)) if area.extents == copy.extents)
}

/// The journal by the copy of its map. `None` if there is none, or it does not lead to a journal.
fn by_copy(
    superblock: &Superblock,
    layout: &Layout,
    buffers: &Arc<BufferCache>,
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<JournalArea>> {
    let Some(record) = inode_of_copy(superblock, layout) else { return Ok(None) };
    let ino = number(superblock);
    if ino != inodes::JOURNAL
        && !(is_blank(layout, buffers, ino)? && is_blank(layout, buffers, inodes::JOURNAL)?)
    {
        // The number may be a wrong one.
        return Ok(None);
    }
    let extents = match record_extents(layout, buffers, SystemBlocks::NONE, ino, &record) {
        Ok(extents) => extents,
        Err(error @ Error::Device(_)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let is_inside = extents.iter().all(|(_, pba, len)| layout.contains(*pba, *len));
    if extents.is_empty() || !is_inside {
        return Ok(None);
    }
    let (device, since) = (device.clone(), since(superblock));
    let area = JournalArea { device, block_size: layout.block_size, extents, since };
    Ok(cairn_jbd2::has_superblock(&area)?.then_some(area))
}

/// Was the record of the inode never written?
fn is_blank(layout: &Layout, buffers: &Arc<BufferCache>, ino: Ino) -> Result<bool> {
    match raw_record(layout, buffers, ino) {
        Ok(record) => Ok(record.mode == 0 && record.links == 0 && record.size == 0),
        Err(error @ Error::Device(_)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// The number of the journal's inode.
pub(crate) fn number(superblock: &Superblock) -> Ino {
    Ino(superblock.raw.s_journal_inum.get().into())
}

/// The inode of the journal as the superblock has a copy of it. `None` if it has none.
pub(crate) fn inode_of_copy(superblock: &Superblock, layout: &Layout) -> Option<Record> {
    let raw = &superblock.raw;
    let is_there = raw.s_journal_inum.get() != 0 && raw.s_jnl_backup_type == BACKUP_OF_BLOCKS;
    if !is_there || !layout.features.compat(Compat::HAS_JOURNAL) {
        return None;
    }
    let mut record = Record::new(0, layout);
    let words = raw.s_jnl_blocks.iter().flat_map(|word| word.get().to_le_bytes());
    record.block.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
    let [.., high, low] = raw.s_jnl_blocks;
    record.size = u64::from(high.get()) << 32 | u64::from(low.get());
    (record.mode, record.links) = (mode::REGULAR | 0o600, 1);
    if record.block.first_chunk() == Some(&MAGIC.to_le_bytes()) {
        record.flags |= InodeFlags::EXTENTS;
    }
    Some(record)
}
