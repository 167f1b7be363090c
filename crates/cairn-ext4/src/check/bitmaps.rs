//! The bitmaps and counts of every group, by several threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Pba, bitmap};
use cairn_check::{Finding, Kind, Place, Value, Work};

use super::kinds;
use super::state::{Group, State};
use crate::format::group_desc::{GroupDesc, GroupFlags};

/// The walk over all groups; a step is a group.
pub(super) struct Bitmaps(pub(super) Arc<State>);

impl Work for Bitmaps {
    fn steps(&self) -> u64 {
        self.0.layout.groups.into()
    }

    fn step(&self, number: u64) -> bool {
        let state = &*self.0;
        if let Ok(number) = u32::try_from(number)
            && let Some(group) = state.groups.get(as_index(number))
        {
            let one = One { state, number, group };
            one.blocks();
            one.inodes();
        }
        state.progress.advance(1);
        !state.is_cancelled()
    }
}

/// How a stored bitmap is compared.
struct Compared {
    pba: Pba,
    exists: bool,
    /// The bits follow from the rest of the group: nothing was allocated.
    is_implied: bool,
    bits: u32,
    sum: u32,
    kinds: [&'static Kind; 4],
}

/// What is in use of a group, as the walk has found it.
pub(super) struct InUse {
    /// The bitmap, without padding.
    pub(super) bits: Vec<u8>,
    /// Bits that are set.
    pub(super) used: u32,
    /// Directories among the inodes.
    pub(super) directories: u32,
    /// The number behind the last inode in use.
    pub(super) last: u32,
}

impl InUse {
    /// Clusters.
    pub(super) fn blocks(state: &State, group: u32) -> Self {
        let layout = &state.layout;
        let first = state.cluster(layout.group_first_block(group).get());
        let mut bits = vec![0; as_index(layout.block_size)];
        state.claimed.write_bitmap(first, &mut bits);
        let clusters = layout.group_clusters(group);
        let end = as_index(clusters).min(bits.len().saturating_mul(8));
        let rest = bits.len().saturating_mul(8).saturating_sub(end);
        bitmap::clear_range(&mut bits, end, rest);
        let used = state.claimed.count_range(first, clusters.into());
        Self { bits, used: u32::try_from(used).unwrap_or(u32::MAX), directories: 0, last: 0 }
    }

    /// Inodes.
    pub(super) fn inodes(state: &State, group: u32) -> Self {
        let layout = &state.layout;
        let bits = vec![0; as_index(layout.block_size)];
        let mut found = Self { bits, used: 0, directories: 0, last: 0 };
        let first = layout.ino(group, 0).get();
        // The reserved ones have facts since the start.
        let behind = first.saturating_add(layout.inodes_per_group.into());
        for (ino, facts) in state.inodes.range(first, behind) {
            if ino < u64::from(layout.first_ino) || facts.is_in_use() {
                let index = u32::try_from(ino.saturating_sub(first)).unwrap_or(0);
                bitmap::set(&mut found.bits, as_index(index));
                found.used = found.used.saturating_add(1);
                found.last = index.saturating_add(1);
                found.directories = found.directories.saturating_add(facts.is_directory().into());
            }
        }
        found
    }
}

struct One<'a> {
    state: &'a State,
    number: u32,
    group: &'a Group,
}

impl One<'_> {
    fn place(&self, field: &'static str) -> Place {
        Place::group(self.number).in_field(field)
    }

    fn count(&self, kind: &'static Kind, field: &'static str, stored: u32, computed: u32) {
        if stored != computed {
            self.state.differ(kind, self.place(field), stored.into(), computed.into());
        }
    }

    fn has(&self, flag: GroupFlags) -> bool {
        self.group.is_sealed && self.group.desc.flags.contains(flag)
    }

    fn blocks(&self) {
        let (state, layout, desc) = (self.state, &self.state.layout, &self.group.desc);
        let clusters = layout.group_clusters(self.number);
        let InUse { bits: computed, used, .. } = InUse::blocks(state, self.number);
        state.totals.used_clusters.fetch_add(used.into(), Relaxed);
        let free = clusters.saturating_sub(used);
        state.totals.free_clusters.fetch_add(free.into(), Relaxed);
        self.count(&kinds::GROUP_FREE_BLOCKS, "bg_free_blocks_count", desc.free_blocks, free);
        let is_implied = self.has(GroupFlags::BLOCK_UNINIT);
        let compared = Compared {
            pba: desc.block_bitmap,
            exists: self.group.has_block_bitmap,
            is_implied,
            bits: clusters,
            sum: desc.block_bitmap_csum,
            kinds: [
                &kinds::BLOCK_BITMAP_CHECKSUM,
                &kinds::BLOCK_BITMAP_FREE,
                &kinds::BLOCK_BITMAP_USED,
                &kinds::BLOCK_BITMAP_PADDING,
            ],
        };
        let implied = is_implied.then(|| self.implied_blocks());
        let sum = |bytes: &[u8]| GroupDesc::block_bitmap_checksum(bytes, layout);
        self.compare(&compared, &computed, implied, sum);
    }

    /// Blocks of no file that are in use by the bitmap, its checksum, and the count of the group.
    /// All three were written when they were allocated, so an inode or a map was not.
    fn left(&self) -> Option<Finding> {
        let (layout, desc) = (&self.state.layout, &self.group.desc);
        if self.has(GroupFlags::BLOCK_UNINIT) || !self.group.has_block_bitmap {
            return None;
        }
        let stored = self.state.source.block(desc.block_bitmap).ok()?;
        let sum = GroupDesc::block_bitmap_checksum(&stored, layout);
        let clusters = layout.group_clusters(self.number);
        let end = as_index(clusters).min(stored.len().saturating_mul(8));
        let used = bitmap::count_set(&stored, 0, end);
        let computed = InUse::blocks(self.state, self.number);
        let is_sound = match sum {
            Some(right) => right == desc.block_bitmap_csum,
            None => desc.free_blocks != clusters.saturating_sub(computed.used),
        };
        let is_counted = as_index(clusters.saturating_sub(desc.free_blocks)) == used;
        let place = Place::group(self.number).at_block(desc.block_bitmap.get());
        let finding = Finding::new(&kinds::BLOCK_BITMAP_LEFT, place);
        let extra = extra(&computed.bits, &stored, end).filter(|_| is_sound && is_counted)?;
        Some(finding.stored(Value::text(extra)))
    }

    /// The bitmap of a group in which nothing was allocated: its structures.
    fn implied_blocks(&self) -> Vec<u8> {
        let (state, layout) = (self.state, &self.state.layout);
        let mut bits = vec![0; as_index(layout.block_size)];
        let first = layout.group_first_block(self.number).get();
        let behind = first.saturating_add(layout.group_blocks(self.number).into());
        let mut at = first;
        while let Some(block) = state.system.next(at).filter(|block| *block < behind) {
            let cluster = block.saturating_sub(first) >> layout.cluster_bits;
            if let Ok(bit) = usize::try_from(cluster)
                && bit < bits.len().saturating_mul(8)
            {
                bitmap::set(&mut bits, bit);
            }
            at = block.saturating_add(1);
        }
        bits
    }

    fn inodes(&self) {
        let (state, layout, desc) = (self.state, &self.state.layout, &self.group.desc);
        let InUse { bits: computed, used, directories, last } = InUse::inodes(state, self.number);
        let free = layout.inodes_per_group.saturating_sub(used);
        state.totals.free_inodes.fetch_add(free.into(), Relaxed);
        self.count(&kinds::GROUP_FREE_INODES, "bg_free_inodes_count", desc.free_inodes, free);
        self.count(&kinds::GROUP_DIRECTORIES, "bg_used_dirs_count", desc.used_dirs, directories);
        let all = layout.inodes_per_group;
        let is_wrong = desc.itable_unused > all || last > all.saturating_sub(desc.itable_unused);
        if layout.features.has_group_checksums() && is_wrong {
            let unused = layout.inodes_per_group.saturating_sub(last);
            self.count(&kinds::GROUP_UNUSED, "bg_itable_unused", desc.itable_unused, unused);
        }
        let is_implied = self.has(GroupFlags::INODE_UNINIT);
        let compared = Compared {
            pba: desc.inode_bitmap,
            exists: self.group.has_inode_bitmap,
            is_implied,
            bits: layout.inodes_per_group,
            sum: desc.inode_bitmap_csum,
            kinds: [
                &kinds::INODE_BITMAP_CHECKSUM,
                &kinds::INODE_BITMAP_FREE,
                &kinds::INODE_BITMAP_USED,
                &kinds::INODE_BITMAP_PADDING,
            ],
        };
        let implied = is_implied.then(|| vec![0; as_index(layout.block_size)]);
        let sum = |bytes: &[u8]| GroupDesc::inode_bitmap_checksum(bytes, layout);
        self.compare(&compared, &computed, implied, sum);
    }

    /// Compares the stored bitmap with the computed one. Bits behind these are set, to the end of
    /// the block.
    fn compare(
        &self,
        of: &Compared,
        computed: &[u8],
        implied: Option<Vec<u8>>,
        sum: impl Fn(&[u8]) -> Option<u32>,
    ) {
        let place = || Place::group(self.number).at_block(of.pba.get());
        let [sum_kind, free_kind, used_kind, padding_kind] = of.kinds;
        let stored = match implied {
            Some(bits) => bits,
            None if !of.exists => return,
            None => match self.state.source.block(of.pba) {
                Ok(block) => block.to_vec(),
                Err(error) => return self.state.unreadable(place(), &error),
            },
        };
        if !of.is_implied
            && let Some(right) = sum(&stored)
            && right != of.sum
        {
            let finding = Finding::new(sum_kind, place());
            self.state.findings.add(finding.hex(of.sum, right));
        }
        let (bits, end) = (as_index(of.bits), stored.len().saturating_mul(8));
        self.differences(&stored, computed, bits, free_kind, &place());
        self.differences(computed, &stored, bits, used_kind, &place());
        if !of.is_implied && bits < end && bitmap::next_clear(&stored, bits, end).is_some() {
            self.state.find(padding_kind, place());
        }
    }

    /// Finds bits that are set in `there`, and clear in `here`: one finding for all of them.
    fn differences(
        &self,
        here: &[u8],
        there: &[u8],
        bits: usize,
        kind: &'static Kind,
        place: &Place,
    ) {
        let Some(text) = extra(here, there, bits) else { return };
        let finding = Finding::new(kind, place.clone());
        self.state.findings.add(finding.stored(Value::text(text)));
    }
}

/// How many of so many bits are set in `there`, and clear in `here`; `None` if there are none.
fn extra(here: &[u8], there: &[u8], bits: usize) -> Option<String> {
    let extra: Vec<u8> = here.iter().zip(there).map(|(here, there)| !here & there).collect();
    let bits = bits.min(extra.len().saturating_mul(8));
    let first = bitmap::next_set(&extra, 0, bits)?;
    let count = bitmap::count_set(&extra, 0, bits);
    Some(format!("{count}, the first is bit {}", as_u64(first)))
}

/// Blocks of no file that an inode or a map may have lost, by group.
pub(super) fn left(state: &State) -> Vec<Finding> {
    let groups = (0_u32..).zip(&state.groups);
    groups.filter_map(|(number, group)| One { state, number, group }.left()).collect()
}
