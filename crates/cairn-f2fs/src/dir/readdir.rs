//! Listing entries.
//!
//! A position is `block << 8 | slot` of the next entry. Inline entries count as block 0, and keep
//! their slots when they move to a block. Entries that roll-forward added come last. A bad entry or
//! block is skipped, and the first damage is the error of the call.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use cairn_base::Ino;
use cairn_base::units::as_u64;
use cairn_vfs::{DirEntry, Error as VfsError, FileKind, Name, PastDamage};

use super::{bad_entry, bad_name, blocks, check_entry};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::form::names::Names;
use crate::format::dentry::{Dentries, Dentry, slots_for};
use crate::format::units::Nid;
use crate::inode::Inode;
use crate::recovery::overlay::AddedEntries;

const SLOT_BITS: u32 = u8::BITS;
/// Where the positions of added entries begin.
const ADDED: u64 = 1 << 62;

/// Lists entries from `position` on as long as `emit` returns true.
///
/// # Errors
/// The inode is not a directory, or is encrypted; the directory is damaged, or the device failed:
/// then all readable entries have been listed.
pub(crate) fn read(
    disk: &Disk,
    directory: &Inode,
    position: u64,
    emit: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    if directory.kind != FileKind::Directory {
        return Err(VfsError::NotDirectory.into());
    }
    directory.check_unencrypted(disk)?;
    let added = disk.nodes.overlay().entries(directory.nid);
    let names = directory.with_record(|record| Names::of(record, disk.layout.features));
    let damage = PastDamage::default();
    let mut listing = Listing { disk, directory: directory.nid, names, added, damage, emit };
    let listed = listing.from(directory, position);
    listing.damage.end(listed)
}

struct Listing<'a> {
    disk: &'a Disk,
    directory: Nid,
    names: Names,
    added: Option<&'a AddedEntries>,
    damage: PastDamage<Error>,
    emit: &'a mut dyn FnMut(DirEntry) -> bool,
}

impl Listing<'_> {
    fn from(&mut self, directory: &Inode, position: u64) -> Result<()> {
        if position < ADDED {
            let [slot, ..] = position.to_le_bytes();
            let (block, slot) = (position >> SLOT_BITS, usize::from(slot));
            let listed = match directory.is_inline() {
                true => self.inline(directory, block, slot),
                false => self.blocks(directory, block, slot),
            };
            if self.damage.pass(listed)? == Some(false) {
                return Ok(());
            }
        }
        self.added(position.saturating_sub(ADDED));
        Ok(())
    }

    fn inline(&mut self, directory: &Inode, block: u64, slot: usize) -> Result<bool> {
        if block > 0 {
            return Ok(true);
        }
        let image = self.disk.nodes.inode(directory.nid)?.ok_or(VfsError::Stale)?;
        let range = directory.with_record(|record| record.inline_data_range());
        self.slots(image.get(range).unwrap_or_default(), 0, slot, |_| true)
    }

    fn blocks(&mut self, directory: &Inode, block: u64, slot: usize) -> Result<bool> {
        let dir_level = directory.state.read().record.dir_level;
        let mut goes_on = true;
        blocks::for_each(self.disk, directory, block, |index, image| {
            let Some(image) = self.damage.pass(image)? else { return Ok(true) };
            let from = if index == block { slot } else { 0 };
            let bucket = blocks::bucket_of(index, dir_level);
            // A name outside its bucket could not be found, and a block at two places would be
            // listed twice.
            let fits = |entry: &Dentry<'_>| {
                bucket
                    .is_some_and(|(count, at)| u64::from(entry.hash).checked_rem(count) == Some(at))
            };
            goes_on = self.slots(image, index, from, fits)?;
            Ok(goes_on)
        })?;
        Ok(goes_on)
    }

    fn slots(
        &mut self,
        bytes: &[u8],
        block: u64,
        from: usize,
        fits: impl Fn(&Dentry<'_>) -> bool,
    ) -> Result<bool> {
        let dentries = Dentries::new(bytes);
        let (mut slot, mut taken) = (from, 0_usize);
        while let Some(entry) = dentries.next(slot) {
            slot = entry.map_or_else(|bad| bad.next_slot(), |entry| entry.next_slot());
            let checked = entry.map_err(|bad| bad_name(self.directory, block, bad));
            taken = taken.saturating_add(entry.map_or(0, |entry| slots_for(entry.name.len())));
            let checked = checked.and_then(|entry| self.check(block, (&dentries, entry), &fits));
            let Some((entry, name)) = self.damage.pass(checked)? else { continue };
            if self.added.is_some_and(|added| added.contains_key(entry.name)) {
                continue;
            }
            let next = block << SLOT_BITS | as_u64(slot);
            let ino = Ino(entry.ino.get().into());
            if !(self.emit)(DirEntry { ino, kind: entry.kind, name: name.to_buf(), next }) {
                return Ok(false);
            }
        }
        if from == 0 && taken != dentries.used_slots() {
            let what = "slots are marked as used that no name takes";
            let value = as_u64(dentries.used_slots());
            self.damage.pass(Err::<(), _>(bad_entry(self.directory, block, 0, what, value)))?;
        }
        Ok(true)
    }

    fn check<'b>(
        &self,
        block: u64,
        (dentries, entry): (&Dentries<'b>, Dentry<'b>),
        fits: impl Fn(&Dentry<'_>) -> bool,
    ) -> Result<(Dentry<'b>, Name<'b>)> {
        let name = check_entry(self.directory, block, &entry, &self.disk.layout)?;
        if !fits(&entry) {
            let what = "the name is not in the bucket of its hash";
            return Err(bad_entry(self.directory, block, entry.slot, what, entry.hash.into()));
        }
        let is_dot = matches!(entry.name, b"." | b"..");
        if !is_dot && self.names.hash(entry.name).is_some_and(|hash| hash != entry.hash) {
            let what = "the hash is that of another name";
            return Err(bad_entry(self.directory, block, entry.slot, what, entry.hash.into()));
        }
        if !dentries.is_whole(&entry) {
            let (what, value) = ("a part of the name's slots is free", as_u64(entry.name.len()));
            return Err(bad_entry(self.directory, block, entry.slot, what, value));
        }
        Ok((entry, name))
    }

    fn added(&mut self, from: u64) {
        let Some(added) = self.added else { return };
        // Each has the position of the next one.
        const FIRST_NEXT: u64 = ADDED + 1;
        for (next, (name, (nid, kind))) in
            (FIRST_NEXT..).zip(added).skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            let entry = DirEntry { ino: nid.ino(), kind: Some(*kind), name: name.clone(), next };
            if !(self.emit)(entry) {
                return;
            }
        }
    }
}
