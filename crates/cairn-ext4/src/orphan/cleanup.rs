//! Completes what the orphan records describe (`ext4_orphan_cleanup`): deletions and truncations.

use std::sync::Arc;

use cairn_base::{Ino, Pba};

use super::{FoundSlots, OrphanFile, Slot};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::features::Compat;
use crate::inode::{delete, truncate};
use crate::mount_state::MountState;
use crate::op::Operations;
use crate::store::Store;
use crate::system_file::file_extents;

/// The orphan file, and the inodes in its slots.
pub(crate) fn open_orphan_file(store: &Store) -> Result<(Option<OrphanFile>, FoundSlots)> {
    if !store.layout.features.compat(Compat::ORPHAN_FILE) {
        return Ok((None, Vec::new()));
    }
    let ino = Ino(u64::from(store.superblock.read(&store.buffers)?.raw.s_orphan_file_inum.get()));
    let record = store.read_record(ino)?;
    let seed = store.layout.checksum.for_inode(ino, record.generation);
    let extents =
        file_extents(&store.layout, &store.buffers, store.groups.system_blocks(ino), ino)?;
    let blocks: Vec<Pba> = extents
        .iter()
        .flat_map(|(_, start, len)| (0..*len).map(move |n| Pba(start.get().saturating_add(n))))
        .collect();
    let (file, slots) = OrphanFile::open(store, seed, &blocks)?;
    Ok((Some(file), slots))
}

/// Deletes inodes without names and truncates the others to their size. An inode for which that
/// fails is left to e2fsck, which the superblock then requests; the mount succeeds.
pub(crate) fn finish_orphans(ops: &Arc<Operations>, slots: Vec<(Ino, Slot)>) -> Result<()> {
    let (listed, whole) = orphan_list(ops)?;
    if let Err(error) = ops.observe(whole) {
        tracing::warn!(%error, "the list of orphans ends early: check and repair the volume");
        note_if_unread(ops, &error);
        if listed.is_empty() {
            clear_list(ops)?;
        }
    }
    let in_file: Vec<Ino> = slots.iter().map(|(ino, _)| *ino).collect();
    let all: Vec<Ino> = in_file.iter().chain(&listed).copied().collect();
    ops.orphans.adopt(slots, listed);
    for ino in in_file {
        drop_stale_slot(ops, ino)?;
    }
    for ino in all.into_iter().filter(|ino| ops.orphans.contains(*ino)) {
        if let Err(error) = ops.observe(finish_orphan(ops, ino)) {
            tracing::warn!(%ino, %error, "an orphan could not be deleted or truncated: check \
                 and repair the volume");
            note_if_unread(ops, &error);
            if ops.is_read_only() {
                break;
            }
            drop_record(ops, ino)?;
        }
    }
    Ok(())
}

fn finish_orphan(ops: &Arc<Operations>, ino: Ino) -> Result<()> {
    let inode = ops.inode(ino)?;
    if inode.state.read().record.links == 0 {
        delete::delete_inode(ops, &inode)
    } else {
        truncate::finish(ops, &inode)
    }
}

/// Records that e2fsck must run if the error is not one of damage, which is recorded already.
fn note_if_unread(mount: &MountState, error: &Error) {
    if !matches!(error, Error::Corrupt(_)) && !mount.is_read_only() {
        mount.note_damage(error);
    }
}

fn clear_list(mount: &MountState) -> Result<()> {
    if mount.is_read_only() {
        return Ok(());
    }
    let handle = mount.begin(mount.credits.orphan)?;
    mount.superblock.set_last_orphan(mount, &handle, 0)?;
    handle.finish();
    Ok(())
}

/// Removes an orphan's record.
fn drop_record(ops: &Operations, ino: Ino) -> Result<()> {
    let handle = ops.begin(ops.credits.orphan)?;
    ops.orphans.remove(ops, &handle, ino)?;
    handle.finish();
    Ok(())
}

/// e2fsck 1.47 deletes the orphans of a replayed journal but not their slots in the orphan file.
fn drop_stale_slot(ops: &Operations, ino: Ino) -> Result<()> {
    if ops.groups.inode_in_use(ino)? {
        return Ok(());
    }
    drop_record(ops, ino)
}

/// The list that begins in the superblock, up to the first invalid member, and the error of that.
pub(crate) fn orphan_list(store: &Store) -> Result<(Vec<Ino>, Result<()>)> {
    let mut next = store.superblock.read(&store.buffers)?.raw.s_last_orphan.get();
    let mut members = Vec::new();
    let mut seen = std::collections::HashSet::new();
    while next != 0 {
        let ino = Ino(u64::from(next));
        if next > store.layout.inodes_count || !seen.insert(next) {
            let what = "orphan list has an invalid inode number or a loop";
            return Ok((members, Err(Corrupt::Orphan { what, value: u64::from(next) }.into())));
        }
        next = match store.read_record(ino) {
            Ok(record) => record.dtime,
            Err(error) => return Ok((members, Err(error))),
        };
        members.push(ino);
    }
    Ok((members, Ok(())))
}
