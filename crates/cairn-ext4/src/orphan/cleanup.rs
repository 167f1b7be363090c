//! Completes what the orphan records describe (`ext4_orphan_cleanup`): deletions and truncations.

use std::sync::Arc;

use cairn_base::{Ino, Pba};

use super::{FoundSlots, OrphanFile, Slot};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::features::Compat;
use crate::inode::{delete, truncate};
use crate::store::Store;
use crate::system_file::file_extents;
use crate::volume::Volume;

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
pub(crate) fn finish_orphans(volume: &Arc<Volume>, slots: Vec<(Ino, Slot)>) -> Result<()> {
    let (listed, whole) = orphan_list(volume)?;
    if let Err(error) = volume.observe(whole) {
        tracing::warn!(%error, "the list of orphans ends early: run e2fsck");
        note_if_unread(volume, &error);
        if listed.is_empty() {
            clear_list(volume)?;
        }
    }
    let in_file: Vec<Ino> = slots.iter().map(|(ino, _)| *ino).collect();
    let all: Vec<Ino> = in_file.iter().chain(&listed).copied().collect();
    volume.orphans.adopt(slots, listed);
    for ino in in_file {
        drop_stale_slot(volume, ino)?;
    }
    for ino in all.into_iter().filter(|ino| volume.orphans.contains(*ino)) {
        if let Err(error) = volume.observe(finish_orphan(volume, ino)) {
            tracing::warn!(%ino, %error, "an orphan could not be deleted or truncated: run e2fsck");
            note_if_unread(volume, &error);
            if volume.is_read_only() {
                break;
            }
            drop_record(volume, ino)?;
        }
    }
    Ok(())
}

fn finish_orphan(volume: &Arc<Volume>, ino: Ino) -> Result<()> {
    let inode = volume.inode(ino)?;
    if inode.state.read().record.links == 0 {
        delete::delete_inode(volume, &inode)
    } else {
        truncate::finish(volume, &inode)
    }
}

/// Records that e2fsck must run if the error is not one of damage, which is recorded already.
fn note_if_unread(volume: &Volume, error: &Error) {
    if !matches!(error, Error::Corrupt(_)) && !volume.is_read_only() {
        volume.note_damage(error);
    }
}

fn clear_list(volume: &Volume) -> Result<()> {
    if volume.is_read_only() {
        return Ok(());
    }
    let handle = volume.begin(volume.credits.orphan)?;
    volume.superblock.set_last_orphan(volume, &handle, 0)?;
    handle.finish();
    Ok(())
}

/// Removes an orphan's record.
fn drop_record(volume: &Volume, ino: Ino) -> Result<()> {
    let handle = volume.begin(volume.credits.orphan)?;
    volume.orphans.remove(volume, &handle, ino)?;
    handle.finish();
    Ok(())
}

/// e2fsck 1.47 deletes the orphans of a replayed journal but not their slots in the orphan file.
fn drop_stale_slot(volume: &Arc<Volume>, ino: Ino) -> Result<()> {
    if volume.groups.inode_in_use(ino)? {
        return Ok(());
    }
    drop_record(volume, ino)
}

/// The list that begins in the superblock, up to the first invalid member, and the error of that.
pub(crate) fn orphan_list(volume: &Volume) -> Result<(Vec<Ino>, Result<()>)> {
    let mut next = volume.superblock.read(&volume.buffers)?.raw.s_last_orphan.get();
    let mut members = Vec::new();
    let mut seen = std::collections::HashSet::new();
    while next != 0 {
        let ino = Ino(u64::from(next));
        if next > volume.layout.inodes_count || !seen.insert(next) {
            let what = "orphan list has an invalid inode number or a loop";
            return Ok((members, Err(Corrupt::Orphan { what, value: u64::from(next) }.into())));
        }
        next = match volume.read_record(ino) {
            Ok(record) => record.dtime,
            Err(error) => return Ok((members, Err(error))),
        };
        members.push(ino);
    }
    Ok((members, Ok(())))
}
