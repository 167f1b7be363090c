//! The entries of a directory, in blocks or in the inode.
//!
//! Locking: the caller holds `namespace`, shared to search and exclusively to change.

use std::sync::Arc;

use cairn_base::{FileBlock, Ino};
use cairn_cache::block::Buffer;
use cairn_cache::mapper::{Place, Run};
use cairn_vfs::{DirEntry, Error as VfsError, FileKind, Name};

use crate::corrupt::Corrupt;
use crate::dir::hash::HashSettings;
use crate::dir::inline::{InlineDir, InlineDirMut};
use crate::dir::{self, DirBlocks, DirSettings};
use crate::error::Result;
use crate::format::dir_entry::DirFormat;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::InodeFlags;
use crate::inode::mapper::InodeMapper;
use crate::inode::{Inode, inline};
use crate::inodes::Inodes;
use crate::op::Operations;
use crate::txn::Handle;

/// A directory's blocks by its block map.
struct Blocks<'a> {
    ops: &'a Operations,
    inode: &'a Arc<Inode>,
}

fn settings(inodes: &Inodes, inode: &Inode) -> DirSettings {
    let layout = &inodes.layout;
    DirSettings {
        ino: inode.ino,
        format: DirFormat {
            block_size: layout.block_size as usize,
            filetype: layout.features.incompat(Incompat::FILETYPE),
            seed: inode.seed,
            inodes_count: layout.inodes_count,
        },
        hash: inodes.hash,
        dir_index: layout.features.compat(Compat::DIR_INDEX),
        large_dir: layout.features.incompat(Incompat::LARGE_DIR),
    }
}

/// How a volume hashes names.
pub(crate) fn hash_settings(superblock: &crate::format::superblock::Superblock) -> HashSettings {
    let raw = &superblock.raw;
    let flags = raw.s_flags.get();
    HashSettings {
        default_version: raw.s_def_hash_version,
        unsigned: flags & crate::format::superblock::FLAG_UNSIGNED_HASH != 0,
        seed: raw.s_hash_seed.map(|word| word.get()),
    }
}

impl DirBlocks for Blocks<'_> {
    fn settings(&self) -> DirSettings {
        settings(self.ops, self.inode)
    }

    fn indexed(&self) -> bool {
        self.inode.state.read().record.flags.contains(InodeFlags::INDEX)
    }

    fn folded(&self) -> bool {
        self.inode.state.read().record.flags.contains(InodeFlags::CASEFOLD)
    }

    fn set_indexed(&self, handle: &Handle, indexed: bool) -> Result<()> {
        let mut state = self.inode.state.write();
        state.record.flags.set(InodeFlags::INDEX, indexed);
        self.inode.write_inode(self.ops, handle, &mut state)
    }

    fn count(&self) -> u64 {
        self.inode.size() / u64::from(self.ops.layout.block_size)
    }

    fn get(&self, block: FileBlock) -> Result<Arc<Buffer>> {
        let known = {
            let state = self.inode.state.read();
            state.status.find(block)
        };
        let known = match known {
            Some(known) => known,
            None => InodeMapper::find(self.ops, self.inode, &mut self.inode.state.write(), block)?,
        };
        match known.mapping_from(block).place {
            Place::Mapped(pba) => Ok(self.ops.buffers.get(pba)?),
            _ => Err(Corrupt::Directory {
                ino: self.inode.ino,
                block,
                offset: 0,
                what: "hole in a directory",
                value: 0,
            }
            .into()),
        }
    }

    fn append(&self, handle: &Handle) -> Result<(FileBlock, Arc<Buffer>)> {
        let block_size = u64::from(self.ops.layout.block_size);
        let mut guard = self.inode.state.write();
        let state = &mut *guard;
        let block = FileBlock(state.size / block_size);
        let goal = InodeMapper::goal(self.ops, self.inode, state, block)?;
        let source = self.ops.space.for_mapping();
        let pba = crate::space::BlockSource::allocate_block(&*self.ops.space, handle, goal)?;
        let run = Run { start: block, len: 1 };
        let map = self.ops.map_with(self.inode, state, &source);
        match map.insert(handle, &mut state.record.block, run, pba, false) {
            Ok(delta) => state.account(&self.ops.layout, delta),
            Err(error) => {
                crate::space::BlockSource::free(
                    &*self.ops.space,
                    handle,
                    pba,
                    1,
                    crate::space::Freed::Metadata,
                )?;
                return Err(error);
            }
        }
        state.status.set_mapped(run, pba);
        state.set_size_and_disksize(state.size + block_size);
        self.inode.write_inode(self.ops, handle, state)?;
        drop(guard);
        Ok((block, handle.create(pba)?))
    }
}

/// Copies the bytes of an inline directory.
fn inline_bytes(ops: &Operations, inode: &Inode) -> Result<([u8; 60], Vec<u8>)> {
    let state = inode.state.read();
    Ok((state.record.block, inline::tail(ops, inode, &state)?))
}

/// Finds a name, including `.` and `..`.
///
/// # Errors
/// The directory is encrypted or damaged, or the device failed.
pub(crate) fn lookup(
    ops: &Operations,
    inode: &Arc<Inode>,
    name: &[u8],
) -> Result<Option<(Ino, Option<FileKind>)>> {
    if name != b".." {
        inode.check_readable(&ops.layout)?;
    }
    if inode.is_inline() {
        let (head, tail) = inline_bytes(ops, inode)?;
        let found = InlineDir { head: &head, tail: &tail }.lookup(&settings(ops, inode), name)?;
        return Ok(found.map(|found| (found.ino, found.kind)));
    }
    Ok(dir::lookup(&Blocks { ops, inode }, name)?.map(|found| (found.ino, found.kind)))
}

/// Adds a name that does not exist. If space runs out, no name has changed.
///
/// # Errors
/// As [`dir::add`].
pub(crate) fn add(
    ops: &Operations,
    handle: &Handle,
    inode: &Arc<Inode>,
    name: Name<'_>,
    ino: Ino,
    kind: FileKind,
) -> Result<()> {
    if inode.is_inline() {
        if edit_inline(ops, handle, inode, |dir, settings| dir.add(settings, name, ino, kind))? {
            return Ok(());
        }
        to_blocks(ops, handle, inode)?;
    }
    dir::add(&Blocks { ops, inode }, handle, name, ino, kind)
}

/// Removes an existing name.
///
/// # Errors
/// As [`dir::remove`].
pub(crate) fn remove(
    ops: &Operations,
    handle: &Handle,
    inode: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    if inode.is_inline() {
        return edit_inline(ops, handle, inode, |dir, settings| dir.remove(settings, name))
            .map(drop);
    }
    dir::remove(&Blocks { ops, inode }, handle, name).map(drop)
}

/// Changes the inode of a name or of `..`.
///
/// # Errors
/// As [`dir::set_target`].
pub(crate) fn set_target(
    ops: &Operations,
    handle: &Handle,
    inode: &Arc<Inode>,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> Result<()> {
    if inode.is_inline() {
        return edit_inline(ops, handle, inode, |dir, settings| {
            dir.set_target(settings, name, ino, kind)
        })
        .map(drop);
    }
    dir::set_target(&Blocks { ops, inode }, handle, name, ino, kind).map(drop)
}

/// True if the directory contains only `.` and `..`.
///
/// # Errors
/// As [`dir::is_empty`].
pub(crate) fn is_empty(ops: &Operations, inode: &Arc<Inode>) -> Result<bool> {
    if inode.is_inline() {
        let (head, tail) = inline_bytes(ops, inode)?;
        return InlineDir { head: &head, tail: &tail }.is_empty(&settings(ops, inode));
    }
    dir::is_empty(&Blocks { ops, inode })
}

/// Gives a new directory its first block.
///
/// # Errors
/// As [`dir::init_empty`].
pub(crate) fn init(
    ops: &Operations,
    handle: &Handle,
    inode: &Arc<Inode>,
    parent: Ino,
) -> Result<()> {
    dir::init_empty(&Blocks { ops, inode }, handle, parent)
}

/// Entries from `position` on.
///
/// # Errors
/// As [`dir::readdir`].
pub(crate) fn read(
    ops: &Operations,
    inode: &Arc<Inode>,
    position: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    if inode.kind != FileKind::Directory {
        return Err(VfsError::NotDirectory.into());
    }
    inode.check_readable(&ops.layout)?;
    {
        let _names = inode.namespace.read();
        if inode.is_inline() {
            let (head, tail) = inline_bytes(ops, inode)?;
            InlineDir { head: &head, tail: &tail }.readdir(
                &settings(ops, inode),
                position,
                emit,
            )?;
        } else {
            dir::readdir(&Blocks { ops, inode }, position, emit)?;
        }
    }
    super::attributes::touch_access(ops, inode);
    Ok(())
}

/// Changes the entries of an inline directory in the inode.
fn edit_inline<T>(
    ops: &Operations,
    handle: &Handle,
    inode: &Inode,
    edit: impl FnOnce(&mut InlineDirMut<'_>, &DirSettings) -> Result<T>,
) -> Result<T> {
    let mut state = inode.state.write();
    let (mut head, mut tail) = (state.record.block, inline::tail(ops, inode, &state)?);
    let done = edit(&mut InlineDirMut { head: &mut head, tail: &mut tail }, &settings(ops, inode))?;
    inline::replace(inode, &mut state, &head, tail)?;
    inode.write_inode(ops, handle, &mut state)?;
    Ok(done)
}

/// Moves the entries of an inline directory to a block in the same handle. If no block is free, the
/// directory stays inline.
fn to_blocks(ops: &Operations, handle: &Handle, inode: &Arc<Inode>) -> Result<()> {
    let (head, tail) = inline_bytes(ops, inode)?;
    let (before, size) = {
        let mut state = inode.state.write();
        let before = (state.record.clone(), state.size);
        inline::destroy_inline_data(ops, inode, &mut state)?;
        before
    };
    // The entries fit one block. Only its allocation, which comes first, can find no space.
    let converted = InlineDir { head: &head, tail: &tail }.convert(&Blocks { ops, inode }, handle);
    if converted.is_err() && inode.size() == 0 {
        let mut state = inode.state.write();
        state.record = before;
        state.set_size_and_disksize(size);
    }
    converted
}
