//! Group descriptors: their checksums, and the places of bitmaps and tables.

use std::collections::BTreeSet;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_check::{Finding, Place};

use super::state::{Group, State};
use super::{kinds, mmp};
use crate::error::Result;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::layout::Layout;

/// Reads all descriptors, and claims the blocks of the volume's structures.
pub(super) fn open(state: &mut State) {
    let layout = state.layout;
    let mut groups = Vec::new();
    for first in (0..layout.groups).step_by(as_index(layout.descs_per_block())) {
        let pba = layout.descriptor_block(first);
        let block = match state.source.block(pba) {
            Ok(block) => block.to_vec(),
            Err(error) => {
                state.unreadable(Place::group(first).at_block(pba.get()), &error);
                Vec::new()
            }
        };
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        for number in first..end {
            let at = layout.descriptor_offset(number);
            let end = at.saturating_add(as_index(layout.desc_size));
            groups.push(group(state, number, block.get(at..end).unwrap_or_default()));
        }
    }
    state.groups = groups;
    claim_bases(state);
    mmp::check(state);
    claim_places(state);
}

/// The groups with descriptors that cannot be. Linux mounts no volume that has one, even if the log
/// has the right one.
///
/// # Errors
/// The device failed.
pub(super) fn impossible(device: &dyn BlockDevice, layout: &Layout) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for first in (0..layout.groups).step_by(as_index(layout.descs_per_block())) {
        let at = layout.descriptor_block(first).get().saturating_mul(layout.block_size.into());
        let block = device.read_block(at, as_index(layout.block_size))?;
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        found.extend((first..end).filter(|number| {
            let at = layout.descriptor_offset(*number);
            let bytes = block.get(at..at.saturating_add(as_index(layout.desc_size)));
            let bytes = bytes.unwrap_or_default();
            let desc = GroupDesc::decode_unchecked(bytes, layout);
            let table = layout.inode_table_blocks();
            GroupDesc::verify(bytes, *number, layout).is_err()
                || [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, table)]
                    .iter()
                    .any(|(pba, blocks)| !is_possible(layout, *number, *pba, *blocks))
        }));
    }
    Ok(found)
}

fn group(state: &State, number: u32, bytes: &[u8]) -> Group {
    let layout = &state.layout;
    let place = Place::group(number);
    let desc = GroupDesc::decode_unchecked(bytes, layout);
    if bytes.is_empty() {
        return Group {
            desc,
            is_sealed: false,
            has_block_bitmap: false,
            has_inode_bitmap: false,
            has_table: false,
        };
    }
    let sealed = GroupDesc::verify(bytes, number, layout);
    if let Err(why) = &sealed {
        state.report(&kinds::GROUP_PLACE, &kinds::GROUP_CHECKSUM, place.clone(), why);
    }
    let flags = GroupDesc::stored_flags(bytes);
    let marks = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
    let is_marked = flags.intersects(marks) || desc.itable_unused != 0;
    if !layout.features.has_group_checksums() && is_marked {
        let finding = Finding::new(&kinds::GROUP_FLAGS, place.clone());
        state.findings.add(finding.hex(flags.bits(), flags.difference(marks).bits()));
    }
    let is_last = number.checked_add(1) == Some(layout.groups);
    let uninit = GroupFlags::BLOCK_UNINIT;
    if layout.features.has_group_checksums() && is_last && flags.contains(uninit) {
        // Its bitmap has padding, which nobody would set.
        let finding = Finding::new(&kinds::GROUP_FLAGS, place.clone());
        state.findings.add(finding.hex(flags.bits(), flags.difference(uninit).bits()));
    }
    let has = |field: &'static str, pba: Pba, blocks: u32| {
        let is_possible = is_possible(layout, number, pba, blocks);
        if !is_possible {
            let place = place.clone().in_field(field);
            state.differ(&kinds::GROUP_PLACE, place, pba.get(), layout.blocks_count);
        }
        is_possible
    };
    Group {
        is_sealed: sealed.is_ok(),
        has_block_bitmap: has("bg_block_bitmap", desc.block_bitmap, 1),
        has_inode_bitmap: has("bg_inode_bitmap", desc.inode_bitmap, 1),
        has_table: has("bg_inode_table", desc.inode_table, layout.inode_table_blocks()),
        desc,
    }
}

/// Can a structure of the group lie there?
fn is_possible(layout: &Layout, group: u32, pba: Pba, blocks: u32) -> bool {
    use crate::format::features::Incompat;
    let last = Pba(pba.get().saturating_add(blocks.into()).saturating_sub(1));
    let is_own = layout.group_of(pba) == Some(group) && layout.group_of(last) == Some(group);
    let inside = layout.contains(pba, blocks.into());
    inside && (is_own || layout.features.incompat(Incompat::FLEX_BG))
}

/// Superblocks and descriptors with their copies.
fn claim_bases(state: &State) {
    let layout = &state.layout;
    for number in 0..layout.groups {
        let base = u64::from(layout.base_metadata(number));
        if base > 0 {
            state.claim_system(layout.group_first_block(number), base);
        }
    }
}

fn claim_places(state: &mut State) {
    let table = u64::from(state.layout.inode_table_blocks());
    let mut groups = std::mem::take(&mut state.groups);
    let claim = |number: u32, field: &'static str, pba: Pba, blocks: u64| {
        let is_new = state.claim_system(pba, blocks);
        if !is_new {
            let place = Place::group(number).in_field(field).at_block(pba.get());
            state.find(&kinds::GROUP_OVERLAP, place);
        }
        is_new
    };
    // Tables first: a bitmap can be made anew, and yields.
    for (number, group) in (0_u32..).zip(&groups).filter(|(_, group)| group.has_table) {
        claim(number, "bg_inode_table", group.desc.inode_table, table);
    }
    for (number, group) in (0_u32..).zip(&mut groups) {
        let desc = &group.desc;
        let mut overlaps = Vec::new();
        for (has, field, pba) in [
            (group.has_block_bitmap, "bg_block_bitmap", desc.block_bitmap),
            (group.has_inode_bitmap, "bg_inode_bitmap", desc.inode_bitmap),
        ] {
            if has && !claim(number, field, pba, 1) {
                overlaps.push(field);
            }
        }
        // What lies there is something else.
        group.has_block_bitmap &= !overlaps.contains(&"bg_block_bitmap");
        group.has_inode_bitmap &= !overlaps.contains(&"bg_inode_bitmap");
    }
    state.groups = groups;
}
