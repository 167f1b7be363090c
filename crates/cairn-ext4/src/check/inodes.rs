//! The first walk: every inode of every group, by several threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba, bitmap};
use cairn_check::{Finding, Place, Work};

use super::contents;
use super::facts::Suspect;
use super::form;
use super::record::{self, Verdict};
use super::state::{Group, State};
use super::{kinds, magic, named, one_bit, placed, secret};
use crate::form::{shape, types};
use crate::format::group_desc::{GroupDesc, GroupFlags};
use crate::format::inode::Inode as Record;
use crate::format::layout::inodes;

/// Bytes of an inode table that are read at once.
const PIECE: u64 = 512 << 10;
/// Offset of `i_dtime`.
const DTIME_AT: usize = 20;

/// The walk over all groups; a step is a group.
pub(super) struct Inodes(pub(super) Arc<State>);

impl Work for Inodes {
    fn steps(&self) -> u64 {
        self.0.layout.groups.into()
    }

    fn step(&self, number: u64) -> bool {
        let state = &*self.0;
        if let Ok(group) = u32::try_from(number) {
            table(state, group);
        }
        state.progress.advance(1);
        !state.is_cancelled()
    }
}

/// The number of inodes at the start of a table that may be in use.
pub(super) fn initialised(state: &State, number: u32) -> u32 {
    let all = state.layout.inodes_per_group;
    let Some(group) = state.groups.get(as_index(number)).filter(|group| group.has_table) else {
        return 0;
    };
    if !group.is_sealed || !state.layout.features.has_group_checksums() {
        return all;
    }
    let unused = group.desc.itable_unused;
    let used = match group.desc.flags.contains(GroupFlags::INODE_UNINIT) {
        true => 0,
        false if unused > all => marked(state, group),
        false => all.saturating_sub(unused),
    };
    used.max(always(state, number))
}

/// The number of inodes at the start of a table up to the last one in use by the bitmap, if that is
/// sound: what lies behind may never have been written.
fn marked(state: &State, group: &Group) -> u32 {
    let layout = &state.layout;
    let all = layout.inodes_per_group;
    let block = group.has_inode_bitmap.then(|| state.source.block(group.desc.inode_bitmap).ok());
    let is_sound = |bits: &[u8]| {
        let sum = GroupDesc::inode_bitmap_checksum(bits, layout);
        sum.is_none_or(|sum| sum == group.desc.inode_bitmap_csum)
    };
    let Some(bits) = block.flatten().filter(|bits| is_sound(bits)) else { return all };
    (0..all)
        .rev()
        .find(|index| bitmap::test(&bits, as_index(*index)))
        .map_or(0, |last| last.saturating_add(1))
}

/// The number of inodes at the start of a table up to the last one that belongs to the volume:
/// these are read whatever the descriptor says.
fn always(state: &State, number: u32) -> u32 {
    let system = state.system_inodes().into_iter().chain([inodes::ROOT]);
    let here = system.filter_map(|ino| state.layout.inode_group(ino));
    let here = here.filter(|(group, _)| *group == number);
    here.map(|(_, index)| index.saturating_add(1)).max().unwrap_or(0)
}

fn table(state: &State, number: u32) {
    let layout = &state.layout;
    let count = initialised(state, number);
    let Some(group) = state.groups.get(as_index(number)) else { return };
    let size = as_index(layout.inode_size);
    let bytes = u64::from(count).saturating_mul(layout.inode_size.into());
    let blocks = bytes.div_ceil(layout.block_size.into());
    let piece = PIECE.checked_div(layout.block_size.into()).unwrap_or(1).max(1);
    let mut index = 0_u32;
    let mut at = 0_u64;
    while at < blocks {
        let len = piece.min(blocks.saturating_sub(at));
        let pba = Pba(group.desc.inode_table.get().saturating_add(at));
        let records = len.saturating_mul(layout.block_size.into());
        match state.source.read(pba, len) {
            Ok(bytes) => {
                for bytes in bytes.chunks_exact(size) {
                    if index < count {
                        inode(state, layout.ino(number, index), bytes);
                    }
                    index = index.saturating_add(1);
                }
            }
            Err(error) => {
                state.unreadable(Place::group(number).at_block(pba.get()), &error);
                let skipped = records.checked_div(layout.inode_size.into()).unwrap_or(0);
                index = index.saturating_add(u32::try_from(skipped).unwrap_or(u32::MAX));
            }
        }
        at = at.saturating_add(len);
    }
}

/// True if the number is in use whatever the record says.
fn is_kept(state: &State, ino: Ino, mode: u16) -> bool {
    let known = state.inodes.get(ino.get());
    let is_orphan = known.is_some_and(super::facts::Facts::is_orphan);
    let is_held =
        || known.is_some_and(super::facts::Facts::is_system) && named::is_held(state, ino);
    state.is_reserved(ino) || mode != 0 && (is_orphan || is_held())
}

fn inode(state: &State, ino: Ino, bytes: &[u8]) {
    let right = one_bit::record(state, ino, bytes);
    let bytes = right.as_deref().unwrap_or(bytes);
    let (mode, links) = Record::mode_and_links(bytes);
    if links == 0 && !is_kept(state, ino, mode) {
        if bytes.iter().any(|byte| *byte != 0) {
            deleted(state, ino, bytes, mode);
        }
        return;
    }
    let right = magic::record(state, ino, bytes);
    let bytes = right.as_deref().unwrap_or(bytes);
    let right = placed::record(state, ino, bytes);
    let bytes = right.as_deref().unwrap_or(bytes);
    let right = secret::record(state, ino, bytes);
    let bytes = right.as_deref().unwrap_or(bytes);
    let Some(mut record) = Record::decode_unchecked(bytes, &state.layout) else { return };
    form::note(state, ino, &record);
    let flags = shape::flags(state, ino, &record);
    if flags != record.flags {
        state.corrected.set_flags(ino, flags.bits());
        record.flags = flags;
    }
    let known = state.inodes.get(ino.get());
    let is_left = known.is_some_and(|facts| facts.is_system() || facts.is_orphan());
    let fitting = match is_left {
        true => Vec::new(),
        false => types::contradicted(state, ino, &record),
    };
    if fitting.is_empty() {
        return examine(state, ino, bytes);
    }
    state.suspects.lock().push(Suspect { ino, bytes: bytes.to_vec(), fitting });
}

/// Examines an inode in use, with the mode and flags that are proved.
pub(super) fn examine(state: &State, ino: Ino, bytes: &[u8]) {
    let mut other = Vec::new();
    if state.corrected.has(ino) {
        other = bytes.to_vec();
        state.corrected.apply(ino, &mut other);
    }
    let read = if other.is_empty() { bytes } else { &other };
    let (_, links) = Record::mode_and_links(bytes);
    let Some(record) = Record::decode_unchecked(read, &state.layout) else { return };
    let Some(facts) = state.facts(ino) else { return };
    let verdict = record::check(state, ino, bytes, &record, facts);
    facts.set_in_use(verdict.kind(), links.into());
    state.totals.files.fetch_add(1, Relaxed);
    match verdict {
        Verdict::Sound(kind) => contents::check(state, ino, &record, kind, facts),
        Verdict::Broken => facts.set_broken(),
    }
}

/// A deleted inode keeps its mode and gets a deletion time. A number of an inode in its place is
/// the next one of a list of orphans.
fn deleted(state: &State, ino: Ino, bytes: &[u8], mode: u16) {
    let place = || Place::inode(ino.get()).in_field("i_dtime");
    check_sum(state, ino, bytes);
    let dtime = bytes.get(DTIME_AT..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
    let dtime = u32::from_le_bytes(dtime);
    if dtime == 0 {
        if mode != 0 {
            state.find(&kinds::INODE_DELETED, place());
        }
    } else if dtime <= state.layout.inodes_count && !state.is_recovered {
        let finding = Finding::new(&kinds::ORPHAN_INVALID, place());
        state.findings.add(finding.stored(dtime));
    }
}

fn check_sum(state: &State, ino: Ino, bytes: &[u8]) {
    if let Err(why) = Record::verify(bytes, ino, &state.layout) {
        let place = Place::inode(ino.get());
        state.report(&kinds::INODE_FIELD, &kinds::INODE_CHECKSUM, place, &why);
    }
}
