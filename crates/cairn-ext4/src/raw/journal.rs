//! Finds the blocks of the journal: by its inode, or by the copy of its map in the superblock.

use cairn_base::{FileBlock, Ino};
use cairn_jbd2::JournalArea;

use super::RawVolume;
use super::map::{Extents, walk};
use crate::error::{Error, Result};
use crate::format::features::Compat;
use crate::format::inode::Inode as Record;
use crate::format::layout::inodes;
use crate::info;
use crate::journal_area::{inode_of_copy, number, since};

/// The journal's blocks; `None` if the volume has no journal.
///
/// # Errors
/// It is on another device, or its inode is damaged.
pub(crate) fn area(volume: &RawVolume) -> Result<Option<JournalArea>> {
    if !volume.layout.features.compat(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    if info::has_external_journal(&volume.superblock) {
        return Err(Error::Feature(info::EXTERNAL_JOURNAL.to_owned()));
    }
    let ino = number(&volume.superblock);
    let usual = volume.record(ino).map(|record| area_of(volume, ino, &record));
    if let Some(area) = &usual
        && has_superblock(area)?
    {
        return Ok(usual);
    }
    // The number of the inode may be the wrong one.
    let other = volume.record(inodes::JOURNAL);
    let other = other.map(|record| area_of(volume, inodes::JOURNAL, &record));
    if let Some(area) = &other
        && has_superblock(area)?
    {
        return Ok(other);
    }
    let copy = inode_of_copy(&volume.superblock, &volume.layout);
    let copy = copy.map(|record| area_of(volume, ino, &record));
    if let Some(area) = &copy
        && has_superblock(area)?
    {
        return Ok(copy);
    }
    let damaged = || {
        Error::Option(format!("the journal's inode {ino} cannot be read: look at it with `dump`"))
    };
    usual.filter(|area| !area.extents.is_empty()).ok_or_else(damaged).map(Some)
}

fn has_superblock(area: &JournalArea) -> Result<bool> {
    Ok(!area.extents.is_empty() && cairn_jbd2::has_superblock(area)?)
}

fn area_of(volume: &RawVolume, ino: Ino, record: &Record) -> JournalArea {
    let mut map = Extents::default();
    walk(volume, ino, record, &mut map);
    let extents = map.extents.iter().map(|one| (FileBlock(one.start), one.pba, one.len)).collect();
    let (device, block_size) = (volume.device.clone(), volume.layout.block_size);
    JournalArea { device, block_size, extents, since: since(&volume.superblock) }
}
