//! Index blocks of a hashed directory: the root in block 0, inner nodes in other blocks.
//!
//! A reader without the index sees them as directory blocks: the root's entries lie in the free
//! space of `..`, a node's behind a free entry as long as the block. Invariant: hashes ascend.
//! Entry 0 has no hash and covers all hashes below entry 1. A hash with its lowest bit set
//! continues the value of the leaf before it. Source: "Hash Tree Directories" in the kernel's ext4
//! documentation.

use cairn_base::checksum::crc32c;
use cairn_base::units::{as_index, as_u64, stored};
use cairn_base::{FileBlock, Ino};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::buffer;
use super::dir_entry::{DOTDOT_AT, Defect, DirFormat, RawDirEntry, decode_rec_len, encode_rec_len};
use crate::corrupt::Corrupt;

/// `struct dx_root_info`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDxRootInfo {
    /// 0.
    pub reserved_zero: U32,
    /// Algorithm of the directory.
    pub hash_version: u8,
    /// 8.
    pub info_length: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// Bit 0 must be clear.
    pub unused_flags: u8,
}

/// `struct dx_entry`. Entry 0 holds limit and count instead of a hash (`struct dx_countlimit`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDxEntry {
    /// Smallest hash of the child; in entry 0 the limit (low half) and the count (high half) of
    /// entries.
    pub hash: U32,
    /// Logical block of the child.
    pub block: U32,
}

/// `struct dx_tail`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDxTail {
    /// 0; part of the checksum.
    pub dt_reserved: U32,
    /// crc32c of the inode seed, the block up to the last used entry, and this tail with a zero
    /// checksum.
    pub dt_checksum: U32,
}

const _: () = assert!(size_of::<RawDxRootInfo>() == 8);
const _: () = assert!(size_of::<RawDxEntry>() == 8);
const _: () = assert!(size_of::<RawDxTail>() == 8);

const ENTRY_LEN: usize = size_of::<RawDxEntry>();
const INFO_AT: usize = 24;
const ROOT_ENTRIES_AT: usize = 32;
const NODE_ENTRIES_AT: usize = 8;
/// Block numbers have 28 bits; the rest is reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The kind of an index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Block 0.
    Root,
    /// Any other block.
    Inner,
}

impl NodeKind {
    const fn entries_at(self) -> usize {
        match self {
            Self::Root => ROOT_ENTRIES_AT,
            Self::Inner => NODE_ENTRIES_AT,
        }
    }

    /// Most entries of a block of this kind.
    #[must_use]
    pub(crate) const fn limit(self, format: &DirFormat) -> usize {
        let entries = format.block_size.strict_sub(self.entries_at()) / ENTRY_LEN;
        if format.seed.0.is_some() { entries.strict_sub(1) } else { entries }
    }
}

/// The root's description of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootInfo {
    /// Algorithm.
    pub hash_version: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
}

/// Reads the root's description of the index. `max_levels` follows from the volume's features.
///
/// # Errors
/// The root is malformed or the index is too deep.
pub(crate) fn root_info(
    block: &[u8],
    format: &DirFormat,
    max_levels: u8,
) -> Result<RootInfo, Defect> {
    let defect = |offset, what, value: u64| Defect { offset, what, value };
    let short = || defect(0, "block is too short for an index root", as_u64(block.len()));
    let (dot, _) = RawDirEntry::ref_from_prefix(block).map_err(|_| short())?;
    let dotdot = block.get(DOTDOT_AT..).ok_or_else(short)?;
    let (dotdot, _) = RawDirEntry::ref_from_prefix(dotdot).map_err(|_| short())?;
    if usize::from(dot.rec_len.get()) != DOTDOT_AT {
        return Err(defect(
            4,
            "rec_len of `.` in an index root is not 12",
            u64::from(dot.rec_len.get()),
        ));
    }
    if usize::from(dotdot.rec_len.get()) != format.block_size.strict_sub(DOTDOT_AT) {
        let value = u64::from(dotdot.rec_len.get());
        return Err(defect(DOTDOT_AT + 4, "`..` of an index root does not span the block", value));
    }
    let (info, _) = block
        .get(INFO_AT..)
        .and_then(|b| RawDxRootInfo::ref_from_prefix(b).ok())
        .ok_or_else(short)?;
    if info.reserved_zero.get() != 0 {
        return Err(defect(
            INFO_AT,
            "reserved field of the index root is not 0",
            u64::from(info.reserved_zero.get()),
        ));
    }
    if usize::from(info.info_length) != size_of::<RawDxRootInfo>() {
        return Err(defect(
            INFO_AT + 5,
            "info_length of the index root is not 8",
            u64::from(info.info_length),
        ));
    }
    if info.unused_flags & 1 != 0 {
        return Err(defect(
            INFO_AT + 7,
            "unknown flags in the index root",
            u64::from(info.unused_flags),
        ));
    }
    if info.indirect_levels > max_levels {
        return Err(defect(
            INFO_AT + 6,
            "index is deeper than the features allow",
            u64::from(info.indirect_levels),
        ));
    }
    Ok(RootInfo { hash_version: info.hash_version, indirect_levels: info.indirect_levels })
}

/// The entries of a valid index block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    entries: &'a [RawDxEntry],
    limit: usize,
}

impl<'a> Node<'a> {
    /// Parses and checks the entries of an index block.
    ///
    /// # Errors
    /// The block is too short, its limit or count is invalid, or its hashes do not ascend.
    pub(crate) fn parse(
        block: &'a [u8],
        kind: NodeKind,
        format: &DirFormat,
    ) -> Result<Self, Defect> {
        let at = kind.entries_at();
        let defect = |what, value: usize| Defect { offset: at, what, value: as_u64(value) };
        if block.len() != format.block_size {
            return Err(defect("block is too short for an index node", block.len()));
        }
        if kind == NodeKind::Inner && !is_spanned_by_free_entry(block, format) {
            return Err(Defect {
                offset: 0,
                what: "index node does not start with a free entry",
                value: 0,
            });
        }
        let rest = block.get(at..).unwrap_or(&[]);
        let (first, _) = RawDxEntry::ref_from_prefix(rest)
            .map_err(|_| defect("block is too short for an index node", rest.len()))?;
        let (limit, count) = limit_and_count(first);
        if limit != kind.limit(format) {
            return Err(defect("index limit does not fit the block", limit));
        }
        if count == 0 || count > limit {
            return Err(defect("index count is 0 or beyond the limit", count));
        }
        let entries = <[RawDxEntry]>::ref_from_prefix_with_elems(rest, count)
            .map(|(entries, _)| entries)
            .map_err(|_| defect("index count is beyond the block", count))?;
        let node = Self { entries, limit };
        match (2..count).find(|i| node.hash(*i) < node.hash(i.saturating_sub(1))) {
            Some(i) => Err(Defect {
                offset: at.saturating_add(i.saturating_mul(ENTRY_LEN)),
                what: "hashes of the index do not ascend",
                value: u64::from(node.hash(i)),
            }),
            None => Ok(node),
        }
    }

    /// Entries in use, at least 1.
    #[must_use]
    pub(crate) const fn count(&self) -> usize {
        self.entries.len()
    }

    /// True if no entry can be added.
    #[must_use]
    pub(crate) const fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// Smallest hash of entry `i`; 0 for the first and beyond the end.
    #[must_use]
    pub(crate) fn hash(&self, i: usize) -> u32 {
        if i == 0 { 0 } else { self.entries.get(i).map_or(0, |entry| entry.hash.get()) }
    }

    /// Child of entry `i`, if the entry exists.
    #[must_use]
    pub(crate) fn child(&self, i: usize) -> Option<FileBlock> {
        self.entries.get(i).map(|entry| FileBlock(u64::from(entry.block.get() & BLOCK_MASK)))
    }

    /// Index of the last entry whose hash is at most `hash`.
    #[must_use]
    pub(crate) fn search(&self, hash: u32) -> usize {
        self.entries
            .get(1..)
            .map_or(0, |rest| rest.partition_point(|entry| entry.hash.get() <= hash))
    }

    /// All entries as pairs of hash and child.
    #[must_use]
    pub(crate) fn pairs(&self) -> Vec<(u32, FileBlock)> {
        (0..self.count()).filter_map(|i| Some((self.hash(i), self.child(i)?))).collect()
    }
}

fn limit_and_count(first: &RawDxEntry) -> (usize, usize) {
    let both = first.hash.get();
    (as_index(both & 0xffff), as_index(both >> 16))
}

/// True if one free entry spans the block: it is an index node or, without checksums, an empty
/// leaf.
#[must_use]
pub(crate) fn is_spanned_by_free_entry(block: &[u8], format: &DirFormat) -> bool {
    RawDirEntry::ref_from_prefix(block).is_ok_and(|(raw, _)| {
        raw.inode.get() == 0
            && decode_rec_len(raw.rec_len.get(), format.block_size) == format.block_size
    })
}

/// Makes `block` the root of an index with one leaf.
///
/// # Panics
/// If the block is shorter than the format's block size.
pub(crate) fn init_root(
    block: &mut [u8],
    format: &DirFormat,
    this: u32,
    parent: u32,
    hash_version: u8,
    leaf: FileBlock,
) {
    block.fill(0);
    let file_type = if format.filetype { cairn_vfs::FileKind::Directory.entry_code() } else { 0 };
    for (at, rec_len, ino, name) in [
        (0, DOTDOT_AT, this, &b"."[..]),
        (DOTDOT_AT, format.block_size.strict_sub(DOTDOT_AT), parent, b".."),
    ] {
        let raw = RawDirEntry {
            inode: U32::new(ino),
            rec_len: U16::new(encode_rec_len(rec_len)),
            name_len: stored(name.len()),
            file_type,
        };
        buffer::put(block, at, raw.as_bytes());
        buffer::put(block, at.strict_add(size_of::<RawDirEntry>()), name);
    }
    let info = RawDxRootInfo {
        reserved_zero: U32::ZERO,
        hash_version,
        info_length: stored(size_of::<RawDxRootInfo>()),
        indirect_levels: 0,
        unused_flags: 0,
    };
    buffer::put(block, INFO_AT, info.as_bytes());
    write_entries(block, NodeKind::Root, format, &[(0, leaf)]);
}

/// Makes `block` an inner node with these entries. The hash of the first entry is not stored.
///
/// # Panics
/// If the entries do not fit.
pub(crate) fn init_inner(block: &mut [u8], format: &DirFormat, entries: &[(u32, FileBlock)]) {
    block.fill(0);
    let raw = RawDirEntry {
        inode: U32::ZERO,
        rec_len: U16::new(encode_rec_len(format.block_size)),
        name_len: 0,
        file_type: 0,
    };
    buffer::put(block, 0, raw.as_bytes());
    write_entries(block, NodeKind::Inner, format, entries);
}

/// Replaces the entries of an index block and updates its checksum.
///
/// # Panics
/// If the entries do not fit.
pub(crate) fn write_entries(
    block: &mut [u8],
    kind: NodeKind,
    format: &DirFormat,
    entries: &[(u32, FileBlock)],
) {
    let limit = kind.limit(format);
    assert!(
        !entries.is_empty() && entries.len() <= limit,
        "{} entries in an index block of {limit}",
        entries.len()
    );
    let limit_and_count = stored::<_, u32>(entries.len()) << 16 | stored::<_, u32>(limit);
    let mut at = kind.entries_at();
    for (i, (hash, child)) in entries.iter().enumerate() {
        let number: u32 = stored(child.get());
        let hash = if i == 0 { limit_and_count } else { *hash };
        let raw = RawDxEntry { hash: U32::new(hash), block: U32::new(number & BLOCK_MASK) };
        buffer::put(block, at, raw.as_bytes());
        at = at.strict_add(ENTRY_LEN);
    }
    seal_node(block, kind, format);
}

/// Inserts an entry behind entry `after` and updates the checksum. The node must not be full.
///
/// # Errors
/// The block is not a valid index block.
///
/// # Panics
/// If the node is full.
pub(crate) fn insert_entry(
    block: &mut [u8],
    kind: NodeKind,
    format: &DirFormat,
    after: usize,
    hash: u32,
    child: FileBlock,
) -> Result<(), Defect> {
    let mut entries = Node::parse(block, kind, format)?.pairs();
    entries.insert(after.strict_add(1), (hash, child));
    write_entries(block, kind, format, &entries);
    Ok(())
}

/// Adds a level below the root: `child` has taken over the root's entries.
///
/// # Panics
/// If the block is shorter than the format's block size.
pub(crate) fn deepen_root(block: &mut [u8], format: &DirFormat, child: FileBlock) {
    let info: &mut RawDxRootInfo = buffer::structure(block, INFO_AT);
    info.indirect_levels = info.indirect_levels.strict_add(1);
    write_entries(block, NodeKind::Root, format, &[(0, child)]);
}

/// Checksum of an index block, and the place of its tail. `None` if limit or count is invalid.
fn node_checksum(
    block: &[u8],
    kind: NodeKind,
    format: &DirFormat,
    seed: u32,
) -> Option<(u32, usize)> {
    let at = kind.entries_at();
    let (first, _) = RawDxEntry::ref_from_prefix(block.get(at..)?).ok()?;
    let (limit, count) = limit_and_count(first);
    if limit != kind.limit(format) || count > limit {
        return None;
    }
    // Both numbers are at most the limit of the block's size.
    let tail_at = at.strict_add(limit.strict_mul(ENTRY_LEN));
    let used = block.get(..at.strict_add(count.strict_mul(ENTRY_LEN)))?;
    let (tail, _) = RawDxTail::ref_from_prefix(block.get(tail_at..)?).ok()?;
    let sum = crc32c(crc32c(seed, used), tail.dt_reserved.as_bytes());
    Some((crc32c(sum, &[0; 4]), tail_at))
}

/// Writes the checksum of an index block. Does nothing without metadata_csum.
///
/// # Panics
/// If the block is not an index block.
pub(crate) fn seal_node(block: &mut [u8], kind: NodeKind, format: &DirFormat) {
    let Some(seed) = format.seed.0 else { return };
    let sum = node_checksum(block, kind, format, seed);
    let (sum, tail_at) =
        sum.unwrap_or_else(|| panic!("a block of {} bytes is no index block", block.len()));
    buffer::structure::<RawDxTail>(block, tail_at).dt_checksum = U32::new(sum);
}

/// Verifies the checksum of an index block. `place` is the block's number for the error.
///
/// # Errors
/// The checksum is wrong or there is no room for it.
pub(crate) fn verify_node(
    block: &[u8],
    kind: NodeKind,
    format: &DirFormat,
    ino: Ino,
    place: FileBlock,
) -> Result<(), Corrupt> {
    let Some(seed) = format.seed.0 else { return Ok(()) };
    let defect =
        Defect { offset: kind.entries_at(), what: "no room for the index checksum", value: 0 };
    let (computed, tail_at) =
        node_checksum(block, kind, format, seed).ok_or_else(|| defect.at(ino, place))?;
    let tail = block.get(tail_at..).and_then(|bytes| RawDxTail::ref_from_prefix(bytes).ok());
    let stored = tail.ok_or_else(|| defect.at(ino, place))?.0.dt_checksum.get();
    if stored == computed {
        Ok(())
    } else {
        Err(Corrupt::Checksum {
            what: "directory index block",
            place: place.get(),
            stored,
            computed,
        })
    }
}

#[cfg(test)]
mod tests;
