//! `lost+found`: where inodes get a name that have none.

use std::ops::Range;

use cairn_base::units::as_index;
use cairn_base::{FileBlock, Ino, Pba};
use cairn_check::Finding;
use cairn_vfs::{FileKind, Timestamp};

use super::super::dir_blocks::Directory;
use super::super::directory;
use super::super::each_entry::each_entry;
use super::contents::{self, new_directory};
use super::indexed::Named;
use super::mender::Mender;
use super::rebuild;
use crate::error::Result;
use crate::format::dir_entry::{self, Room};
use crate::format::group_desc::GroupFlags;
use crate::format::inode::InodeFlags;
use crate::format::layout::inodes;

/// `l_i_version`, a part of the count of references of a value.
const COUNT: Range<usize> = 36..40;
const NAME: &[u8] = b"lost+found";
/// The name beside a file, or an encrypted directory, with the usual one.
const OTHER: &[u8] = b"lost+found~";

/// Gives inodes a name in `lost+found`, which is made if it is missing.
pub(super) fn mend(mender: &mut Mender<'_>, findings: &[&Finding]) -> Result<()> {
    let mut home = None;
    for finding in findings {
        let Some(ino) = finding.place.inode.map(Ino) else { continue };
        let Some(facts) = mender.state.inodes.get(ino.get()) else { continue };
        let place = match home {
            Some(place) => place,
            None => match find(mender)? {
                Some(place) => *home.insert(place),
                None => return Ok(()),
            },
        };
        if place == ino || ino == inodes::ROOT {
            continue;
        }
        if facts.parent() != 0 {
            // One of a circle of directories.
            leave(mender, Ino(facts.parent().into()), ino)?;
        }
        if facts.is_value() {
            make_file(mender, ino)?;
        }
        let name = format!("#{ino}");
        if insert(mender, place, ino, facts.kind_code(), name.as_bytes())? {
            mender.step(finding);
        }
    }
    Ok(())
}

/// Makes a file of the value of an attribute that is no longer there. Its times were a hash and a
/// count.
fn make_file(mender: &Mender<'_>, ino: Ino) -> Result<bool> {
    let now = Timestamp { seconds: mender.now.into(), nanoseconds: 0 };
    mender.edit_bytes(ino, |bytes| {
        if let Some(count) = bytes.get_mut(COUNT) {
            count.fill(0);
        }
    })?;
    mender.edit(ino, |record| {
        record.flags.remove(InodeFlags::EA_INODE);
        record.links = 1;
        (record.atime, record.mtime, record.ctime) = (now, now, now);
    })
}

/// The directory `lost+found`.
fn find(mender: &Mender<'_>) -> Result<Option<Ino>> {
    let state = mender.state;
    let Some(root) = directory::open(state, inodes::ROOT) else { return Ok(None) };
    let (mut found, mut is_taken) = (None, false);
    each_entry(&root, |_, entry| {
        if entry.name == NAME || entry.name == OTHER {
            is_taken |= entry.name == NAME;
            let facts = state.inodes.get(entry.ino.into());
            let is_usable =
                facts.is_some_and(|facts| facts.is_directory() && !facts.is_encrypted());
            found = found.or(is_usable.then_some(Ino(entry.ino.into())));
        }
    });
    match found {
        Some(ino) => Ok(Some(ino)),
        None => make(mender, if is_taken { OTHER } else { NAME }),
    }
}

/// Makes a directory in the root.
fn make(mender: &Mender<'_>, name: &[u8]) -> Result<Option<Ino>> {
    let Some(ino) = free_inode(mender)? else { return Ok(None) };
    let mut record = new_directory(mender, 0o700);
    if !contents::make_empty(mender, ino, &mut record, 2)? {
        return Ok(None);
    }
    let layout = mender.state.layout;
    mender.edit_bytes(ino, |bytes| {
        bytes.fill(0);
        record.encode(ino, &layout, bytes);
    })?;
    let code = FileKind::Directory.entry_code();
    Ok(insert(mender, inodes::ROOT, ino, code, name)?.then_some(ino))
}

/// An inode that is not in use. The initialised part of its table gets longer, if need be.
fn free_inode(mender: &Mender<'_>) -> Result<Option<Ino>> {
    let state = mender.state;
    let layout = &state.layout;
    let all = layout.inodes_per_group;
    for group in 0..layout.groups {
        let known = state.groups.get(as_index(group)).filter(|group| group.has_table);
        let Some(known) = known else { continue };
        let initialised = match layout.features.has_group_checksums() {
            true if known.desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
            true => all.saturating_sub(known.desc.itable_unused),
            false => all,
        };
        // One more than those that are initialised.
        for index in 0..initialised.saturating_add(1).min(all) {
            let ino = layout.ino(group, index);
            let is_used = state.inodes.get(ino.get()).is_some_and(|facts| facts.is_in_use());
            if is_used || ino.get() < u64::from(layout.first_ino) {
                continue;
            }
            if index == initialised {
                mender.edit_group(group, |desc| {
                    desc.flags.remove(GroupFlags::INODE_UNINIT);
                    desc.itable_unused = all.saturating_sub(initialised).saturating_sub(1);
                })?;
            }
            return Ok(Some(ino));
        }
    }
    Ok(None)
}

/// Adds a name to a directory.
fn insert(mender: &Mender<'_>, into: Ino, ino: Ino, kind: u8, name: &[u8]) -> Result<bool> {
    let Some(directory) = directory::open(mender.state, into) else { return Ok(false) };
    let format = directory.format;
    let number = u32::try_from(ino.get()).unwrap_or(0);
    let kind = if format.filetype { kind } else { 0 };
    let is_linear = !directory.record.flags.intersects(InodeFlags::INDEX | InodeFlags::INLINE_DATA);
    for run in directory.runs.iter().filter(|_| is_linear) {
        for block in run.start..run.end().min(directory.blocks) {
            let pba = Pba(run.pba.get().saturating_add(block.saturating_sub(run.start)));
            let mut bytes = mender.read(pba)?;
            let sealed = dir_entry::verify_leaf(&bytes, &format, into, FileBlock(block));
            let room = dir_entry::room(dir_entry::entries(&bytes, &format), name);
            if let (Ok(()), Ok(Room::At(offset))) = (sealed, room) {
                dir_entry::insert_at(&mut bytes, offset, &format, number, kind, name);
                dir_entry::seal_leaf(&mut bytes, &format);
                mender.write(pba, bytes)?;
                return Ok(true);
            }
        }
    }
    let mut names = names(&directory);
    names.push(Named { ino: number, file_type: kind, name: name.to_vec() });
    rebuild::store_linear(mender, &directory, &names)
}

/// Removes the name of an inode from a directory.
fn leave(mender: &Mender<'_>, from: Ino, ino: Ino) -> Result<bool> {
    let Some(directory) = directory::open(mender.state, from) else { return Ok(false) };
    let mut names = names(&directory);
    names.retain(|named| u64::from(named.ino) != ino.get());
    rebuild::store(mender, &directory, &names)
}

fn names(directory: &Directory<'_>) -> Vec<Named> {
    let mut names = Vec::new();
    each_entry(directory, |_, entry| {
        let (ino, file_type, name) = (entry.ino, entry.file_type, entry.name.to_vec());
        names.push(Named { ino, file_type, name });
    });
    names
}
