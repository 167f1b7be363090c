//! Adds a name: to a gap, after splitting a leaf, or after growing the index.
//!
//! Each step that makes room keeps every name findable. Then the search for a gap starts again at
//! the root. Blocks are appended before the first change, so that a full volume changes nothing.

use std::sync::Arc;

use cairn_base::units::as_u64;
use cairn_base::{FileBlock, Ino};
use cairn_cache::block::Buffer;
use cairn_vfs::{FileKind, Name};

use super::blocks::{DirBlocks, DirSettings, Loaded, load_leaf, uses_index};
use super::index::{Path, read_root};
use super::{ino_number, write_leaf};
use crate::corrupt::Corrupt;
use crate::error::Result;
use crate::format::dir_entry::{self, Dots, Entry, Room};
use crate::format::htree::{self, NodeKind};
use crate::txn::Handle;

/// Most steps that make room for one name: the conversion, a split of each level, a new level, the
/// leaf.
const MAX_STEPS: usize = 8;

/// An entry (inode, kind code, name) with its major hash.
type HashedRow<'a> = (u32, (u32, u8, &'a [u8]));

/// The entry to add.
struct NewEntry<'n> {
    ino: u32,
    file_type: u8,
    name: Name<'n>,
}

/// Adds a name. The caller has checked that it does not exist.
///
/// # Errors
/// [`cairn_vfs::Error::NoSpace`] if the volume or the index is full; [`cairn_vfs::Error::Exists`]
/// if a searched block has the name; the directory is damaged.
pub(crate) fn add(
    dir: &dyn DirBlocks,
    handle: &Handle,
    name: Name<'_>,
    ino: Ino,
    kind: FileKind,
) -> Result<()> {
    if name.is_dots() {
        return Err(cairn_vfs::Error::Invalid("`.` and `..` cannot be added").into());
    }
    let settings = dir.settings();
    let new = NewEntry { ino: ino_number(ino), file_type: settings.format.file_type(kind), name };
    if uses_index(dir, &settings) {
        return add_indexed(dir, &settings, handle, &new);
    }
    if dir.indexed() {
        // Without dir_index the index is not maintained, so it must not be used later.
        dir.set_indexed(handle, false)?;
    }
    add_linear(dir, &settings, handle, &new)
}

fn add_linear(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    new: &NewEntry<'_>,
) -> Result<()> {
    for block in 0..dir.count() {
        if add_to_leaf(dir, settings, handle, FileBlock(block), new)? {
            return Ok(());
        }
    }
    if dir.count() == 1 && settings.dir_index {
        make_indexed(dir, settings, handle)?;
        return add_indexed(dir, settings, handle, new);
    }
    let (_, buffer) = dir.append(handle)?;
    write_leaf(settings, handle, &buffer, &[(new.ino, new.file_type, new.name.bytes())])
}

/// Adds the name to one block. False if no gap is large enough.
fn add_to_leaf(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    block: FileBlock,
    new: &NewEntry<'_>,
) -> Result<bool> {
    let format = &settings.format;
    let Loaded { buffer, image } = load_leaf(dir, settings, block)?;
    let room = dir_entry::room(dir_entry::entries(&image, format), &new.name)
        .map_err(|defect| settings.corrupt(block, defect))?;
    // While the image is held, the write would copy the block.
    drop(image);
    match room {
        Room::Taken => Err(cairn_vfs::Error::Exists.into()),
        Room::Full => Ok(false),
        Room::At(offset) => {
            let mut bytes = handle.write(&buffer)?;
            dir_entry::insert_at(&mut bytes, offset, format, new.ino, new.file_type, &new.name);
            dir_entry::seal_leaf(&mut bytes, format);
            Ok(true)
        }
    }
}

fn add_indexed(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    new: &NewEntry<'_>,
) -> Result<()> {
    for _ in 0..MAX_STEPS {
        let root = read_root(dir, settings)?;
        let version = root.1.hash_version;
        let hash = settings.hash(version, &new.name)?;
        let path = Path::to(dir, settings, root, hash.major)?;
        if add_to_leaf(dir, settings, handle, path.leaf, new)? {
            return Ok(());
        }
        let parent = path.last();
        if parent.node(settings)?.is_full() {
            grow_index(dir, settings, handle, path)?;
        } else {
            split_leaf(dir, settings, handle, path, version)?;
        }
    }
    Err(Corrupt::Directory {
        ino: settings.ino,
        block: FileBlock(0),
        offset: 0,
        what: "a split makes no room",
        value: as_u64(new.name.len()),
    }
    .into())
}

/// Turns a directory of one linear block into an index with one leaf.
fn make_indexed(dir: &dyn DirBlocks, settings: &DirSettings, handle: &Handle) -> Result<()> {
    let first = FileBlock(0);
    let Loaded { buffer, image } = load_leaf(dir, settings, first)?;
    let Dots { this, parent } = dir_entry::dots(&image, &settings.format)
        .map_err(|defect| settings.corrupt(first, defect))?;
    let names = live_entries(&image, settings, first)?;
    // The first two are `.` and `..`, which were checked.
    let names: Vec<_> = names.iter().skip(2).map(|e| (e.ino, e.file_type, e.name)).collect();
    let (leaf, leaf_buffer) = dir.append(handle)?;
    write_leaf(settings, handle, &leaf_buffer, &names)?;
    drop(names);
    drop(image);
    let mut bytes = handle.write(&buffer)?;
    htree::init_root(
        &mut bytes,
        &settings.format,
        this,
        parent,
        settings.hash.default_version,
        leaf,
    );
    drop(bytes);
    dir.set_indexed(handle, true)
}

fn live_entries<'a>(
    image: &'a [u8],
    settings: &'a DirSettings,
    block: FileBlock,
) -> Result<Vec<Entry<'a>>> {
    let entries = dir_entry::entries(image, &settings.format);
    let live = entries.filter(|entry| entry.as_ref().map_or(true, |entry| entry.ino != 0));
    Ok(live.collect::<Result<_, _>>().map_err(|defect| settings.corrupt(block, defect))?)
}

/// Moves the upper half of a leaf, by hash and by size, to a new one. The parent of the leaf is not
/// full.
fn split_leaf(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    mut path: Path,
    version: u8,
) -> Result<()> {
    let leaf = path.leaf;
    let Loaded { buffer, image } = load_leaf(dir, settings, leaf)?;
    let mut entries: Vec<HashedRow<'_>> = Vec::new();
    for entry in live_entries(&image, settings, leaf)? {
        entries.push((
            settings.hash(version, entry.name)?.major,
            (entry.ino, entry.file_type, entry.name),
        ));
    }
    entries.sort_by_key(|(hash, _)| *hash);
    let at = middle(&entries, settings.format.block_size).ok_or(Corrupt::Directory {
        ino: settings.ino,
        block: leaf,
        offset: 0,
        what: "full block has too few names to split",
        value: as_u64(entries.len()),
    })?;
    let (lower, upper) = entries.split_at(at);
    let bound = |half: Option<&HashedRow<'_>>| half.map_or(0, |(hash, _)| *hash);
    let split_hash = bound(upper.first());
    // The lowest bit tells a search that names of this hash begin in the leaf before.
    let continued = u32::from(bound(lower.last()) == split_hash);
    let (new_leaf, new_buffer) = dir.append(handle)?;
    write_rows(settings, handle, &new_buffer, upper)?;
    // The image is borrowed, so the write copies the block once and not each name.
    write_rows(settings, handle, &buffer, lower)?;
    let parent = path.pop();
    let (block, kind, after) = (parent.block, parent.kind, parent.at);
    let buffer = parent.loaded.buffer;
    drop(parent.loaded.image);
    let mut bytes = handle.write(&buffer)?;
    htree::insert_entry(&mut bytes, kind, &settings.format, after, split_hash | continued, new_leaf)
        .map_err(|defect| settings.corrupt(block, defect).into())
}

fn write_rows(
    settings: &DirSettings,
    handle: &Handle,
    buffer: &Arc<Buffer>,
    rows: &[HashedRow<'_>],
) -> Result<()> {
    let mut bytes = handle.write(buffer)?;
    dir_entry::pack_leaf(&mut bytes, &settings.format, rows.iter().map(|(_, row)| *row));
    Ok(())
}

/// The index at which to split: about half of the bytes are above it. `None` if there are fewer
/// than two entries.
fn middle(entries: &[HashedRow<'_>], block_size: usize) -> Option<usize> {
    if entries.len() < 2 {
        return None;
    }
    let (mut size, mut at) = (0_usize, entries.len());
    for (_, (_, _, name)) in entries.iter().rev() {
        let len = dir_entry::entry_len(name.len());
        if size.saturating_add(len / 2) > block_size / 2 {
            break;
        }
        size = size.saturating_add(len);
        at = at.saturating_sub(1);
    }
    // All entries may fit half a block if the gaps between them are wide.
    Some(if at == 0 || at == entries.len() { entries.len() / 2 } else { at })
}

/// Splits the lowest full node whose parent is not full, or adds a level below the root.
fn grow_index(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    mut path: Path,
) -> Result<()> {
    while let [.., parent, _] = path.frames.as_slice() {
        if !parent.node(settings)?.is_full() {
            return split_node(dir, settings, handle, path);
        }
        path.frames.pop();
    }
    if path.info.indirect_levels >= settings.max_levels() {
        tracing::warn!(ino = settings.ino.get(), "directory index is full");
        return Err(cairn_vfs::Error::NoSpace.into());
    }
    let root = path.pop();
    let entries = root.node(settings)?.pairs();
    let (block, buffer) = dir.append(handle)?;
    htree::init_inner(&mut handle.write(&buffer)?, &settings.format, &entries);
    let root_buffer = root.loaded.buffer;
    drop(root.loaded.image);
    htree::deepen_root(&mut handle.write(&root_buffer)?, &settings.format, block);
    Ok(())
}

/// Moves the upper half of the path's last node to a new one. The node above it is not full.
fn split_node(
    dir: &dyn DirBlocks,
    settings: &DirSettings,
    handle: &Handle,
    mut path: Path,
) -> Result<()> {
    let format = &settings.format;
    let node = path.pop();
    let parent = path.pop();
    let entries = node.node(settings)?.pairs();
    let (lower, upper) = entries.split_at(entries.len() / 2);
    let hash = upper.first().map_or(0, |(hash, _)| *hash);
    let (block, buffer) = dir.append(handle)?;
    htree::init_inner(&mut handle.write(&buffer)?, format, upper);
    let node_buffer = node.loaded.buffer;
    drop(node.loaded.image);
    htree::write_entries(&mut handle.write(&node_buffer)?, NodeKind::Inner, format, lower);
    let parent_buffer = parent.loaded.buffer;
    drop(parent.loaded.image);
    htree::insert_entry(
        &mut handle.write(&parent_buffer)?,
        parent.kind,
        format,
        parent.at,
        hash,
        block,
    )
    .map_err(|defect| settings.corrupt(parent.block, defect).into())
}
