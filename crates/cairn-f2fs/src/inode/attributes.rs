//! Attributes: what `stat` tells, and what chmod, chown, utimens and chattr change.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{Attributes, FileKind, InodeFlags, SetAttributes, SetTime, Timestamp};

use super::{Inode, resize};
use crate::error::Result;
use crate::format::features::Features;
use crate::format::inode::{FileFlags, InlineFlags, Inode as Record};
use crate::format::units::BLOCK_SIZE;
use crate::volume::Volume;
use crate::xattr;

/// Access times older than this are renewed by `relatime`.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;
const SECTORS_PER_BLOCK: u64 = BLOCK_SIZE as u64 / 512;

/// All attributes.
#[must_use]
pub fn get(volume: &Volume, inode: &Inode) -> Attributes {
    let state = inode.state.read();
    let record = &state.record;
    let has_crtime = volume.layout.features.contains(Features::INODE_CRTIME);
    let crtime = record.extra.filter(|extra| has_crtime && extra.has_crtime()).map(|extra| extra.crtime);
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

/// The inode's own block does not count; inline contents count as what they would take of it.
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
const SETTABLE: [(FileFlags, InodeFlags); 7] = [
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
pub fn flags(record: &Record) -> InodeFlags {
    let shown = SETTABLE.into_iter().chain([(FileFlags::INDEX, InodeFlags::INDEX)]);
    let known = shown.filter(|(stored, _)| record.flags.contains(*stored));
    let mut flags = known.fold(InodeFlags::empty(), |flags, (_, flag)| flags | flag);
    flags.set(InodeFlags::INLINE_DATA, record.inline.intersects(InlineFlags::DATA | InlineFlags::DENTRY));
    flags
}

/// The volume's clock.
#[must_use]
pub fn now(volume: &Volume) -> Timestamp {
    Timestamp::from(volume.runtime.now())
}

/// `chmod`, `chown`, `utimens`, `truncate`, `chattr`.
///
/// # Errors
/// The inode's flags forbid it; the size cannot be; the volume cannot be written, is damaged, or the device failed.
pub fn set(volume: &Arc<Volume>, inode: &Arc<Inode>, set: &SetAttributes) -> Result<()> {
    volume.check_writable()?;
    inode.flags().check_attributes(set)?;
    if let Some(size) = set.size {
        resize::set_size(volume, inode, size)?;
    }
    let _data = inode.data.write();
    // An access control list follows the permissions; it keeps its size.
    volume.change(0, |op| {
        if let Some(permissions) = set.permissions {
            xattr::edit::follow_mode(op, inode, permissions)?;
        }
        let mut state = inode.state.write();
        apply(&mut state.record, set, now(volume));
        inode.touch(volume, &mut state);
        Ok(())
    })
}

/// Contents were read: is the access time to follow, as with `relatime`?
#[must_use]
pub fn is_access_due(volume: &Volume, inode: &Inode) -> bool {
    let now = now(volume);
    let stale = {
        let record = &inode.state.read().record;
        let old = now.seconds.saturating_sub(record.atime.seconds) >= RELATIME_SECONDS;
        let tells = record.atime <= record.mtime || record.atime <= record.ctime;
        !record.flags.contains(FileFlags::NOATIME) && (tells || old)
    };
    stale && volume.store.is_some() && volume.options().access_times
}

/// The access time is now. Call it with no lock held. Where it cannot be kept (a volume that is full, or only read) it stays as it was.
pub fn touch_access(volume: &Volume, inode: &Arc<Inode>) {
    if volume.read_only_reason().is_some() {
        return;
    }
    let kept = volume.change(0, |_| {
        let mut state = inode.state.write();
        state.record.atime = now(volume);
        inode.touch(volume, &mut state);
        Ok(())
    });
    if let Err(error) = kept {
        tracing::debug!(ino = %inode.nid, %error, "the access time is not renewed");
    }
}

fn apply(record: &mut Record, set: &SetAttributes, now: Timestamp) {
    if set.kill_privileges {
        record.permissions = without_privileges(record.permissions, record.kind);
    }
    if let Some(permissions) = set.permissions {
        record.permissions = (permissions & 0o7777) as u16;
    }
    record.uid = set.uid.unwrap_or(record.uid);
    record.gid = set.gid.unwrap_or(record.gid);
    record.atime = SetTime::apply(set.atime, record.atime, now);
    record.mtime = SetTime::apply(set.mtime, record.mtime, now);
    record.ctime = set.ctime.unwrap_or(now);
    for (stored, shown) in SETTABLE {
        if let Some(flags) = set.flags {
            record.flags.set(stored, flags.contains(shown));
        }
    }
}
