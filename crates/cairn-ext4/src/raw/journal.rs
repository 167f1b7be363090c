//! Finds the blocks of the journal.

use cairn_base::{FileBlock, Ino};
use cairn_jbd2::JournalArea;

use super::RawVolume;
use super::map::{Extents, walk};
use crate::error::{Error, Result};
use crate::format::features::Compat;
use crate::info;

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
    let ino = Ino(volume.superblock.raw.s_journal_inum.get().into());
    let damaged = || {
        Error::Option(format!("the journal's inode {ino} cannot be read: look at it with `dump`"))
    };
    let record = volume.record(ino).ok_or_else(damaged)?;
    let mut map = Extents::default();
    walk(volume, ino, &record, &mut map);
    let extents = map.extents.iter().map(|one| (FileBlock(one.start), one.pba, one.len)).collect();
    let device = volume.device.clone();
    let area = JournalArea { device, block_size: volume.layout.block_size, extents };
    if area.extents.is_empty() {
        return Err(damaged());
    }
    Ok(Some(area))
}
