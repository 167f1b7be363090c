//! Group descriptors, with the checksums of their bitmaps.

use cairn_base::Pba;
use cairn_check::{Detail, Fields};

use crate::error::{Error, Result};
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::raw::{FoundDesc, RawVolume};

/// Most groups that are shown at once.
const MOST: u32 = 65_536;

/// One descriptor, or all.
///
/// # Errors
/// There is no such group, or more than can be shown at once.
pub(super) fn show(volume: &RawVolume, group: Option<u32>) -> Result<Fields> {
    let groups = volume.layout.groups;
    let wanted = match group {
        Some(group) if group < groups => group..group.saturating_add(1),
        Some(group) => {
            let why =
                format!("no group {group}: they count from 0 to {}", groups.saturating_sub(1));
            return Err(Error::Option(why));
        }
        None if groups > MOST => {
            return Err(Error::Option(format!("{groups} groups are too many: give a number")));
        }
        None => 0..groups,
    };
    let list: Vec<Fields> = wanted.map(|group| one(volume, group)).collect();
    Ok(Fields::new().with("groups", list))
}

fn one(volume: &RawVolume, group: u32) -> Fields {
    let layout = &volume.layout;
    let mut fields = Fields::new().with("group", group);
    let Some(found) = volume.desc(group) else {
        fields.put("error", "its descriptor cannot be read");
        return fields;
    };
    let FoundDesc { block, offset, bytes, desc, wrong } = found;
    fields.put("first_block", layout.group_first_block(group).get());
    fields.put("blocks", layout.group_blocks(group));
    fields.put("has_superblock", group == 0 || layout.backups(group));
    fields.put("descriptor_block", block.get());
    fields.put("descriptor_offset", offset);
    fields.put("block_bitmap", desc.block_bitmap.get());
    fields.put("inode_bitmap", desc.inode_bitmap.get());
    fields.put("inode_table", desc.inode_table.get());
    fields.put("free_blocks_count", desc.free_blocks);
    fields.put("free_inodes_count", desc.free_inodes);
    fields.put("used_dirs_count", desc.used_dirs);
    fields.put("itable_unused", desc.itable_unused);
    let flags = GroupDesc::stored_flags(&bytes);
    let names = flags.iter_names().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    fields.put("flags", names);
    if let Some((stored, computed)) = GroupDesc::checksums(&bytes, group, layout) {
        fields.checksum(stored, computed);
    }
    type Sum = fn(&[u8], &crate::format::layout::Layout) -> Option<u32>;
    let bitmaps: [(_, Pba, u32, GroupFlags, Sum); 2] = [
        (
            "block_bitmap_checksum",
            desc.block_bitmap,
            desc.block_bitmap_csum,
            GroupFlags::BLOCK_UNINIT,
            GroupDesc::block_bitmap_checksum,
        ),
        (
            "inode_bitmap_checksum",
            desc.inode_bitmap,
            desc.inode_bitmap_csum,
            GroupFlags::INODE_UNINIT,
            GroupDesc::inode_bitmap_checksum,
        ),
    ];
    for (key, pba, stored, uninit, sum) in bitmaps {
        let bits = volume.block(pba).ok().filter(|_| !flags.contains(uninit));
        if let Some(computed) = bits.and_then(|bits| sum(&bits, layout)) {
            let shown = Fields::new()
                .with("stored", Detail::Hex(stored.into()))
                .with("computed", Detail::Hex(computed.into()))
                .with("right", stored == computed);
            fields.put(key, shown);
        }
    }
    if let Some(wrong) = wrong {
        fields.put("error", wrong.to_string());
    }
    fields
}
