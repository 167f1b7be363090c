//! Attributes: the values for stat, and the times that other operations change.

use cairn_base::Ino;
use cairn_vfs::namespace::NamedInode;
use cairn_vfs::protection::without_privileges;
use cairn_vfs::{Attributes, FileKind, IoFlags, Timestamp};

use crate::error::Result;
use crate::format::inode::InodeFlags;
use crate::inode::{Inode, State};
use crate::inodes::Inodes;
use crate::store::Store;

/// Access times older than this are renewed by `relatime`.
const RELATIME_SECONDS: i64 = 24 * 60 * 60;

/// The volume's clock as a timestamp.
#[must_use]
pub(crate) fn now(store: &Store) -> Timestamp {
    Timestamp::from(store.runtime.now())
}

/// `stat`.
#[must_use]
pub(crate) fn get(store: &Store, inode: &Inode) -> Attributes {
    let state = inode.state.read();
    let record = &state.record;
    let sectors_per_block = u64::from(store.layout.block_size) / 512;
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
        sectors: record.blocks_512
            + state.delayed * sectors_per_block
            + inline_sectors(inode.kind, &state),
        block_size: store.layout.block_size.max(4096),
        device: match inode.kind {
            FileKind::BlockDevice | FileKind::CharDevice => {
                let (major, minor) = record.device();
                cairn_vfs::encode_device(major, minor).unwrap_or_default()
            }
            _ => 0,
        },
        atime,
        mtime,
        ctime,
        crtime: (record.crtime != Timestamp::default()).then_some(record.crtime),
        flags: record.shown_flags(),
    }
}

/// Inline contents use no blocks. As in Linux, their size is counted in sectors, because programs
/// assume that a file without sectors has no data.
fn inline_sectors(kind: FileKind, state: &State) -> u64 {
    let is_inline =
        kind == FileKind::Regular && state.record.flags.contains(InodeFlags::INLINE_DATA);
    if is_inline { state.size.div_ceil(512) } else { 0 }
}

/// Fails if the inode's flags forbid the write.
pub(super) fn check_write(inode: &Inode, offset: u64, size: u64) -> Result<()> {
    Ok(inode.flags().check_write(offset >= size)?)
}

/// Updates times and privileges after a change of contents, in memory. The next write-back, fsync
/// or sync stores them.
pub(super) fn note_modified(inodes: &Inodes, ino: Ino, state: &mut State, flags: IoFlags) {
    if flags.contains(IoFlags::KILL_PRIVILEGES) {
        state.record.mode = without_privileges(state.record.mode, FileKind::Regular);
    }
    if !flags.contains(IoFlags::WRITEBACK) {
        let now = now(inodes);
        state.record.mtime = now;
        state.record.ctime = now;
    }
    state.record.version = state.record.version.wrapping_add(1);
    state.dirty = true;
    inodes.unwritten.set(ino, state, true);
}

/// Updates the access time after a read as `relatime` does, in memory.
pub(crate) fn touch_access(inodes: &Inodes, inode: &Inode) {
    if !inodes.options.access_times() || inodes.is_read_only() {
        return;
    }
    let stale = |state: &State, now: Timestamp| {
        let record = &state.record;
        !record.flags.contains(InodeFlags::NOATIME)
            && (record.atime <= record.mtime
                || record.atime <= record.ctime
                || now.seconds - record.atime.seconds >= RELATIME_SECONDS)
    };
    let now = now(inodes);
    if stale(&inode.state.read(), now) {
        let mut state = inode.state.write();
        state.record.atime = now;
        if !std::mem::replace(&mut state.dirty, true) {
            inodes.accessed.note(inode.ino);
        }
        inodes.unwritten.set(inode.ino, &mut state, true);
    }
}
