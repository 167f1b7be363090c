//! The resize inode: its double indirect block lists the reserved descriptor blocks, each of which
//! lists its backups.

use cairn_base::{Pba, units::as_index};
use cairn_check::{Finding, Place, Value};

use super::claims::Claims;
use super::kinds;
use super::state::State;
use crate::format::features::Compat;
use crate::format::indirect::{decode, decode_inode};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::{Layout, inodes};

/// The slot of the double indirect block in `i_block`.
const DOUBLE: usize = 13;
/// Flags of contents in another form than pointers.
const OTHER_FORMS: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);

fn fault(state: &State, place: Place, found: u64, computed: u64) {
    state.differ(&kinds::INODE_RESIZE, place, found, computed);
}

/// The groups with backups.
fn backups(layout: &Layout) -> Vec<u32> {
    (1..layout.groups).filter(|group| layout.backups(*group)).collect()
}

/// Checks the inode and all that it lists.
pub(super) fn check(state: &State, record: &Record, mut claims: Claims<'_>) {
    let layout = &state.layout;
    let here = || Place::inode(inodes::RESIZE.get());
    if !layout.features.compat(Compat::RESIZE_INODE) {
        return;
    }
    let wrong = [
        ("i_links_count", record.links == 0, record.links.into(), 1),
        ("i_mode", !record.is_regular(), record.mode.into(), 0o100_600),
        ("i_flags", record.flags.intersects(OTHER_FORMS), record.flags.bits().into(), 0),
        ("i_file_acl", record.file_acl != Pba(0), record.file_acl.get(), 0),
    ];
    if let Some((field, _, found, computed)) = wrong.into_iter().find(|(_, is, ..)| *is) {
        return fault(state, here().in_field(field), found, computed);
    }
    let slots = decode_inode(&record.block);
    let others = slots.iter().enumerate().filter(|(slot, _)| *slot != DOUBLE);
    if let Some((_, pointer)) = others.into_iter().find(|(_, pointer)| **pointer != 0) {
        return fault(state, here().in_field("i_block"), (*pointer).into(), 0);
    }
    let top = Pba(slots.get(DOUBLE).copied().unwrap_or(0).into());
    if layout.reserved_gdt_blocks == 0 && top == Pba(0) {
        return;
    }
    if top.get() <= layout.first_data_block || !layout.contains(top, 1) {
        return fault(state, here().in_field("i_block"), top.get(), layout.blocks_count);
    }
    if claims.is_system(0, top, 1) {
        return;
    }
    claims.claim_block(top);
    let Ok(block) = state.source.block(top) else {
        return state.find(&kinds::INODE_RESIZE, here().at_block(top.get()));
    };
    let backups = backups(layout);
    let mut pointers = decode(&block);
    let words = layout.block_size / 4;
    let first = layout.superblock_block(0).get().saturating_add(1);
    let first = first.saturating_add(layout.contiguous_descriptor_blocks().into());
    for index in 0..layout.reserved_gdt_blocks {
        let slot = layout.contiguous_descriptor_blocks().saturating_add(index);
        let slot = slot.checked_rem(words).unwrap_or(0);
        let found = pointers.get(as_index(slot)).copied().unwrap_or(0);
        if let Some(slot) = pointers.get_mut(as_index(slot)) {
            *slot = 0;
        }
        let primary = first.saturating_add(index.into());
        if u64::from(found) != primary {
            return fault(state, here().at_block(top.get()), found.into(), primary);
        }
        if !check_backups(state, Pba(primary), &backups) {
            return;
        }
    }
    if let Some(other) = pointers.iter().find(|pointer| **pointer != 0) {
        return fault(state, here().at_block(top.get()), (*other).into(), 0);
    }
    let last = layout.contiguous_descriptor_blocks().saturating_add(layout.reserved_gdt_blocks);
    let least =
        least_size(layout, last.saturating_sub(1).checked_rem(words).unwrap_or(0), &backups);
    if layout.reserved_gdt_blocks > 0 && record.size < least {
        return fault(state, here().in_field("i_size"), record.size, least);
    }
    let listed = backups.len().saturating_add(1);
    let listed = u64::try_from(listed).unwrap_or(u64::MAX);
    let blocks = u64::from(layout.reserved_gdt_blocks).saturating_mul(listed).saturating_add(1);
    // Each of them counts as a cluster.
    let computed = blocks.saturating_mul(state.cluster_blocks()) << state.units();
    if record.blocks_512 != computed {
        let place = here().in_field("i_blocks");
        state.differ(&kinds::INODE_BLOCKS, place, record.blocks_512, computed);
    }
}

/// The size up to the last block that is listed, in the last slot in use of the double indirect
/// block.
fn least_size(layout: &Layout, slot: u32, backups: &[u32]) -> u64 {
    if backups.is_empty() {
        return 0;
    }
    let words = u64::from(layout.block_size / 4);
    let before = words.saturating_mul(u64::from(slot).saturating_add(1)).saturating_add(12);
    let listed = u64::try_from(backups.len()).unwrap_or(u64::MAX);
    before.saturating_add(listed).saturating_mul(layout.block_size.into())
}

/// A reserved block lists its copies in the groups with backups.
fn check_backups(state: &State, primary: Pba, backups: &[u32]) -> bool {
    let place = || Place::inode(inodes::RESIZE.get()).at_block(primary.get());
    let block = match state.source.block(primary) {
        Ok(block) => block,
        Err(error) => {
            state.unreadable(place(), &error);
            return false;
        }
    };
    let mut pointers = decode(&block).into_iter();
    for group in backups {
        let in_groups = u64::from(*group).saturating_mul(state.layout.blocks_per_group.into());
        let computed = primary.get().saturating_add(in_groups);
        let found = pointers.next().unwrap_or(0);
        if u64::from(found) != computed {
            fault(state, place(), found.into(), computed);
            return false;
        }
    }
    if let Some(rest) = pointers.find(|pointer| *pointer != 0) {
        let finding = Finding::new(&kinds::INODE_RESIZE, place());
        state.findings.add(finding.stored(rest).computed(Value::Number(0)));
        return false;
    }
    true
}
