//! Directories, which map names to inodes, in linear blocks or with a hash index.
//!
//! They work on [`DirBlocks`], which the inode layer implements. A directory begins linear; with
//! dir_index it becomes indexed when it needs a second block. Its blocks are not freed while it
//! exists.
//!
//! Locking: the caller holds the directory's namespace lock, shared for [`lookup`], [`readdir`] and
//! [`is_empty`], exclusively for functions with a [`Handle`].

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod blocks;
pub(crate) mod full;
pub(crate) mod hash;
mod index;
pub(crate) mod inline;
mod insert;
mod readdir;

use std::sync::Arc;

use cairn_base::units::stored;
use cairn_base::{FileBlock, Ino};
use cairn_cache::block::Buffer;
use cairn_vfs::{FileKind, PastDamage};

pub(crate) use blocks::{DirBlocks, DirSettings};
pub(crate) use insert::add;
pub(crate) use readdir::readdir;

use blocks::{Loaded, load_first, load_leaf, uses_index};
use index::{Path, read_root};

use crate::error::Result;
use crate::format::dir_entry::{self, Dots, NAME_MAX};
use crate::format::htree::{self, NodeKind};
use crate::txn::Handle;

/// Most directory blocks that [`add`] appends: a leaf, and a node of each level.
pub(crate) const ADD_APPENDS: u32 = 4;
/// Most directory blocks that [`add`] changes, with the appended ones.
pub(crate) const ADD_BLOCKS: u32 = 12;

/// The place of an entry. It is valid until the directory changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Logical block.
    pub block: FileBlock,
    /// Byte offset in it.
    pub offset: usize,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its inode.
    pub ino: Ino,
    /// Kind, if the directory stores it.
    pub kind: Option<FileKind>,
    /// Its place.
    pub location: Location,
}

/// Finds a name, including `.` and `..`.
///
/// # Errors
/// The directory is damaged or cannot be read, and the name was not found elsewhere.
pub(crate) fn lookup(dir: &dyn DirBlocks, name: &[u8]) -> Result<Option<Found>> {
    let settings = dir.settings();
    if name == b"." || name == b".." {
        return lookup_dot(dir, &settings, name);
    }
    if name.is_empty() || name.len() > NAME_MAX {
        return Ok(None);
    }
    let mut damage = PastDamage::default();
    if uses_index(dir, &settings)
        && let Some(found) = damage.pass(lookup_indexed(dir, &settings, name))?
    {
        return Ok(found);
    }
    // All blocks are searched if there is no index or it leads to no entry, so that damage hides no
    // name in another block.
    for block in 0..dir.count() {
        if let Some(found) =
            damage.pass(lookup_in(dir, &settings, FileBlock(block), name))?.flatten()
        {
            return Ok(Some(found));
        }
    }
    damage.end(Ok(None))
}

fn lookup_dot(dir: &dyn DirBlocks, settings: &DirSettings, name: &[u8]) -> Result<Option<Found>> {
    let Dots { this, parent } = dots(dir)?;
    let (ino, offset) = if name == b"." { (this, 0) } else { (parent, dir_entry::DOTDOT_AT) };
    let kind = settings.format.filetype.then_some(FileKind::Directory);
    let location = Location { block: FileBlock(0), offset };
    Ok(Some(Found { ino: Ino(u64::from(ino)), kind, location }))
}

/// The inodes of `.` and `..`.
///
/// # Errors
/// The first block cannot be read or does not begin with them.
pub(crate) fn dots(dir: &dyn DirBlocks) -> Result<Dots> {
    let settings = dir.settings();
    let first = load_first(dir, &settings)?;
    Ok(dir_entry::dots(&first.image, &settings.format)
        .map_err(|defect| settings.corrupt(FileBlock(0), defect))?)
}

fn lookup_indexed(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    name: &[u8],
) -> Result<Option<Found>> {
    let root = read_root(dir, settings)?;
    // A folded name's hash is not known. All leaves are searched.
    let major = match dir.folded() {
        true => None,
        false => Some(settings.hash(root.1.hash_version, name)?.major),
    };
    let mut path = Path::to(dir, settings, root, major.unwrap_or(0))?;
    loop {
        let leaf = load_leaf(dir, settings, path.leaf)?;
        if let Some(found) = find(settings, (path.leaf, &leaf), name)? {
            return Ok(Some(found));
        }
        let ends = match major {
            Some(major) => !path.continues(settings, major)?,
            None => false,
        };
        if ends {
            check_first(settings, &path, &leaf)?;
        }
        if ends || !path.advance(dir, settings)? {
            return Ok(None);
        }
    }
}

/// Checks that the first name of the leaf has one of its hashes. Where a search finds nothing, that
/// tells of a damaged index, which would let a name be added twice.
fn check_first(settings: &DirSettings, path: &Path, leaf: &Loaded) -> Result<()> {
    let hashes = path.hashes(settings)?;
    let mut entries = dir_entry::entries(&leaf.image, &settings.format).flatten();
    let Some(first) = entries.find(|entry| entry.ino != 0) else { return Ok(()) };
    let hash = settings.hash(path.info.hash_version, first.name)?;
    match hashes.contains(&hash.major) {
        true => Ok(()),
        false => Err(settings.misplaced(path.leaf, first.offset, hash).into()),
    }
}

fn lookup_in(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    block: FileBlock,
    name: &[u8],
) -> Result<Option<Found>> {
    find(settings, (block, &load_leaf(dir, settings, block)?), name)
}

fn find(
    settings: &DirSettings,
    (block, leaf): (FileBlock, &Loaded),
    name: &[u8],
) -> Result<Option<Found>> {
    let entry = dir_entry::find(dir_entry::entries(&leaf.image, &settings.format), name)
        .map_err(|defect| settings.corrupt(block, defect))?;
    Ok(entry.map(|entry| Found {
        ino: Ino(u64::from(entry.ino)),
        kind: entry.kind(&settings.format),
        location: Location { block, offset: entry.offset },
    }))
}

/// Removes a name and returns its entry.
///
/// # Errors
/// [`cairn_vfs::Error::NotFound`] if it does not exist; [`cairn_vfs::Error::Invalid`] for `.` and
/// `..`; the directory is damaged.
pub(crate) fn remove(dir: &dyn DirBlocks, handle: &Handle, name: &[u8]) -> Result<Found> {
    if name == b"." || name == b".." {
        return Err(cairn_vfs::Error::Invalid("`.` and `..` cannot be removed").into());
    }
    let found = lookup(dir, name)?.ok_or(cairn_vfs::Error::NotFound)?;
    let settings = dir.settings();
    let format = &settings.format;
    let Location { block, offset } = found.location;
    let buffer = dir.get(block)?;
    let mut bytes = handle.write(&buffer)?;
    dir_entry::remove_at(&mut bytes, 0..format.leaf_len(), format, offset)
        .map_err(|defect| settings.corrupt(block, defect))?;
    dir_entry::seal_leaf(&mut bytes, format);
    Ok(found)
}

/// Changes the inode of a name or of `..`, and returns the old entry.
///
/// # Errors
/// [`cairn_vfs::Error::NotFound`] if it does not exist; the directory is damaged.
pub(crate) fn set_target(
    dir: &dyn DirBlocks,
    handle: &Handle,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> Result<Found> {
    let found = lookup(dir, name)?.ok_or(cairn_vfs::Error::NotFound)?;
    let settings = dir.settings();
    let format = &settings.format;
    let buffer = dir.get(found.location.block)?;
    // This call takes the inode's lock, so it comes before the lock of the buffer.
    let in_root = found.location.block == FileBlock(0) && uses_index(dir, &settings);
    let mut bytes = handle.write(&buffer)?;
    dir_entry::retarget_at(
        &mut bytes,
        found.location.offset,
        ino_number(ino),
        format.file_type(kind),
    );
    if in_root {
        htree::seal_node(&mut bytes, NodeKind::Root, format);
    } else {
        dir_entry::seal_leaf(&mut bytes, format);
    }
    Ok(found)
}

/// True if the directory contains only `.` and `..`.
///
/// # Errors
/// The directory is damaged: an unreadable block does not count as empty.
pub(crate) fn is_empty(dir: &dyn DirBlocks) -> Result<bool> {
    let settings = dir.settings();
    let format = &settings.format;
    let indexed = uses_index(dir, &settings);
    dots(dir)?;
    for block in u64::from(indexed)..dir.count() {
        let block = FileBlock(block);
        // Index nodes contain no names, and have no checksum of a leaf.
        if indexed && htree::is_spanned_by_free_entry(&dir.get(block)?.image(), format) {
            continue;
        }
        let leaf = load_leaf(dir, &settings, block)?;
        for entry in dir_entry::entries(&leaf.image, format) {
            let entry = entry.map_err(|defect| settings.corrupt(block, defect))?;
            if entry.ino != 0 && entry.name != b"." && entry.name != b".." {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Gives a new directory its first block with `.` and `..`.
///
/// # Errors
/// The volume is full or the journal was aborted.
pub(crate) fn init_empty(dir: &dyn DirBlocks, handle: &Handle, parent: Ino) -> Result<()> {
    let settings = dir.settings();
    let (block, buffer) = dir.append(handle)?;
    assert_eq!(block, FileBlock(0), "a new directory has no blocks");
    let kind = settings.format.file_type(FileKind::Directory);
    let entries = [(ino_number(settings.ino), kind, &b"."[..]), (ino_number(parent), kind, b"..")];
    write_leaf(&settings, handle, &buffer, &entries)
}

/// Makes a block a leaf with these entries.
fn write_leaf(
    settings: &DirSettings,
    handle: &Handle,
    buffer: &Arc<Buffer>,
    entries: &[(u32, u8, &[u8])],
) -> Result<()> {
    let mut bytes = handle.write(buffer)?;
    dir_entry::pack_leaf(&mut bytes, &settings.format, entries.iter().copied());
    Ok(())
}

/// An inode number as a directory stores it.
///
/// # Panics
/// If it has more than 32 bits. The volume's allocator gives no such numbers.
fn ino_number(ino: Ino) -> u32 {
    stored(ino.get())
}

#[cfg(test)]
pub(crate) mod tests;
