//! Quota files: what they count, against what users, groups and projects have.
//!
//! Linux counts the inodes of files, and their blocks as `i_blocks` does. Inodes that belong to the
//! volume are nobody's. e2fsck leaves out symbolic links that are contents in the inode: a file
//! that counts all or some of these, or none, is right.

use std::collections::BTreeMap;

use cairn_base::units::as_index;
use cairn_base::{Ino, Pba};
use cairn_check::quota::{OwnerKind, QUOTA_BLOCK, QuotaFile, Usage, differences};
use cairn_check::{Finding, Place, Value};

use super::kinds;
use super::map;
use super::map::has_map;
use super::state::State;
use super::visitor::{Run, Runs};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// Blocks of the map of a quota file that are descended from at most.
const MAP_BLOCKS: u32 = 1 << 16;

/// Counts an inode with its 512-byte units and its values in inodes of their own.
pub(super) fn count(state: &State, ino: Ino, record: &Record, (units, values): (u64, u64)) {
    let Some(counted) = &state.usage else { return };
    let is_of_volume = state.is_reserved(ino) && ino != inodes::ROOT;
    let is_system = state.facts(ino).is_some_and(|facts| facts.is_system());
    let is_hidden = is_of_volume || is_system && !state.is_visible_journal(ino);
    if is_hidden || record.flags.contains(InodeFlags::EA_INODE) {
        return;
    }
    let usage = Usage { inodes: values.saturating_add(1), space: units.saturating_mul(512) };
    let owners = [record.uid, record.gid, record.projid];
    counted.add(owners, usage);
    if record.is_symlink() && record.flags.contains(InodeFlags::INLINE_DATA) {
        state.inline_links.add(owners, usage);
    }
}

/// What each owner has as e2fsck counts it.
pub(super) fn without_links(state: &State, kind: OwnerKind) -> BTreeMap<u32, Usage> {
    let Some(counted) = &state.usage else { return BTreeMap::new() };
    let mut counted = counted.usage(kind);
    for (owner, links) in state.inline_links.usage(kind) {
        if let Some(usage) = counted.get_mut(&owner) {
            usage.inodes = usage.inodes.saturating_sub(links.inodes);
            usage.space = usage.space.saturating_sub(links.space);
        }
    }
    counted.retain(|_, usage| *usage != Usage::default());
    counted
}

/// The quota files of the volume.
pub(super) fn files(state: &State) -> Vec<(OwnerKind, Ino)> {
    let raw = &state.superblock.raw;
    let numbers = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
    let files = OwnerKind::ALL.into_iter().zip(numbers.map(|number| Ino(number.get().into())));
    let is_possible = |(kind, ino): &(OwnerKind, Ino)| match kind {
        OwnerKind::User => *ino == Ino(3),
        OwnerKind::Group => *ino == Ino(4),
        OwnerKind::Project => state.facts(*ino).is_some_and(|facts| facts.is_system()),
    };
    files.filter(is_possible).collect()
}

/// Is the inode a quota file of the volume?
pub(super) fn is_file(state: &State, ino: Ino) -> bool {
    state.usage.is_some() && files(state).iter().any(|(_, file)| *file == ino)
}

/// Compares all quota files with what was counted.
pub(super) fn check(state: &State) {
    let Some(counted) = &state.usage else { return };
    for (kind, ino) in files(state) {
        let place = Place::inode(ino.get());
        let file = read(state, kind, ino);
        if let Some(why) = &file.damage {
            let finding = Finding::new(&kinds::QUOTA_FILE, place);
            state.findings.add(finding.stored(Value::text(why)));
            continue;
        }
        let least = without_links(state, kind);
        for one in differences(&file, &counted.usage(kind)) {
            let (stored, most) = (one.stored.unwrap_or_default(), one.counted);
            let least = least.get(&one.id).copied().unwrap_or_default();
            if (least.inodes..=most.inodes).contains(&stored.inodes)
                && (least.space..=most.space).contains(&stored.space)
            {
                continue;
            }
            let stored = one.stored.map_or("no entry".into(), |usage| usage.to_string());
            let finding = Finding::new(&kinds::QUOTA_COUNTS, place.clone().of_owner(one.id));
            let finding = finding.stored(Value::text(stored));
            state.findings.add(finding.computed(Value::text(one.counted.to_string())));
        }
    }
}

/// Reads a quota file, as far as it can be read.
pub(super) fn read(state: &State, kind: OwnerKind, ino: Ino) -> QuotaFile {
    let record = state.record(ino);
    let Some(record) = record.filter(|record| record.is_regular() && has_map(record)) else {
        return QuotaFile::damaged("it is no regular file");
    };
    let mut found = Runs::new(MAP_BLOCKS);
    map::walk(state, ino, &record, &mut found);
    let has_unwritten = found.runs.iter().any(|run| run.unwritten);
    let mut blocks = Blocks { state, runs: found.runs, last: None };
    let size = u64::try_from(QUOTA_BLOCK).unwrap_or(u64::MAX);
    let count = u32::try_from(record.size.checked_div(size).unwrap_or(0)).unwrap_or(u32::MAX);
    let mut file = QuotaFile::read(kind, count, &mut |number| blocks.read(number));
    if has_unwritten {
        file.damage.get_or_insert_with(|| "parts of it were never written".into());
    }
    if found.is_damaged {
        file.damage.get_or_insert_with(|| "its block map is damaged".into());
    }
    file
}

/// The blocks of a quota file, of which several may lie in one of the volume.
struct Blocks<'a> {
    state: &'a State,
    runs: Vec<Run>,
    /// The last block of the volume that was read.
    last: Option<(Pba, Vec<u8>)>,
}

impl Blocks<'_> {
    fn read(&mut self, number: u32) -> Option<Vec<u8>> {
        let at = as_index(number).checked_mul(QUOTA_BLOCK)?;
        let size = as_index(self.state.layout.block_size);
        let block = u64::try_from(at.checked_div(size)?).ok()?;
        let index = self.runs.partition_point(|run| run.start <= block).checked_sub(1)?;
        let run = self.runs.get(index).filter(|run| block < run.end())?;
        let pba = Pba(run.pba.get().saturating_add(block.saturating_sub(run.start)));
        if self.last.as_ref().is_none_or(|(known, _)| *known != pba) {
            self.last = Some((pba, self.state.source.block(pba).ok()?.to_vec()));
        }
        let (_, bytes) = self.last.as_ref()?;
        let start = at.checked_rem(size)?;
        bytes.get(start..start.checked_add(QUOTA_BLOCK)?).map(<[u8]>::to_vec)
    }
}
