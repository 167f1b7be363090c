//! A directory made anew from its entries, in as few blocks as it needs.

use std::collections::HashSet;

use cairn_base::units::as_u64;
use cairn_base::{Ino, Pba};

use super::super::dir_blocks::Directory;
use super::super::each_entry::each_entry;
use super::super::visitor::Run;
use super::indexed::{self, Named};
use super::mender::Mender;
use super::runs;
use crate::error::Result;
use crate::format::dir_entry::{NAME_MAX, entry_len, pack_leaf};
use crate::format::inode::InodeFlags;
use crate::format::layout::inodes;
use crate::format::xattr::{self, OwnedAttribute, XattrLocation};
use cairn_vfs::FileKind;

/// Makes a directory anew from those of its entries that are right.
pub(super) fn mend(mender: &Mender<'_>, directory: &Directory<'_>) -> Result<bool> {
    let mut names = Vec::new();
    let mut seen = HashSet::new();
    each_entry(directory, |_, entry| {
        let mut named =
            Named { ino: entry.ino, file_type: entry.file_type, name: entry.name.to_vec() };
        if is_right(mender, directory, &mut named) && distinct(&mut named, directory, &mut seen) {
            names.push(named);
        }
    });
    store(mender, directory, &names)
}

/// True if the entry stays; its name and type are put right.
fn is_right(mender: &Mender<'_>, directory: &Directory<'_>, named: &mut Named) -> bool {
    let state = mender.state;
    let ino = Ino(named.ino.into());
    let is_encrypted = directory.record.flags.contains(InodeFlags::ENCRYPT);
    let Some(facts) = state.inodes.get(ino.get()).filter(|facts| facts.is_in_use()) else {
        return false;
    };
    if state.is_nameless(ino) {
        return false;
    }
    let this = u32::try_from(directory.ino.get()).unwrap_or(0);
    if facts.is_directory() && facts.parent() != this {
        return false;
    }
    let has_contents = matches!(facts.kind_code(), 1 | 2 | 7);
    if is_encrypted {
        let is_known = !has_contents || state.have_same_policy(directory.ino, ino);
        return is_known && named.name.len() >= 16;
    }
    for byte in named.name.iter_mut().filter(|byte| matches!(byte, b'/' | 0)) {
        *byte = b'.';
    }
    if directory.needs_utf8() {
        named.name = named.name.utf8_chunks().flat_map(readable).collect();
    }
    if facts.kind_code() != 0 && directory.format.filetype {
        named.file_type = facts.kind_code();
    }
    if !directory.format.filetype {
        named.file_type = 0;
    }
    !matches!(&named.name[..], b"." | b"..")
}

/// A part of a name, with a full stop for each byte that is no letter.
fn readable(chunk: std::str::Utf8Chunk<'_>) -> Vec<u8> {
    let dots = vec![b'.'; chunk.invalid().len()];
    [chunk.valid().as_bytes(), &dots].concat()
}

/// False if the name is there for the same inode. A name that another inode has is changed.
fn distinct(
    named: &mut Named,
    directory: &Directory<'_>,
    seen: &mut HashSet<(Vec<u8>, Option<u32>)>,
) -> bool {
    let is_new = seen.insert((named.name.clone(), Some(named.ino)));
    if !is_new {
        return false;
    }
    if seen.insert((named.name.clone(), None)) {
        return true;
    }
    if directory.record.flags.contains(InodeFlags::ENCRYPT) {
        return false;
    }
    let stem = named.name.clone();
    for number in 0_u32..=u32::MAX {
        let end = format!("~{number}");
        let kept = stem.len().min(NAME_MAX.saturating_sub(end.len()));
        let mut name = stem.get(..kept).unwrap_or_default().to_vec();
        name.extend(end.as_bytes());
        if seen.insert((name.clone(), None)) {
            named.name = name;
            return true;
        }
    }
    false
}

/// Writes a directory with these entries, with an index if it has several blocks. False if there is
/// no room.
pub(super) fn store(
    mender: &Mender<'_>,
    directory: &Directory<'_>,
    names: &[Named],
) -> Result<bool> {
    let this = u32::try_from(directory.ino.get()).unwrap_or(0);
    match indexed::blocks(directory, names, (this, parent(directory))) {
        Some(blocks) => put(mender, directory, blocks, true),
        None => store_linear(mender, directory, names),
    }
}

/// As [`store`], without an index: more names can be added block by block.
pub(super) fn store_linear(
    mender: &Mender<'_>,
    directory: &Directory<'_>,
    names: &[Named],
) -> Result<bool> {
    put(mender, directory, linear(mender, directory, names), false)
}

fn put(
    mender: &Mender<'_>,
    directory: &Directory<'_>,
    blocks: Vec<Vec<u8>>,
    is_indexed: bool,
) -> Result<bool> {
    let state = mender.state;
    let mut record = directory.record.clone();
    let Some(places) = places(mender, &directory.runs, blocks.len()) else { return Ok(false) };
    let runs = write_blocks(mender, places, blocks)?;
    let count = runs.iter().fold(0, |all: u64, run| all.saturating_add(run.len));
    record.size = count.saturating_mul(state.layout.block_size.into());
    record.flags.set(InodeFlags::INDEX, is_indexed);
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        record.flags.remove(InodeFlags::INLINE_DATA);
        forget_tail(&mut record.extra, directory.ino);
        crate::inode::init_block_map(&state.layout, &mut record);
    }
    if !runs::store(mender, directory.ino, &mut record, &runs)? {
        return Ok(false);
    }
    mender.edit(directory.ino, |stored| *stored = record)
}

/// Writes the blocks of a file to their places.
pub(super) fn write_blocks(
    mender: &Mender<'_>,
    places: Vec<Pba>,
    blocks: Vec<Vec<u8>>,
) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, (pba, block)) in (0_u64..).zip(places.into_iter().zip(blocks)) {
        mender.write(pba, block)?;
        let next = |run: &&mut Run| run.pba.get().saturating_add(run.len) == pba.get();
        match runs.last_mut().filter(next) {
            Some(run) => run.len = run.len.saturating_add(1),
            None => runs.push(Run { start: number, pba, len: 1, unwritten: false }),
        }
    }
    Ok(runs)
}

/// The blocks without an index.
fn linear(mender: &Mender<'_>, directory: &Directory<'_>, names: &[Named]) -> Vec<Vec<u8>> {
    let format = &directory.format;
    let this = u32::try_from(directory.ino.get()).unwrap_or(0);
    let kind = format.file_type(FileKind::Directory);
    let mut list = vec![(this, kind, b".".as_slice()), (parent(directory), kind, b"..")];
    let mut len = entry_len(1).saturating_add(entry_len(2));
    let mut blocks = Vec::new();
    let packed = |list: &mut Vec<(u32, u8, &[u8])>| {
        let mut block = mender.empty_block();
        pack_leaf(&mut block, format, std::mem::take(list));
        block
    };
    for named in names {
        let more = entry_len(named.name.len());
        if len.saturating_add(more) > format.leaf_len() {
            blocks.push(packed(&mut list));
            len = 0;
        }
        len = len.saturating_add(more);
        list.push((named.ino, named.file_type, &named.name));
    }
    blocks.push(packed(&mut list));
    blocks
}

/// Removes the attribute that holds the end of inline contents.
fn forget_tail(extra: &mut [u8], ino: Ino) {
    let attributes = xattr::decode(extra, XattrLocation::Inode, ino).unwrap_or_default();
    let others = attributes.iter().filter(|one| !(one.index == 7 && one.name == b"data"));
    let others: Vec<OwnedAttribute> = others.map(OwnedAttribute::from).collect();
    xattr::encode_inode(extra, &others);
}

/// The blocks for a file: its own first, which no other file has. `None` if there is no room.
pub(super) fn places(mender: &Mender<'_>, own: &[Run], count: usize) -> Option<Vec<Pba>> {
    let state = mender.state;
    let mut places = Vec::new();
    let own = own.iter().filter(|_| state.layout.cluster_bits == 0);
    for run in own {
        for block in run.pba.get()..run.pba.get().saturating_add(run.len) {
            let is_free = !state.system.contains(block) && !state.twice.contains(block);
            if places.len() < count && is_free {
                places.push(Pba(block));
            }
        }
    }
    // With clusters, a run of whole ones is taken, so that blocks lie at their places in them.
    if state.layout.cluster_bits != 0 {
        let clusters = as_u64(count).div_ceil(state.cluster_blocks());
        let first = mender.allocate(clusters)? << state.layout.cluster_bits;
        return Some((first..).take(count).map(Pba).collect());
    }
    while places.len() < count {
        places.push(mender.allocate_block()?);
    }
    Some(places)
}

/// The directory that has a name for this one.
fn parent(directory: &Directory<'_>) -> u32 {
    let root = u32::try_from(inodes::ROOT.get()).unwrap_or(0);
    let facts = directory.state.inodes.get(directory.ino.get());
    match facts.map(|facts| (facts.parent(), facts.dotdot())) {
        _ if directory.ino == inodes::ROOT => root,
        Some((0, dotdot)) if dotdot != 0 && dotdot <= directory.format.inodes_count => dotdot,
        None | Some((0, _)) => root,
        Some((parent, _)) => parent,
    }
}
