//! Finding a name.

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

use std::cell::Cell;

use cairn_vfs::{Error as VfsError, FileKind, PastDamage};

use super::{bad_entry, bad_name, blocks, check_entry, depth};
use crate::disk::Disk;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::dentry::{Dentries, Dentry, bucket_blocks, bucket_start};
use crate::format::features::Features;
use crate::format::hash::name_hash;
use crate::format::inode::FileFlags;
use crate::format::units::{NAME_MAX, Nid};
use crate::inode::Inode;

/// The inode and kind of an entry.
pub(crate) type Target = (Nid, Option<FileKind>);

/// An entry and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Inode.
    pub(crate) nid: Nid,
    /// Kind, if stored.
    pub(crate) kind: Option<FileKind>,
    /// Block of the directory; 0 for inline entries.
    pub(crate) block: u64,
    /// First slot.
    pub(crate) slot: usize,
}

/// How the names of a directory are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    Exactly,
    /// The directory ignores case: names of ASCII letters are compared so; others exactly, in a
    /// search of all blocks, as their hash is that of a folded form that Cairn does not compute.
    IgnoringCase,
}

/// The inode of a name; `None` if the directory has no such name.
///
/// # Errors
/// The inode is not a directory, or is encrypted or damaged; the name is too long; or the device
/// failed.
pub(crate) fn find(disk: &Disk, directory: &Inode, name: &[u8]) -> Result<Option<Target>> {
    if directory.kind != FileKind::Directory {
        return Err(VfsError::NotDirectory.into());
    }
    if name.len() > NAME_MAX {
        return Err(VfsError::NameTooLong.into());
    }
    directory.check_readable(disk)?;
    let added = disk.nodes.overlay().entries(directory.nid).and_then(|entries| entries.get(name));
    if let Some((nid, kind)) = added {
        return Ok(Some((*nid, Some(*kind))));
    }
    Ok(locate(disk, directory, name)?.map(|found| (found.nid, found.kind)))
}

/// The place of a name's entry, except one that roll-forward added in memory.
///
/// # Errors
/// As [`find`]. The caller has checked that it is a directory.
pub(crate) fn locate(disk: &Disk, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
    let folds = directory.state.read().record.flags.contains(FileFlags::CASEFOLD);
    let compare = match folds && disk.layout.features.contains(Features::CASEFOLD) {
        true => Compare::IgnoringCase,
        false => Compare::Exactly,
    };
    if directory.is_inline() {
        return find_inline(disk, directory, name, compare);
    }
    if compare == Compare::IgnoringCase && !name.is_ascii() {
        return find_everywhere(disk, directory, name);
    }
    find_hashed(disk, directory, name, compare)
}

fn matches(stored: &[u8], name: &[u8], compare: Compare) -> bool {
    match compare {
        Compare::Exactly => stored == name,
        Compare::IgnoringCase => stored.eq_ignore_ascii_case(name),
    }
}

fn find_in(
    disk: &Disk,
    directory: Nid,
    block: u64,
    dentries: Dentries<'_>,
    wanted: impl Fn(&Dentry<'_>) -> bool,
) -> Result<Option<Found>> {
    let mut damage = PastDamage::default();
    for entry in dentries.iter() {
        let entry = damage.pass(entry.map_err(|bad| bad_name(directory, block, bad)))?;
        if let Some(entry) = entry.filter(&wanted) {
            return checked(disk, directory, block, &entry).map(Some);
        }
    }
    damage.end(Ok(None))
}

fn checked(disk: &Disk, directory: Nid, block: u64, entry: &Dentry<'_>) -> Result<Found> {
    check_entry(directory, block, entry, &disk.layout)?;
    Ok(Found { nid: entry.ino, kind: entry.kind, block, slot: entry.slot })
}

fn find_inline(
    disk: &Disk,
    directory: &Inode,
    name: &[u8],
    compare: Compare,
) -> Result<Option<Found>> {
    let image = disk.nodes.inode(directory.nid)?.ok_or(VfsError::Stale)?;
    let range = directory.with_record(|record| record.inline_data_range());
    let dentries = Dentries::new(image.get(range).unwrap_or_default());
    find_in(disk, directory.nid, 0, dentries, |entry| matches(entry.name, name, compare))
}

fn find_hashed(
    disk: &Disk,
    directory: &Inode,
    name: &[u8],
    compare: Compare,
) -> Result<Option<Found>> {
    let hash = match compare {
        Compare::Exactly => name_hash(name),
        Compare::IgnoringCase => name_hash(&name.to_ascii_lowercase()),
    };
    let dir_level = directory.state.read().record.dir_level;
    let names = directory.with_record(|record| Names::of(record, disk.layout.features));
    let end = blocks::count(directory);
    let mut damage = PastDamage::default();
    for level in 0..depth(directory) {
        let start = bucket_start(level, dir_level, hash);
        for block in start..start.saturating_add(bucket_blocks(level)).min(end) {
            let Some(image) = damage.pass(blocks::read(disk, directory, block))?.flatten() else {
                continue;
            };
            // The name that is looked for may have become another one.
            let is_changed = Cell::new(false);
            let is_it = |stored: &[u8]| {
                let is_it = matches(stored, name, compare);
                let is_another = !is_it && names.hash(stored).is_some_and(|own| own != hash);
                is_changed.set(is_changed.get() || is_another);
                is_it
            };
            let found = Dentries::new(&image).find(hash, is_it);
            if let Some(entry) =
                damage.pass(found.map_err(|bad| bad_name(directory.nid, block, bad)))?.flatten()
            {
                return checked(disk, directory.nid, block, &entry).map(Some);
            }
            if is_changed.get() {
                let what = "the hash is that of another name";
                let error = bad_entry(directory.nid, block, 0, what, hash.into());
                damage.pass(Err::<(), _>(error))?;
            }
        }
    }
    damage.end(Ok(None))
}

fn find_everywhere(disk: &Disk, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
    let (mut found, mut damage) = (None, PastDamage::default());
    blocks::for_each(disk, directory, 0, |block, image| {
        let wanted = |entry: &Dentry<'_>| entry.name == name;
        let searched = image
            .and_then(|image| find_in(disk, directory.nid, block, Dentries::new(image), wanted));
        found = damage.pass(searched)?.flatten();
        Ok(found.is_none())
    })?;
    found.map_or_else(|| damage.end(Ok(None)), |found| Ok(Some(found)))
}
