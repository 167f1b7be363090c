//! Attributes: what stat tells, what chmod, chown and utimens change, and the times that follow from other work.

use std::sync::Arc;

use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{Attributes, FileKind, IoFlags, SetAttributes, SetTime, Timestamp};

use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, State};
use crate::volume::Volume;

/// Access times older than this are renewed by `relatime`.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;

/// The volume's clock as a timestamp.
#[must_use]
pub fn now(volume: &Volume) -> Timestamp {
    Timestamp::from(volume.runtime.now())
}

/// `stat`.
#[must_use]
pub fn get(volume: &Volume, inode: &Inode) -> Attributes {
    let state = inode.state.read();
    let record = &state.record;
    let sectors_per_block = u64::from(volume.layout.block_size) / 512;
    let [atime, mtime, ctime] = record.stored_times();
    Attributes {
        ino: inode.ino,
        generation: record.generation,
        kind: inode.kind,
        permissions: u32::from(record.mode & 0o7777),
        links: record.links,
        uid: record.uid,
        gid: record.gid,
        size: state.size,
        sectors: record.blocks_512 + state.delayed * sectors_per_block + inline_sectors(inode.kind, &state),
        block_size: volume.layout.block_size.max(4096),
        device: match inode.kind {
            FileKind::BlockDevice | FileKind::CharDevice => encode_device(record.device()),
            _ => 0,
        },
        atime,
        mtime,
        ctime,
        crtime: (record.crtime != Timestamp::default()).then_some(record.crtime),
        flags: record.shown_flags(),
    }
}

/// Contents in the inode take no blocks, but programs take a file without sectors for one hole: Linux counts its size.
fn inline_sectors(kind: FileKind, state: &State) -> u64 {
    let is_inline = kind == FileKind::Regular && state.record.flags.contains(InodeFlags::INLINE_DATA);
    if is_inline { state.size.div_ceil(512) } else { 0 }
}

/// Linux's 32-bit `dev_t`: minor 0-7, major 8-19, the rest of the minor above.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// Major and minor number of a `dev_t`.
#[must_use]
pub fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// `chmod`, `chown`, `utimens`, `truncate`, `chattr`.
pub fn set(volume: &Arc<Volume>, inode: &Arc<Inode>, set: &SetAttributes) -> Result<()> {
    volume.check_writable()?;
    inode.flags().check_attributes(set)?;
    if let Some(size) = set.size {
        super::truncate::set_size(volume, inode, size)?;
    }
    // An access control list follows the permissions, and may lie in its own block.
    let credits = if set.permissions.is_some() { volume.credits.xattr } else { 0 };
    let handle = volume.begin(volume.credits.attributes + credits)?;
    let mut state = inode.state.write();
    let now = now(volume);
    if let Some(permissions) = set.permissions {
        crate::xattr_ops::follow_mode(volume, &handle, inode, &mut state, permissions)?;
    }
    apply(&mut state, inode, set, now);
    if set.sets_times_only() {
        return inode.write_inode_times(volume, &handle, &mut state);
    }
    inode.write_inode(volume, &handle, &mut state)
}

fn apply(state: &mut State, inode: &Inode, set: &SetAttributes, now: Timestamp) {
    let record = &mut state.record;
    if set.kill_privileges {
        record.mode = without_privileges(record.mode, inode.kind);
    }
    if let Some(permissions) = set.permissions {
        let bits = u16::try_from(permissions & 0o7777).unwrap_or(0);
        record.mode = (record.mode & !0o7777) | bits;
    }
    record.uid = set.uid.unwrap_or(record.uid);
    record.gid = set.gid.unwrap_or(record.gid);
    record.atime = SetTime::apply(set.atime, record.atime, now);
    record.mtime = SetTime::apply(set.mtime, record.mtime, now);
    record.ctime = set.ctime.unwrap_or(now);
    if let Some(flags) = set.flags {
        let settable = cairn_vfs::InodeFlags::SYNC
            | cairn_vfs::InodeFlags::IMMUTABLE
            | cairn_vfs::InodeFlags::APPEND
            | cairn_vfs::InodeFlags::NODUMP
            | cairn_vfs::InodeFlags::NOATIME
            | cairn_vfs::InodeFlags::DIRSYNC
            | cairn_vfs::InodeFlags::TOPDIR
            | cairn_vfs::InodeFlags::PROJINHERIT;
        let kept = record.flags.bits() & !settable.bits();
        record.flags = InodeFlags::from_bits_retain(kept | (flags & settable).bits());
    }
}

/// Refuses writes that the inode's flags forbid.
pub(super) fn check_write(inode: &Inode, offset: u64, size: u64) -> Result<()> {
    Ok(inode.flags().check_write(offset >= size)?)
}

/// Contents changed: times move and privileges go. In memory; stored with the next write-back, fsync or sync.
pub(super) fn note_modified(volume: &Volume, state: &mut State, flags: IoFlags) {
    if flags.contains(IoFlags::KILL_PRIVILEGES) {
        state.record.mode = without_privileges(state.record.mode, FileKind::Regular);
    }
    if !flags.contains(IoFlags::WRITEBACK) {
        let now = now(volume);
        state.record.mtime = now;
        state.record.ctime = now;
    }
    state.record.version = state.record.version.wrapping_add(1);
    state.dirty = true;
}

/// Contents were read: the access time follows as with `relatime`, in memory.
pub fn touch_access(volume: &Volume, inode: &Inode) {
    if !volume.options.access_times() || volume.is_read_only() {
        return;
    }
    let stale = |state: &State, now: Timestamp| {
        let record = &state.record;
        !record.flags.contains(InodeFlags::NOATIME)
            && (record.atime <= record.mtime
                || record.atime <= record.ctime
                || now.seconds - record.atime.seconds >= RELATIME_SECONDS)
    };
    let now = now(volume);
    if stale(&inode.state.read(), now) {
        let mut state = inode.state.write();
        state.record.atime = now;
        if !std::mem::replace(&mut state.dirty, true) {
            volume.accessed.note(inode.ino);
        }
    }
}
