//! What an inode counts: `i_blocks` against the blocks of its map.

use cairn_base::{Ino, Pba};

use super::attributes;
use super::claims::Owners;
use super::indirect;
use super::map::{self, has_map};
use super::state::State;
use super::visitor::{Fault, Run, Visitor};
use crate::format::extent::ROOT_BYTES;
use crate::format::indirect::{decode_inode, encode, slot_range};
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;

/// The clusters of the inode that other files have, too (the first of each run, and how many), if
/// its map is sound, and it counts just the blocks of the map and of its attributes.
pub(super) fn shared(state: &State, ino: Ino, record: &Record) -> Result<Vec<(u64, u64)>, Wrong> {
    let mut count = Count::new(state, record);
    if ino == inodes::RESIZE {
        // It has one block, which leads to reserved ones of the volume.
        let blocks = decode_inode(&record.block).into_iter().filter(|block| *block != 0);
        blocks.for_each(|block| count.add(state.cluster(block.into()), 1));
        return Ok(count.shared);
    }
    if has_map(record) {
        walk(state, ino, record, &mut count);
    }
    count.end(ino, record)
}

/// Visits the map of an inode, without the pointers to indirect blocks behind the end of the file
/// that the inode does not count. True if there are some.
pub(super) fn walk(state: &State, ino: Ino, record: &Record, visitor: &mut dyn Visitor) -> bool {
    match without_behind(state, ino, record) {
        Some(block) => {
            indirect::walk(state, &block, visitor);
            true
        }
        None => {
            map::walk(state, ino, record, visitor);
            false
        }
    }
}

/// The pointers of an inode without those to indirect blocks behind the end of the file, if the
/// inode counts all other blocks and nothing else. `None` if there are no such pointers.
fn without_behind(state: &State, ino: Ino, record: &Record) -> Option<[u8; ROOT_BYTES]> {
    let size = state.layout.block_size;
    let is_left_out = matches!(ino, inodes::RESIZE | inodes::BAD);
    if record.flags.contains(InodeFlags::EXTENTS) || is_left_out || state.layout.cluster_bits > 0 {
        return None;
    }
    let spare = u64::from(state.superblock.raw.s_prealloc_dir_blocks);
    let end = record.size.div_ceil(size.into());
    let end = end.saturating_add(if record.is_directory() { spare } else { 0 });
    let mut slots = decode_inode(&record.block);
    let mut is_behind = false;
    for (number, slot) in slots.iter_mut().enumerate() {
        let (level, first) = slot_range(number, size);
        if level > 0 && *slot != 0 && first >= end {
            (*slot, is_behind) = (0, true);
        }
    }
    let mut block = record.block;
    encode(&slots, &mut block);
    if !is_behind {
        return None;
    }
    let mut count = Count { is_besides: true, ..Count::new(state, record) };
    indirect::walk(state, &block, &mut count);
    count.end(ino, record).ok().map(|_| block)
}

/// The map is damaged, or the inode counts other blocks. It has clusters of other files, as far as
/// that is known.
pub(super) struct Wrong {
    pub(super) is_shared: bool,
}

/// Counts the clusters of a map, and hardly more than the inode counts.
struct Count<'a> {
    state: &'a State,
    most: u64,
    clusters: u64,
    /// The last cluster, of the file and of the volume.
    last: Option<(u64, u64)>,
    /// The map is walked besides by the walk that claims its blocks.
    is_besides: bool,
    shared: Vec<(u64, u64)>,
    is_wrong: bool,
}

impl<'a> Count<'a> {
    fn new(state: &'a State, record: &Record) -> Self {
        let most = record.blocks_512 >> state.units() >> state.layout.cluster_bits;
        let (last, is_besides, shared) = (None, false, Vec::new());
        Self { state, most, clusters: 0, last, is_besides, shared, is_wrong: false }
    }

    fn add(&mut self, first: u64, count: u64) {
        self.clusters = self.clusters.saturating_add(count);
        self.is_wrong |= self.clusters > self.most;
        let is_new = self.shared.is_empty() || !self.is_wrong;
        if is_new && self.state.twice.count_range(first, count) > 0 {
            self.shared.push((first, count));
        }
    }

    fn is_system(&self, pba: Pba, len: u64) -> bool {
        self.state.system.count_range(pba.get(), len) > 0
    }

    fn end(mut self, ino: Ino, record: &Record) -> Result<Vec<(u64, u64)>, Wrong> {
        let state = self.state;
        let acl = Some(record.file_acl).filter(|acl| *acl != Pba(0));
        for pba in [acl, record.translator(&state.layout)].into_iter().flatten() {
            self.add(state.cluster(pba.get()), 1);
        }
        // An inode is charged for values in inodes of their own.
        let charged = attributes::charged(state, ino, record).div_ceil(state.cluster_blocks());
        self.clusters = self.clusters.saturating_add(charged);
        let counted = self.clusters.saturating_mul(state.cluster_blocks()) << state.units();
        if self.is_wrong || counted != record.blocks_512 {
            return Err(Wrong { is_shared: !self.shared.is_empty() });
        }
        Ok(self.shared)
    }
}

impl Visitor for Count<'_> {
    fn data(&mut self, run: Run) {
        let (state, bits) = (self.state, self.state.layout.cluster_bits);
        let end = run.pba.get().saturating_add(run.len).saturating_sub(1);
        let (first, last) = (state.cluster(run.pba.get()), state.cluster(end));
        let is_same = self.last == Some((run.start >> bits, first));
        let first = first.saturating_add(is_same.into());
        self.last = Some((run.end().saturating_sub(1) >> bits, last));
        self.is_wrong |= self.is_system(run.pba, run.len);
        self.add(first, last.saturating_add(1).saturating_sub(first));
    }

    fn node(&mut self, _: u64, pba: Pba) -> bool {
        self.is_wrong |= self.is_system(pba, 1);
        self.add(self.state.cluster(pba.get()), 1);
        self.is_wrong |= match self.is_besides {
            true => !Owners::may_read_again(self.state),
            false => !Owners::may_read(self.state, pba),
        };
        !self.is_wrong
    }

    fn fault(&mut self, _: Fault) {
        self.is_wrong = true;
    }
}
