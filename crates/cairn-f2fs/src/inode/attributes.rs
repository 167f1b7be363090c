//! Attributes for `stat`, and the times that a change of contents sets.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{Attributes, FileKind, InodeFlags, IoFlags};

use super::{Inode, State};
use crate::disk::Disk;
use crate::format::features::Features;
use crate::format::inode::{FileFlags, InlineFlags, Inode as Record};
use crate::format::units::BLOCK_SIZE;
use crate::inodes::Inodes;

const SECTORS_PER_BLOCK: u64 = BLOCK_SIZE as u64 / 512;

/// All attributes.
#[must_use]
pub(crate) fn get(disk: &Disk, inode: &Inode) -> Attributes {
    let state = inode.state.read();
    let record = &state.record;
    let has_crtime = disk.layout.features.contains(Features::INODE_CRTIME);
    let crtime =
        record.extra.filter(|extra| has_crtime && extra.has_crtime()).map(|extra| extra.crtime);
    Attributes {
        ino: Ino(inode.nid.get().into()),
        generation: record.generation,
        kind: inode.kind,
        permissions: record.permissions.into(),
        links: record.links,
        uid: record.uid,
        gid: record.gid,
        size: record.size,
        sectors: sectors(record) + inode.map.delayed() * SECTORS_PER_BLOCK,
        block_size: BLOCK_SIZE as u32,
        device: inode.device,
        atime: record.atime,
        mtime: record.mtime,
        ctime: record.ctime,
        crtime,
        flags: flags(record),
    }
}

/// The inode's own block is not counted. Inline contents count with the sectors that they take of
/// it.
fn sectors(record: &Record) -> u64 {
    let below = record.blocks.saturating_sub(1).saturating_mul(SECTORS_PER_BLOCK);
    let inline_file = record.kind == FileKind::Regular && record.inline.contains(InlineFlags::DATA);
    if inline_file || record.inline.contains(InlineFlags::DENTRY) {
        below.saturating_add(record.size.div_ceil(512))
    } else {
        below
    }
}

/// The flags that `chattr` may set, stored and shown.
pub(super) const SETTABLE: [(FileFlags, InodeFlags); 7] = [
    (FileFlags::SYNC, InodeFlags::SYNC),
    (FileFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
    (FileFlags::APPEND, InodeFlags::APPEND),
    (FileFlags::NODUMP, InodeFlags::NODUMP),
    (FileFlags::NOATIME, InodeFlags::NOATIME),
    (FileFlags::DIRSYNC, InodeFlags::DIRSYNC),
    (FileFlags::PROJINHERIT, InodeFlags::PROJINHERIT),
];

/// The `chattr` flags.
#[must_use]
pub(crate) fn flags(record: &Record) -> InodeFlags {
    let shown = SETTABLE.into_iter().chain([(FileFlags::INDEX, InodeFlags::INDEX)]);
    let known = shown.filter(|(stored, _)| record.flags.contains(*stored));
    let mut flags = known.fold(InodeFlags::empty(), |flags, (_, flag)| flags | flag);
    flags.set(
        InodeFlags::INLINE_DATA,
        record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY),
    );
    flags
}

/// Sets the times after a change of the contents.
pub(super) fn modified(inodes: &Inodes, inode: &Arc<Inode>, state: &mut State) {
    written(inodes, inode, state, IoFlags::empty());
}

/// As [`modified`], after a write: removes privileges if the write asks for it, and leaves the
/// times to a kernel that keeps them itself.
pub(super) fn written(inodes: &Inodes, inode: &Arc<Inode>, state: &mut State, flags: IoFlags) {
    let record = &mut state.record;
    if flags.contains(IoFlags::KILL_PRIVILEGES) {
        record.permissions = without_privileges(record.permissions, record.kind);
    }
    if !flags.contains(IoFlags::WRITEBACK) {
        let now = inodes.now();
        (record.mtime, record.ctime) = (now, now);
    }
    inode.mark_dirty(inodes, state);
}
