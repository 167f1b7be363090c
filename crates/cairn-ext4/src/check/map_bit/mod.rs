//! One wrong bit of a block map that no checksum covers.
//!
//! Other structures repeat what a map says: the inode counts its blocks, the size says where it
//! ends, and the bitmaps have each of its blocks, which no other file has. If all of that fits with
//! one bit changed, and with no other one, that bit is wrong. A bit that would leave a block in use
//! without a file, or the file without a block, is not: then the inode counts too few.
//!
//! If only the bitmaps contradict the map, they may be what is wrong: after a power cut without a
//! journal, or in two of their own bits. So a few blocks prove nothing then, and the map is
//! believed, as e2fsck does it. Many are a dispute, because a bitmap may have lost a write: what it
//! calls used was another file's then.
//!
//! The bytes of an attribute's value have a hash: where they have it only with the bit right, the
//! bitmaps are believed.
//!
//! It is looked for after the walk through all inodes, when it is known which blocks nobody has.

mod blocks;
mod seen;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{Ino, Pba};
use cairn_block::IoBuf;
use cairn_vfs::FileKind;

use super::map::has_map;
use super::state::State;
use super::value;
use crate::format::extent::{ROOT_BYTES, ROOT_CAPACITY, block_capacity};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::indirect::decode;
use crate::format::inode::{Inode as Record, InodeFlags};
use crate::format::layout::inodes;
use crate::format::xattr::MAGIC;
pub(super) use blocks::Blocks;
use seen::{MOST_NODES, Seen};

/// Blocks of maps that are read for one inode, at most.
const MOST_READS: u64 = 1 << 17;
/// Blocks of maps that are read for all inodes, at most.
const MOST_READS_OF_ALL: u64 = 1 << 18;
/// Bytes of a block of a map whose bits cost as much as one read.
const BYTES_OF_READ: u64 = 128;
/// Offset of `i_block` in a record.
const I_BLOCK: usize = 40;
/// Bytes of an extent, an index, and the header before them.
const ENTRY: usize = 12;
/// Bytes of the header that say something of the map.
const HEADER: usize = 8;
/// The bits of the header that have its capacity.
const CAPACITY_BITS: Range<usize> = 32..48;
/// As many blocks that the bitmaps have, in the place of others that they do not have, are no wrong
/// bits of the bitmaps.
const MANY: u64 = 8;
/// The longest extent that has contents; a longer one was never written.
const WRITTEN: u16 = 1 << 15;
/// Pointers of an inode to blocks of contents.
const DIRECT: usize = 12;
/// Bits of a size.
const SIZE_BITS: u32 = 48;

/// A wrong bit of a map.
pub(super) struct WrongBit {
    /// The block that it is in.
    pub(super) pba: Pba,
    /// The byte.
    pub(super) at: usize,
    pub(super) stored: u8,
    pub(super) right: u8,
    /// One bit of the size may be wrong in its place.
    pub(super) is_doubted: bool,
    /// Only the bitmaps say that it is wrong, which may be old ones.
    pub(super) is_disputed: bool,
    /// How much less the file is in pieces then.
    pub(super) gain: i64,
    /// The blocks that the file has with the bit right: where they begin, and how many.
    pub(super) blocks: Vec<(u64, u64)>,
}

/// The only bit by which all fits, if nothing did before.
pub(super) fn find(state: &State, ino: Ino) -> Option<WrongBit> {
    let layout = &state.layout;
    let is_sealed = layout.features.ro_compat(RoCompat::METADATA_CSUM);
    if is_sealed || layout.cluster_bits > 0 || matches!(ino, inodes::RESIZE | inodes::BAD) {
        return None;
    }
    let record = state.record(ino).filter(has_map)?;
    let seen = Seen::of(state, ino, &record);
    let mut search = Search {
        blocks: Blocks::new(state, seen.ranges()),
        state,
        ino,
        by_size: false,
        order: seen.order(),
        reads: 0,
        found: Vec::new(),
    };
    let is_sound = search.has_blocks(&record, &seen);
    if is_sound && ends(state, ino, &record, &seen).is_some() {
        return None;
    }
    search.blocks.is_unmarked = true;
    let only_bitmaps =
        search.has_blocks(&record, &seen) && ends(state, ino, &record, &seen).is_some();
    search.blocks.is_unmarked = false;
    let is_value = is_value(state, &record);
    if only_bitmaps && !is_value && !layout.features.compat(Compat::HAS_JOURNAL) {
        return None;
    }
    let block = u64::from(layout.block_size);
    let end = seen.end();
    let reaches = |bit: u32| (record.size ^ (1 << bit)).div_ceil(block) == end;
    search.by_size = is_sound && record.is_regular() && (0..SIZE_BITS).any(reaches);
    search.look(&record, &seen.nodes)?;
    let mut found = search.found;
    if is_value {
        found.retain(|(bit, _)| is_hashed(state, ino, bit));
    } else if only_bitmaps {
        found.retain(|(bit, _)| search.blocks.others(&bit.blocks) >= MANY);
    }
    if found.len() > 1 {
        found.retain(|(_, is_exact)| *is_exact);
    }
    // Of two blocks of the file that are one now, that one is right which the others lie beside.
    let most = found.iter().map(|(bit, _)| bit.gain).max()?;
    found.retain(|(bit, _)| bit.gain == most);
    let (bit, _) = found.pop()?;
    found.is_empty().then_some(WrongBit { is_disputed: only_bitmaps && !is_value, ..bit })
}

/// Is the inode the value of an attribute?
pub(super) fn is_value(state: &State, record: &Record) -> bool {
    state.layout.features.incompat(Incompat::EA_INODE)
        && record.flags.contains(InodeFlags::EA_INODE)
}

/// Has a value the bytes of its hash with the bit right, and else not?
fn is_hashed(state: &State, ino: Ino, bit: &WrongBit) -> bool {
    let fits = || state.record(ino).is_some_and(|record| value::is_hashed(state, ino, &record));
    state.source.with_byte(bit.pba, bit.at, bit.right, fits) && !fits()
}

/// Does the map end where the size says? `Some(true)` if in the same block.
fn ends(state: &State, ino: Ino, record: &Record, seen: &Seen) -> Option<bool> {
    let block = u64::from(state.layout.block_size);
    let blocks = record.size.div_ceil(block);
    let is_exact = seen.end() == blocks;
    let fits = match FileKind::from_mode(record.mode.into())? {
        FileKind::Regular if record.flags.contains(InodeFlags::VERITY) => true,
        FileKind::Regular => record.size >= seen.end().saturating_sub(1).saturating_mul(block),
        FileKind::Directory => {
            let spare = u64::from(state.superblock.raw.s_prealloc_dir_blocks);
            let is_whole = seen.runs.iter().map(|run| run.len).sum::<u64>() == seen.end();
            let extra = seen.end().checked_sub(blocks);
            is_whole && is_named(state, ino, seen) && extra.is_some_and(|extra| extra <= spare)
        }
        FileKind::Symlink => is_exact && is_target(state, record, seen),
        _ => false,
    };
    fits.then_some(is_exact)
}

/// Does the only block hold a target of the link's size? Encrypted ones are not looked at.
fn is_target(state: &State, record: &Record, seen: &Seen) -> bool {
    let has_nul = |block: IoBuf| {
        let found = block.iter().position(|byte| *byte == 0).unwrap_or(block.len());
        as_u64(found) == record.size
    };
    let is_hidden = record.flags.contains(InodeFlags::ENCRYPT);
    seen.end() == 1 && (is_hidden || seen.first_block(state).is_some_and(has_nul))
}

/// Does the first block of the directory begin with the directory itself?
fn is_named(state: &State, ino: Ino, seen: &Seen) -> bool {
    let block = seen.first_block(state);
    let word = block.as_ref().and_then(|block| block.first_chunk());
    word.is_some_and(|word| u64::from(u32::from_le_bytes(*word)) == ino.get())
}

/// The search for the bit of one inode.
struct Search<'a> {
    state: &'a State,
    ino: Ino,
    blocks: Blocks<'a>,
    /// How much the file is in pieces now.
    order: i64,
    /// With one bit of the size changed, all would fit, too.
    by_size: bool,
    /// Blocks that were read.
    reads: u64,
    /// Bits by which all fits, and whether the size ends in the last block.
    found: Vec<(WrongBit, bool)>,
}

/// A part of the volume that holds entries of a map.
#[derive(Clone, Copy)]
struct Part<'b> {
    pba: Pba,
    from: usize,
    bytes: &'b [u8],
}

impl Search<'_> {
    /// Is the map in order, and are all of its blocks the file's, which counts them?
    fn has_blocks(&mut self, record: &Record, seen: &Seen) -> bool {
        if seen.is_faulty {
            return false;
        }
        let ranges = seen.ranges();
        let is_once =
            ranges.is_sorted_by(|(one, len), (next, _)| one.saturating_add(*len) <= *next);
        let all = ranges.iter().fold(0_u64, |all, (_, len)| all.saturating_add(*len));
        let besides = [record.file_acl != Pba(0), record.translator(&self.state.layout).is_some()];
        let all = besides.into_iter().fold(all, |all, has| all.saturating_add(has.into()));
        let is_counted = all << self.state.units() == record.blocks_512;
        let has_list = self.has_list(record);
        is_once
            && is_counted
            && has_list
            && ranges.iter().all(|(from, len)| self.blocks.may_have(*from, *len))
    }

    /// Has the inode no attribute block, or one that begins like such a block?
    fn has_list(&mut self, record: &Record) -> bool {
        let acl = record.file_acl;
        let begins = || {
            let block = self.state.source.block(acl).ok();
            block.is_some_and(|block| block.first_chunk() == Some(&MAGIC.to_le_bytes()))
        };
        acl == Pba(0) || self.state.layout.contains(acl, 1) && begins()
    }

    /// Tries all bits. `None` if there are too many.
    fn look(&mut self, record: &Record, nodes: &[Pba]) -> Option<()> {
        let layout = &self.state.layout;
        let (group, index) = layout.inode_group(self.ino)?;
        let table = self.state.groups.get(as_index(group))?.desc.inode_table;
        let place = layout.inode_location(index, table);
        let from = place.offset.checked_add(I_BLOCK)?;
        let block = self.state.source.block(place.pba).ok()?;
        let bytes = block.get(from..from.checked_add(ROOT_BYTES)?)?;
        let has_extents = record.flags.contains(InodeFlags::EXTENTS);
        let part = |search: &mut Self, part: Part<'_>| match has_extents {
            true => search.extents(part),
            false => search.pointers(part),
        };
        part(self, Part { pba: place.pba, from, bytes })?;
        if !self.found.is_empty() {
            return Some(());
        }
        // A block that leads to itself is seen often.
        let mut looked = BTreeSet::new();
        for pba in nodes.iter().take(MOST_NODES).filter(|pba| looked.insert(**pba)) {
            let Ok(bytes) = self.state.source.block(*pba) else { continue };
            self.count(as_u64(bytes.len()).div_ceil(BYTES_OF_READ))?;
            part(self, Part { pba: *pba, from: 0, bytes: &bytes })?;
        }
        Some(())
    }

    fn extents(&mut self, part: Part<'_>) -> Option<()> {
        let room = match part.bytes.len() {
            ROOT_BYTES => ROOT_CAPACITY,
            _ => block_capacity(self.state.layout.block_size),
        };
        for bit in 0..HEADER.saturating_mul(8) {
            // A node may have a little less room than its block, but is not made so.
            let mut header = part.bytes.get(..HEADER)?.to_vec();
            flip(&mut header, bit);
            let max = header.get(4..)?.first_chunk().copied().map(u16::from_le_bytes);
            if !CAPACITY_BITS.contains(&bit) || max.map(usize::from) == Some(room) {
                self.attempt(part, bit)?;
            }
        }
        let word =
            |at: usize| part.bytes.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two));
        let (entries, is_leaf) = (usize::from(word(2)?), word(6)? == 0);
        let list = part.bytes.get(ENTRY..).unwrap_or_default().chunks_exact(ENTRY);
        let list: Vec<&[u8]> = list.take(entries).collect();
        for (number, entry) in list.iter().enumerate() {
            let before = number.checked_sub(1).and_then(|before| list.get(before));
            let before =
                before.and_then(|bytes| Entry::of(bytes, is_leaf)).map_or(0, |one| one.end());
            let next = number.checked_add(1).and_then(|next| list.get(next));
            let next =
                next.and_then(|bytes| Entry::of(bytes, is_leaf)).map_or(u64::MAX, |one| one.start);
            let first = number.saturating_add(1).saturating_mul(ENTRY).saturating_mul(8);
            for bit in 0..ENTRY.saturating_mul(8) {
                let mut changed = entry.to_vec();
                flip(&mut changed, bit);
                let is_mark = is_leaf && bit == UNWRITTEN_BIT;
                let possible = Entry::of(&changed, is_leaf).filter(|_| !is_mark);
                let possible = possible.filter(|one| one.start >= before && one.end() <= next);
                if possible.is_some_and(|one| self.blocks.may_have(one.pba, one.len)) {
                    self.attempt(part, first.saturating_add(bit))?;
                }
            }
        }
        Some(())
    }

    fn pointers(&mut self, part: Part<'_>) -> Option<()> {
        for (number, pointer) in decode(part.bytes).into_iter().enumerate() {
            // A block of contents that only this file has is right. One of pointers may be the
            // file's own contents, where it has lost the pointers to them.
            let is_node = part.bytes.len() == ROOT_BYTES && number >= DIRECT;
            if pointer == 0 || !is_node && self.blocks.has(pointer.into()) {
                continue;
            }
            for bit in 0..u32::BITS {
                let other = pointer ^ 1 << bit;
                if other == 0 || self.blocks.may_have(other.into(), 1) {
                    self.attempt(part, number.saturating_mul(32).saturating_add(as_index(bit)))?;
                }
            }
        }
        Some(())
    }

    /// Notes a bit if all fits with it. `None` if too much was read.
    fn attempt(&mut self, part: Part<'_>, bit: usize) -> Option<()> {
        let (byte, mask) = (bit / 8, 1_u8 << (bit % 8));
        let (stored, at) = (*part.bytes.get(byte)?, part.from.checked_add(byte)?);
        let right = stored ^ mask;
        let (state, ino) = (self.state, self.ino);
        let seen = state.source.with_byte(part.pba, at, right, || {
            let record = state.record(ino)?;
            Some((Seen::until_fault(state, ino, &record), record))
        });
        let (seen, record) = seen?;
        let reads = seen.cost();
        if self.has_blocks(&record, &seen)
            && let Some(is_exact) = ends(state, ino, &record, &seen)
            && let blocks = seen.ranges()
            && !blocks.is_empty()
            && !self.blocks.would_leak(&blocks)
        {
            let is_doubted = self.by_size && !seen.is_dense();
            let gain = self.order.saturating_sub(seen.order());
            let (pba, is_disputed) = (part.pba, false);
            let found = WrongBit { pba, at, stored, right, is_doubted, is_disputed, gain, blocks };
            self.found.push((found, is_exact));
        }
        self.count(reads)
    }

    /// `None` if too much was read.
    fn count(&mut self, reads: u64) -> Option<()> {
        self.reads = self.reads.saturating_add(reads);
        let before = self.state.totals.read_for_bits.fetch_add(reads, Relaxed);
        (self.reads <= MOST_READS && before <= MOST_READS_OF_ALL).then_some(())
    }
}

/// The bit of an extent that says that it was never written.
const UNWRITTEN_BIT: usize = 5 * 8 + 7;

/// An entry of a node of extents.
struct Entry {
    start: u64,
    pba: u64,
    len: u64,
}

impl Entry {
    fn of(bytes: &[u8], is_leaf: bool) -> Option<Self> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two));
        let double =
            |at: usize| Some(u32::from(word(at)?) | u32::from(word(at.checked_add(2)?)?) << 16);
        let start = u64::from(double(0)?);
        if !is_leaf {
            let pba = u64::from(double(4)?) | u64::from(word(8)?) << 32;
            return Some(Self { start, pba, len: 1 });
        }
        let len = word(4)?;
        let len = if len > WRITTEN { len.wrapping_sub(WRITTEN) } else { len };
        let pba = u64::from(double(8)?) | u64::from(word(6)?) << 32;
        (len > 0).then(|| Self { start, pba, len: len.into() })
    }

    /// The file block behind it.
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}
