//! One inode of the oracle.

use std::collections::BTreeMap;

use cairn_base::Ino;
use cairn_vfs::{Attributes, Error, FileKind, InodeFlags, Result, Timestamp};

use super::directory::Directory;
use super::file::{BLOCK, SparseFile};

/// The contents of an inode.
pub(super) enum Content {
    Regular(SparseFile),
    Directory(Directory),
    Symlink(Vec<u8>),
    BlockDevice(u32),
    CharDevice(u32),
    Fifo,
    Socket,
}

/// One inode.
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) permissions: u32,
    pub(super) links: u32,
    pub(super) references: u64,
    pub(super) generation: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) crtime: Timestamp,
    pub(super) flags: InodeFlags,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Node {
    pub(super) fn new(
        content: Content,
        permissions: u32,
        (uid, gid): (u32, u32),
        now: Timestamp,
    ) -> Self {
        Self {
            content,
            permissions,
            links: 1,
            references: 0,
            generation: 0,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            flags: InodeFlags::empty(),
            xattrs: BTreeMap::new(),
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.content {
            Content::Regular(_) => FileKind::Regular,
            Content::Directory(_) => FileKind::Directory,
            Content::Symlink(_) => FileKind::Symlink,
            Content::BlockDevice(_) => FileKind::BlockDevice,
            Content::CharDevice(_) => FileKind::CharDevice,
            Content::Fifo => FileKind::Fifo,
            Content::Socket => FileKind::Socket,
        }
    }

    pub(super) fn file(&self) -> Result<&SparseFile> {
        match &self.content {
            Content::Regular(file) => Ok(file),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    pub(super) fn file_mut(&mut self) -> Result<&mut SparseFile> {
        match &mut self.content {
            Content::Regular(file) => Ok(file),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    pub(super) fn blocks(&self) -> u64 {
        match &self.content {
            Content::Regular(file) => file.allocated(),
            _ => 0,
        }
    }

    /// EPERM for anything that would change an immutable inode.
    pub(super) fn refuse_immutable(&self) -> Result<()> {
        if self.flags.contains(InodeFlags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// EPERM for anything that would change an immutable or append-only inode.
    pub(super) fn refuse_fixed(&self) -> Result<()> {
        if self.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// The bits that Linux removes when an ordinary user writes or truncates, or when any user
    /// changes the owner.
    pub(super) fn kill_privileges(&mut self) {
        if self.kind() == FileKind::Directory {
            return;
        }
        self.permissions &= !0o4000;
        if self.permissions & 0o010 != 0 {
            self.permissions &= !0o2000;
        }
        self.xattrs.remove(&b"security.capability"[..]);
    }

    pub(super) fn attributes(&self, ino: Ino) -> Attributes {
        let (size, device) = match &self.content {
            Content::Regular(file) => (file.size(), 0),
            Content::Directory(_) => (BLOCK, 0),
            Content::Symlink(target) => (target.len() as u64, 0),
            Content::BlockDevice(device) | Content::CharDevice(device) => (0, *device),
            Content::Fifo | Content::Socket => (0, 0),
        };
        let blocks = if self.kind() == FileKind::Directory { 1 } else { self.blocks() };
        Attributes {
            ino,
            generation: self.generation,
            kind: self.kind(),
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            sectors: blocks * (BLOCK / 512),
            block_size: 4096,
            device,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            crtime: Some(self.crtime),
            flags: self.flags,
        }
    }
}
