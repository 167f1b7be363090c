//! Names: blocks of directories, the search for entries, new entries, and `lost+found`.

use std::collections::BTreeSet;

use cairn_vfs::FileKind;

use super::super::nameless;
use super::edit::Edit;
use crate::error::Result;
use crate::form::names::Names;
use crate::format::Inode;
use crate::format::dentry::{Dentries, DentriesMut, bucket_blocks, bucket_start, slots_for};
use crate::format::inode::{ExtentHint, InlineFlags};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE, Nid};

const LOST_FOUND: &[u8] = b"lost+found";
/// Deepest level that new names go to.
const LEVELS: u32 = 16;
/// Most directories on the way to the root.
pub(super) const DEPTH: u32 = 100_000;
/// The slot of the entry `..`.
const PARENT_SLOT: usize = 1;

/// An entry's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) dir: Nid,
    pub(super) block: u64,
    pub(super) slot: usize,
    pub(super) ino: Nid,
}

impl Edit<'_> {
    /// The entries of a block of a directory.
    pub(super) fn dir_block(&self, dir: Nid, block: u64) -> Result<Option<Vec<u8>>> {
        let Some((record, image)) = self.inode(dir)? else { return Ok(None) };
        if record.inline.contains(InlineFlags::DENTRY) {
            let bytes = image.get(record.inline_data_range()).map(<[u8]>::to_vec);
            return Ok(bytes.filter(|_| block == 0));
        }
        match self.slot(dir, block)? {
            Some(slot) if self.layout.in_main(slot.addr) => {
                Ok(Some(self.read(slot.addr.get().into())?))
            }
            _ => Ok(None),
        }
    }

    /// Writes a block of a directory that is there.
    pub(super) fn put_dir_block(&self, dir: Nid, block: u64, bytes: Vec<u8>) -> Result<()> {
        let Some((record, mut image)) = self.inode(dir)? else { return Ok(()) };
        if record.inline.contains(InlineFlags::DENTRY) {
            let place = image.get_mut(record.inline_data_range()).unwrap_or_default();
            place.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
            return self.put_node(dir, image);
        }
        match self.slot(dir, block)? {
            Some(slot) if self.layout.in_main(slot.addr) => {
                self.write(slot.addr.get().into(), bytes)
            }
            _ => Ok(()),
        }
    }

    /// The blocks of a directory that are there, in order.
    pub(super) fn dir_blocks(&self, dir: Nid) -> Result<Vec<u64>> {
        let Some((record, _)) = self.inode(dir)? else { return Ok(Vec::new()) };
        if record.kind != FileKind::Directory {
            return Ok(Vec::new());
        }
        if record.inline.contains(InlineFlags::DENTRY) {
            return Ok(vec![0]);
        }
        Ok(self.data_blocks(dir)?.into_iter().map(|(block, _)| block).collect())
    }

    /// All entries of all directories that name one of these inodes.
    pub(super) fn find_names(&self, wanted: &BTreeSet<Nid>) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        for (dir, node) in self.context.nodes.iter() {
            if node.ino() != dir || node.kind() != Some(FileKind::Directory) {
                continue;
            }
            for block in self.dir_blocks(dir)? {
                let bytes = self.dir_block(dir, block)?.unwrap_or_default();
                for entry in Dentries::new(&bytes).iter().flatten() {
                    if wanted.contains(&entry.ino) && !matches!(entry.name, b"." | b"..") {
                        found.push(Found { dir, block, slot: entry.slot, ino: entry.ino });
                    }
                }
            }
        }
        Ok(found)
    }

    /// The inode that a name leads to.
    pub(super) fn lookup(&self, dir: Nid, name: &[u8]) -> Result<Option<Nid>> {
        let Some((record, _)) = self.inode(dir)? else { return Ok(None) };
        let names = Names::of(&record, self.layout.features);
        let blocks = match names.hash(name) {
            Some(hash) if !record.inline.contains(InlineFlags::DENTRY) => {
                let levels = 0..record.current_depth.min(LEVELS);
                let bucket = |level| {
                    let start = bucket_start(level, record.dir_level, hash);
                    start..start.saturating_add(bucket_blocks(level))
                };
                levels.flat_map(bucket).collect()
            }
            _ => self.dir_blocks(dir)?,
        };
        for block in blocks {
            let Some(bytes) = self.dir_block(dir, block)? else { continue };
            let entries = Dentries::new(&bytes);
            let found = entries.iter().flatten().find(|entry| names.are_equal(entry.name, name));
            if let Some(entry) = found {
                return Ok(Some(entry.ino));
            }
        }
        Ok(None)
    }

    /// Parent and name that an inode itself records.
    pub(super) fn recorded(&self, ino: Nid) -> Result<Option<(Nid, Vec<u8>)>> {
        let Some((record, _)) = self.inode(ino)? else { return Ok(None) };
        Ok(nameless::recorded(&record))
    }

    /// How the names of a directory are stored. `None` if there is no such inode.
    pub(super) fn names_of(&self, dir: Nid) -> Result<Option<Names>> {
        let record = self.inode(dir)?;
        Ok(record.map(|(record, _)| Names::of(&record, self.layout.features)))
    }

    /// Makes an entry. False if there is no room for it, or its hash is not known.
    pub(super) fn insert(
        &mut self,
        dir: Nid,
        name: &[u8],
        ino: Nid,
        kind: FileKind,
    ) -> Result<bool> {
        match self.names_of(dir)?.and_then(|names| names.hash_of_new(name)) {
            Some(hash) => self.insert_hashed(dir, (name, hash), ino, kind),
            None => Ok(false),
        }
    }

    /// Makes an entry with this hash. False if there is no room for it.
    pub(super) fn insert_hashed(
        &mut self,
        dir: Nid,
        (name, hash): (&[u8], u32),
        ino: Nid,
        kind: FileKind,
    ) -> Result<bool> {
        let Some((record, _)) = self.inode(dir)? else { return Ok(false) };
        if record.inline.contains(InlineFlags::DENTRY) {
            if self.insert_in(dir, 0, (name, hash), ino, kind)? {
                return Ok(true);
            }
            if !self.give_blocks(dir)? {
                return Ok(false);
            }
        }
        let Some((record, _)) = self.inode(dir)? else { return Ok(false) };
        for level in 0..LEVELS {
            let start = bucket_start(level, record.dir_level, hash);
            for block in start..start.saturating_add(bucket_blocks(level)) {
                let Some(slot) = self.slot(dir, block)? else { return Ok(false) };
                if !self.layout.in_main(slot.addr) {
                    if !self.put_new(dir, block, vec![0; BLOCK_SIZE])? {
                        return Ok(false);
                    }
                    let end = block.saturating_add(1).saturating_mul(BLOCK_BYTES);
                    self.change(dir, |record| {
                        record.size = record.size.max(end);
                        record.current_depth = record.current_depth.max(level.saturating_add(1));
                        record.blocks = record.blocks.saturating_add(1);
                        record.ext = ExtentHint::default();
                    })?;
                }
                if self.insert_in(dir, block, (name, hash), ino, kind)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn insert_in(
        &self,
        dir: Nid,
        block: u64,
        (name, hash): (&[u8], u32),
        ino: Nid,
        kind: FileKind,
    ) -> Result<bool> {
        let Some(mut bytes) = self.dir_block(dir, block)? else { return Ok(false) };
        let mut entries = DentriesMut::new(&mut bytes);
        let room = entries.view().find_room(slots_for(name.len()));
        let Some(slot) = room.filter(|_| !name.is_empty()) else { return Ok(false) };
        entries.insert(slot, name, hash, ino, kind);
        self.put_dir_block(dir, block, bytes)?;
        Ok(true)
    }

    /// Gives a directory with inline entries a block for them.
    fn give_blocks(&mut self, dir: Nid) -> Result<bool> {
        let Some((mut record, mut image)) = self.inode(dir)? else { return Ok(false) };
        let old = image.get(record.inline_data_range()).unwrap_or_default().to_vec();
        let mut bytes = vec![0; BLOCK_SIZE];
        let mut entries = DentriesMut::new(&mut bytes);
        for entry in Dentries::new(&old).iter().flatten() {
            let room = entries.view().find_room(slots_for(entry.name.len()));
            let Some(slot) = room else { return Ok(false) };
            let kind = entry.kind.unwrap_or(FileKind::Regular);
            entries.insert(slot, entry.name, entry.hash, entry.ino, kind);
        }
        let range = record.inline_data_range();
        let words = range.start.saturating_sub(size_of::<u32>())..range.end;
        image.get_mut(words).unwrap_or_default().fill(0);
        record.inline.remove(InlineFlags::DENTRY | InlineFlags::DATA_EXIST);
        (record.size, record.current_depth, record.dir_level) = (BLOCK_BYTES, 1, 0);
        record.blocks = record.blocks.saturating_add(1);
        record.encode_into(&mut image);
        self.put_node(dir, image)?;
        self.put_new(dir, 0, bytes)
    }

    /// Points the entry `..` to another directory.
    pub(super) fn set_parent(&self, dir: Nid, parent: Nid) -> Result<()> {
        let Some(mut bytes) = self.dir_block(dir, 0)? else { return Ok(()) };
        let found = Dentries::new(&bytes).next(PARENT_SLOT);
        let is_parent = found.is_some_and(|entry| {
            entry.is_ok_and(|entry| entry.name == b".." && entry.slot == PARENT_SLOT)
        });
        if is_parent {
            let mut entries = DentriesMut::new(&mut bytes);
            entries.set_target(PARENT_SLOT, parent, FileKind::Directory);
            self.put_dir_block(dir, 0, bytes)?;
        }
        Ok(())
    }

    /// Does the way up from a directory lead to the root, and not over `ino`?
    pub(super) fn is_below_root(&self, dir: Nid, ino: Nid) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH {
            if at == Nid::ROOT {
                return ino != Nid::ROOT;
            }
            let node = self.context.nodes.inode(at);
            let Some(node) = node.filter(|node| node.kind() == Some(FileKind::Directory)) else {
                return false;
            };
            if at == ino || node.links() == 0 {
                return false;
            }
            at = Nid(node.other());
        }
        false
    }

    /// Removes an entry.
    pub(super) fn remove(&self, found: Found) -> Result<()> {
        let Some(mut bytes) = self.dir_block(found.dir, found.block)? else { return Ok(()) };
        let entry = Dentries::new(&bytes).next(found.slot);
        if entry.is_some_and(|entry| entry.is_ok_and(|entry| entry.slot == found.slot)) {
            DentriesMut::new(&mut bytes).remove(found.slot);
            self.put_dir_block(found.dir, found.block, bytes)?;
        }
        Ok(())
    }

    /// The directory `lost+found`, which is made if it does not exist; the root if it cannot be.
    pub(super) fn lost_found(&mut self) -> Result<Nid> {
        if let Some(known) = self.lost_found {
            return Ok(known);
        }
        let found = match self.lookup(Nid::ROOT, LOST_FOUND)? {
            Some(found) => {
                let record = self.inode(found)?.map(|(record, _)| record.kind);
                let is_directory = record == Some(FileKind::Directory);
                if is_directory { found } else { Nid::ROOT }
            }
            None => self.make_lost_found()?,
        };
        self.lost_found = Some(found);
        Ok(found)
    }

    fn make_lost_found(&mut self) -> Result<Nid> {
        let Some(nid) = self.new_nid()? else { return Ok(Nid::ROOT) };
        let Some((root, _)) = self.inode(Nid::ROOT)? else { return Ok(Nid::ROOT) };
        let extra = root.extra.map_or(0, |extra| extra.size);
        let mut record = Inode::new(FileKind::Directory, 0o700, self.layout.features, extra);
        (record.atime, record.ctime, record.mtime) = (root.ctime, root.ctime, root.ctime);
        record.name = LOST_FOUND.into();
        self.make_directory(nid, (Nid::ROOT, Nid::ROOT), record)?;
        self.insert(Nid::ROOT, LOST_FOUND, nid, FileKind::Directory)?;
        self.change(Nid::ROOT, |record| record.links = record.links.saturating_add(1))?;
        Ok(nid)
    }
}
