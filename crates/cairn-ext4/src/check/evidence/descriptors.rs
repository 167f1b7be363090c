//! Places of bitmaps and inode tables that a backup of the descriptors has, parts of tables that a
//! descriptor calls unused although the bitmap says that they are in use, and places of the first
//! table by which there is a root.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, bitmap};
use cairn_check::{Finding, Place, Report};
use cairn_vfs::FileKind;

use super::super::inodes::initialised;
use super::super::kinds;
use super::super::state::State;
use super::candidate::{Candidate, Proof};
use super::root;
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::inode::Inode as Record;

/// Fields, and groups, that are tried one by one, at most.
const SINGLE: usize = 8;

const UNUSED: &str = "bg_itable_unused";
const FLAGS: &str = "bg_flags";

/// A field that may have another value.
#[derive(Clone, Copy)]
struct Other {
    group: u32,
    field: &'static str,
    stored: u64,
    value: u64,
}

/// Tables as their bitmaps say; then the places of the first backup. Each field if there are few,
/// each group likewise, and all together.
pub(super) fn candidates(state: &State, report: &Report) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for others in [used(state, report), differences(state)] {
        let groups: Vec<&[Other]> = others.chunk_by(|a, b| a.group == b.group).collect();
        // One by one: what a never used bitmap holds may be noise.
        if groups.len() <= SINGLE {
            let single = others.iter().map(std::slice::from_ref);
            let few = others.len() <= SINGLE;
            found.extend(single.filter(|_| few).filter_map(|one| candidate(state, one)));
            let whole = groups.iter().filter(|group| group.len() > 1);
            found.extend(whole.filter_map(|group| candidate(state, group)));
        }
        if groups.len() > 1 {
            found.extend(candidate(state, &others));
        }
    }
    found.extend(first_tables(state));
    found
}

/// Places of the first inode table by which there is a root, if there is none where the descriptor
/// says.
fn first_tables(state: &State) -> Vec<Candidate> {
    let Some(known) = state.groups.first() else { return Vec::new() };
    let stored = known.desc.inode_table.get();
    let other = |table: Pba| {
        let others = [Other { group: 0, field: "bg_inode_table", stored, value: table.get() }];
        Some(Candidate { proof: Proof::Guess, ..candidate(state, &others)? })
    };
    root::tables(state).into_iter().filter_map(other).collect()
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
                    let (stored, value) = (stored.get(), copy.get());
                    others.push(Other { group, field, stored, value });
                }
            }
        }
    }
    others
}

/// The numbers that names lead to, although they are not in use, of inodes that look as if they
/// were.
fn named(state: &State, report: &Report) -> BTreeSet<u64> {
    let is_named = |finding: &&Finding| finding.kind.code == kinds::ENTRY_TARGET.code;
    let named = report.findings.iter().filter(is_named);
    let named = named.filter_map(|finding| finding.stored.as_ref()?.number());
    let is_whole = |number: &u64| {
        let ino = Ino(*number);
        state.record_bytes(ino).is_some_and(|bytes| {
            let (mode, links) = Record::mode_and_links(&bytes);
            let is_sealed = Record::verify(&bytes, ino, &state.layout).is_ok();
            links > 0 && FileKind::from_mode(mode.into()).is_some() && is_sealed
        })
    };
    named.filter(is_whole).collect()
}

/// Marks of unused inodes, in groups whose bitmap has some of them, or to some of which names lead:
/// the bitmap may be as old as the descriptor.
fn used(state: &State, report: &Report) -> Vec<Other> {
    let named = named(state, report);
    let all = state.layout.inodes_per_group;
    let mut others = Vec::new();
    for (group, known) in (0_u32..).zip(&state.groups).filter(|(_, known)| known.is_sealed) {
        let (desc, first) = (&known.desc, initialised(state, group));
        if !known.has_table || first >= all {
            continue;
        }
        let bits = known.has_inode_bitmap.then(|| state.source.block(desc.inode_bitmap).ok());
        let is_marked = bits
            .flatten()
            .is_some_and(|bits| bitmap::next_set(&bits, as_index(first), as_index(all)).is_some());
        let behind = state.layout.ino(group, 0).get().saturating_add(all.into());
        let unused = state.layout.ino(group, first).get()..behind;
        let is_used = is_marked || named.range(unused).next().is_some();
        if !is_used {
            continue;
        }
        let mut add = |field, stored, value| {
            if stored != value {
                others.push(Other { group, field, stored, value });
            }
        };
        add(UNUSED, desc.itable_unused.into(), 0);
        let flags = desc.flags.difference(GroupFlags::INODE_UNINIT);
        add(FLAGS, desc.flags.bits().into(), flags.bits().into());
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
        // Of a descriptor with a wrong checksum nobody believes what is unused: all is read.
        if state.groups.get(as_index(other.group)).is_some_and(|known| !known.is_sealed) {
            desc.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
            desc.itable_unused = 0;
        }
        match other.field {
            UNUSED => desc.itable_unused = 0,
            FLAGS => desc.flags.remove(GroupFlags::INODE_UNINIT),
            "bg_block_bitmap" => desc.block_bitmap = Pba(other.value),
            "bg_inode_bitmap" => desc.inode_bitmap = Pba(other.value),
            _ => desc.inode_table = Pba(other.value),
        }
        desc.encode(other.group, layout, bytes);
        let place = Place::group(other.group).in_field(other.field);
        let finding = Finding::new(&kinds::GROUP_CONTRADICTED, place);
        findings.push(match other.field {
            FLAGS => finding.hex(other.stored, other.value),
            _ => finding.stored(other.stored).computed(other.value),
        });
    }
    let size = u64::from(layout.block_size);
    let edits =
        blocks.into_iter().map(|(pba, bytes)| (pba.get().saturating_mul(size), bytes)).collect();
    Some(Candidate { findings, edits, proof: Proof::Witness })
}
