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

/// What a comparison says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    No,
    Yes,
    /// The hash is that of the wanted name, and the stored name has other letters than ASCII: it is
    /// another form of it, as that of the Kelvin sign and of `k`, or has its hash by chance.
    Unclear,
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
    directory.check_unencrypted(disk)?;
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

/// Compares an entry with a name. `hash` is that of the name, if it is known.
fn matches(stored: &[u8], stored_hash: u32, name: &[u8], compare: Compare) -> Match {
    let is_it = match compare {
        Compare::Exactly => stored == name,
        Compare::IgnoringCase => stored.eq_ignore_ascii_case(name),
    };
    let is_other_form = compare == Compare::IgnoringCase && name.is_ascii() && !stored.is_ascii();
    match is_it {
        true => Match::Yes,
        false if is_other_form && stored_hash == compare.hash(name) => Match::Unclear,
        false => Match::No,
    }
}

impl Compare {
    /// The hash of a name. In a directory that ignores case, the name is of ASCII letters.
    fn hash(self, name: &[u8]) -> u32 {
        match self {
            Self::Exactly => name_hash(name),
            Self::IgnoringCase => name_hash(&name.to_ascii_lowercase()),
        }
    }
}

const UNCLEAR: VfsError = VfsError::Unsupported(
    "a name with other letters than ASCII may be this one in a directory that ignores case",
);

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
    let is_unclear = Cell::new(false);
    let found = find_in(disk, directory.nid, 0, dentries, |entry| {
        let found = matches(entry.name, entry.hash, name, compare);
        is_unclear.set(is_unclear.get() || found == Match::Unclear);
        found == Match::Yes
    })?;
    clear(found, is_unclear.get())
}

/// What was found, unless nothing was and a name may be another form of the wanted one.
fn clear(found: Option<Found>, is_unclear: bool) -> Result<Option<Found>> {
    if found.is_none() && is_unclear { Err(UNCLEAR.into()) } else { Ok(found) }
}

fn find_hashed(
    disk: &Disk,
    directory: &Inode,
    name: &[u8],
    compare: Compare,
) -> Result<Option<Found>> {
    let hash = compare.hash(name);
    let is_unclear = Cell::new(false);
    let dir_level = directory.state.read().record.dir_level;
    let names = directory.with_record(|record| Names::of(record, disk.layout.features));
    let end = blocks::count(directory);
    let mut damage = PastDamage::default();
    for level in 0..depth(directory) {
        let start = bucket_start(level, dir_level, hash);
        for block in start..start.saturating_add(bucket_blocks(level)).min(end) {
            let Some(image) = damage.pass(blocks::search(disk, directory, block))?.flatten() else {
                continue;
            };
            // The name that is looked for may have become another one.
            let is_changed = Cell::new(false);
            let is_it = |stored: &[u8]| {
                let compared = matches(stored, hash, name, compare);
                let is_it = compared == Match::Yes;
                let is_another = !is_it && names.hash(stored).is_some_and(|own| own != hash);
                is_changed.set(is_changed.get() || is_another);
                is_unclear.set(is_unclear.get() || compared == Match::Unclear);
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
    damage.end(clear(None, is_unclear.get()))
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
