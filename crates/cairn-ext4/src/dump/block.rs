//! What a block is, whose it is, and its bytes.

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::{Detail, Fields};

use super::map::has_map;
use crate::error::{Error, Result};
use crate::format::extent::Extent;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::Layout;
use crate::raw::RawVolume;
use crate::raw::map::{Seen, Visitor, walk};

/// A block.
///
/// # Errors
/// The volume has no such block, or it cannot be read.
pub(super) fn show(volume: &RawVolume, number: u64) -> Result<Fields> {
    let layout = &volume.layout;
    if number >= layout.blocks_count {
        let last = layout.blocks_count.saturating_sub(1);
        return Err(Error::Option(format!("no block {number}: they count from 0 to {last}")));
    }
    let pba = Pba(number);
    let mut fields = Fields::new()
        .with("block", number)
        .with("byte", number.saturating_mul(layout.block_size.into()));
    if let Some(group) = layout.group_of(pba) {
        fields.put("group", group);
    }
    if let Some(in_use) = volume.is_block_in_use(pba) {
        fields.put("in_use", in_use);
    }
    match structure(volume, pba) {
        Some(what) => {
            if let Some((first, last)) = what.inodes {
                fields.put("first_inode", first);
                fields.put("last_inode", last);
            }
            fields.put("what", what.words);
        }
        None => put_owner(volume, pba, &mut fields),
    }
    match volume.block(pba) {
        Ok(block) => fields.put("bytes", Detail::Bytes(block.to_vec())),
        Err(error) => fields.put("error", error.to_string()),
    }
    Ok(fields)
}

struct Structure {
    words: String,
    inodes: Option<(u64, u64)>,
}

/// Which structure of the volume the block is.
fn structure(volume: &RawVolume, pba: Pba) -> Option<Structure> {
    let layout = &volume.layout;
    let named = |words: String| Some(Structure { words, inodes: None });
    let home = layout.group_of(pba).unwrap_or(0);
    let has_superblock = home == 0 || layout.backups(home);
    if pba == layout.superblock_block(0) && home == 0 || pba.get() < layout.first_data_block {
        return named("superblock".into());
    }
    let first = layout.group_first_block(home).get();
    let offset = pba.get().saturating_sub(first);
    if has_superblock && offset == 0 {
        return named(format!("backup superblock of group {home}"));
    }
    let head = u64::from(layout.base_metadata(home));
    if offset < head {
        let descriptors = u64::from(layout.contiguous_descriptor_blocks());
        let is_kept = offset > descriptors && !layout.is_meta_bg(home);
        return named(
            if is_kept { "reserved group descriptors" } else { "group descriptors" }.into(),
        );
    }
    // With flex_bg the bitmaps and the table of a group lie in the first of its flexible group.
    let from = layout.flex_start(home);
    let end = from.saturating_add(layout.groups_per_flex()).min(layout.groups);
    (from..end).find_map(|group| in_group(volume, layout, group, pba))
}

fn in_group(volume: &RawVolume, layout: &Layout, group: u32, pba: Pba) -> Option<Structure> {
    let desc = volume.desc(group)?.desc;
    let named = |words: String| Some(Structure { words, inodes: None });
    if pba == desc.block_bitmap {
        return named(format!("block bitmap of group {group}"));
    }
    if pba == desc.inode_bitmap {
        return named(format!("inode bitmap of group {group}"));
    }
    let index = pba.get().checked_sub(desc.inode_table.get())?;
    let index = u32::try_from(index).ok().filter(|at| *at < layout.inode_table_blocks())?;
    let per_block = layout.block_size.checked_div(layout.inode_size)?;
    let first = index.saturating_mul(per_block);
    let last = first.saturating_add(per_block).min(layout.inodes_per_group).saturating_sub(1);
    let inodes = Some((layout.ino(group, first).get(), layout.ino(group, last).get()));
    Some(Structure { words: format!("inode table of group {group}"), inodes })
}

/// Looks for a block in one map.
struct Owner {
    wanted: Pba,
    found: Option<(&'static str, u64)>,
}

impl Visitor for Owner {
    fn node(&mut self, seen: &Seen<'_>) {
        if seen.block == Some(self.wanted) {
            self.found = Some(("map", seen.start));
        }
    }

    fn extent(&mut self, extent: Extent) {
        let within = self.wanted.get().checked_sub(extent.pba.get());
        if let Some(within) = within.filter(|within| *within < extent.len) {
            self.found = Some(("contents", extent.start.saturating_add(within)));
        }
    }

    fn fault(&mut self, _: u64, _: String) {}
}

/// Reads all inodes to find the one that has the block.
fn put_owner(volume: &RawVolume, pba: Pba, fields: &mut Fields) {
    let layout = &volume.layout;
    let per_block = layout.block_size.checked_div(layout.inode_size).unwrap_or(1);
    for group in 0..layout.groups {
        let Some(table) = volume.table(group) else { continue };
        for index in 0..layout.inode_table_blocks() {
            let at = Pba(table.get().saturating_add(index.into()));
            let Ok(block) = volume.block(at) else { continue };
            let first = index.saturating_mul(per_block);
            for (slot, bytes) in (first..).zip(block.chunks_exact(as_index(layout.inode_size))) {
                if slot >= layout.inodes_per_group {
                    break;
                }
                let ino = layout.ino(group, slot);
                if let Some((part, start)) = owns(volume, ino, bytes, pba) {
                    fields.put("what", format!("{part} of an inode"));
                    fields.put("inode", ino.get());
                    if part != "attributes" {
                        fields.put("file_block", start);
                    }
                    return;
                }
            }
        }
    }
    fields.put("what", "no structure, and of no inode");
}

fn owns(volume: &RawVolume, ino: Ino, bytes: &[u8], pba: Pba) -> Option<(&'static str, u64)> {
    let (mode, links) = Record::mode_and_links(bytes);
    let is_reserved = ino.get() < u64::from(volume.layout.first_ino);
    if (links == 0 || mode == 0) && !is_reserved {
        return None;
    }
    let record = Record::decode_unchecked(bytes, &volume.layout)?;
    if record.file_acl == pba {
        return Some(("attributes", 0));
    }
    let is_empty = record.flags.contains(InodeFlags::INLINE_DATA) || record.blocks_512 == 0;
    if is_empty || !(has_map(&record) || is_reserved) {
        return None;
    }
    let mut owner = Owner { wanted: pba, found: None };
    walk(volume, ino, &record, &mut owner);
    owner.found
}
