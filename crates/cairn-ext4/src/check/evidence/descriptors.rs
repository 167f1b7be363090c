//! Places of bitmaps and inode tables that a backup of the descriptors has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use cairn_base::Pba;
use cairn_base::units::as_index;
use cairn_check::{Finding, Place};

use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use crate::format::group_desc::GroupDesc;

/// Places that are tried one by one, at most.
const SINGLE: usize = 8;

/// A place that differs.
#[derive(Clone, Copy)]
struct Other {
    group: u32,
    field: &'static str,
    stored: Pba,
    copy: Pba,
}

/// The places of the first backup, one by one if there are few, and all together.
pub(super) fn candidates(state: &State) -> Vec<Candidate> {
    let others = differences(state);
    let mut found: Vec<Candidate> = Vec::new();
    if others.len() <= SINGLE {
        found.extend(others.iter().filter_map(|other| candidate(state, &[*other])));
    }
    if others.len() > 1 {
        found.extend(candidate(state, &others));
    }
    found
}

fn differences(state: &State) -> Vec<Other> {
    let layout = &state.layout;
    let Some(holder) = (1..layout.groups).find(|group| layout.backups(*group)) else {
        return Vec::new();
    };
    let mut others = Vec::new();
    for index in 0..layout.descriptor_blocks() {
        let copy = layout.descriptor_block_copy(index, holder);
        let Some(block) = copy.and_then(|copy| state.source.block(copy).ok()) else { continue };
        let first = index.saturating_mul(layout.descs_per_block());
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        for group in first..end {
            let at = layout.descriptor_offset(group);
            let bytes = block.get(at..at.saturating_add(as_index(layout.desc_size)));
            let Some(known) = state.groups.get(as_index(group)) else { continue };
            let Some(Ok(copy)) = bytes.map(|bytes| GroupDesc::decode(bytes, group, layout)) else {
                continue;
            };
            for (field, stored, copy) in [
                ("bg_block_bitmap", known.desc.block_bitmap, copy.block_bitmap),
                ("bg_inode_bitmap", known.desc.inode_bitmap, copy.inode_bitmap),
                ("bg_inode_table", known.desc.inode_table, copy.inode_table),
            ] {
                if stored != copy {
                    others.push(Other { group, field, stored, copy });
                }
            }
        }
    }
    others
}

fn candidate(state: &State, others: &[Other]) -> Option<Candidate> {
    let layout = &state.layout;
    let mut blocks: BTreeMap<Pba, Vec<u8>> = BTreeMap::new();
    let mut findings = Vec::new();
    for other in others {
        let pba = layout.descriptor_block(other.group);
        let block = match blocks.entry(pba) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(state.source.block(pba).ok()?.to_vec()),
        };
        let at = layout.descriptor_offset(other.group);
        let bytes = block.get_mut(at..at.checked_add(as_index(layout.desc_size))?)?;
        let mut desc = GroupDesc::decode_unchecked(bytes, layout);
        match other.field {
            "bg_block_bitmap" => desc.block_bitmap = other.copy,
            "bg_inode_bitmap" => desc.inode_bitmap = other.copy,
            _ => desc.inode_table = other.copy,
        }
        desc.encode(other.group, layout, bytes);
        let place = Place::group(other.group).in_field(other.field);
        let finding = Finding::new(&kinds::GROUP_CONTRADICTED, place);
        findings.push(finding.stored(other.stored.get()).computed(other.copy.get()));
    }
    let size = u64::from(layout.block_size);
    let edits =
        blocks.into_iter().map(|(pba, bytes)| (pba.get().saturating_mul(size), bytes)).collect();
    Some(Candidate { findings, edits, proof: Proof::Witness })
}
