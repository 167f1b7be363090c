//! Nodes of extent trees: the root in the inode and the blocks below it.
//!
//! A [`NodeView`] borrows the bytes and is what lookups search; a [`Node`] owns its decoded entries and is what changes
//! edit. Both exist only for bytes whose header is sound; [`NodeView::validate`] checks every entry against the range
//! of the file that the parent gave this node and against the volume. Source: "Extent Tree" in the kernel's ext4
//! documentation (`ext4_extent_header`, `ext4_extent_idx`, `ext4_extent`, `ext4_extent_tail`).

use cairn_base::checksum::crc32c;
use cairn_base::{FileBlock, Ino, Pba};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

/// `eh_magic`.
pub const MAGIC: u16 = 0xf30a;
/// Deepest tree the format allows (`eh_depth` of the root).
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent, in blocks. A stored `ee_len` above it means "unwritten, this much longer".
pub const MAX_WRITTEN: u64 = 32768;
/// Longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u64 = 32767;
/// File blocks are below this number: the last 32-bit number is not a block.
pub const MAX_FILE_BLOCKS: u64 = u32::MAX as u64;
/// Bytes of `i_block`, which hold the root.
pub const ROOT_BYTES: usize = 60;

/// Bytes of a header and of every entry.
const ENTRY: usize = 12;

/// `struct ext4_extent_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    eh_magic: U16,
    eh_entries: U16,
    eh_max: U16,
    eh_depth: U16,
    eh_generation: U32,
}

/// `struct ext4_extent_idx`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIndex {
    ei_block: U32,
    ei_leaf_lo: U32,
    ei_leaf_hi: U16,
    ei_unused: U16,
}

/// `struct ext4_extent`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}

const _: () = assert!(size_of::<RawHeader>() == ENTRY);
const _: () = assert!(size_of::<RawIndex>() == ENTRY);
const _: () = assert!(size_of::<RawExtent>() == ENTRY);

/// Blocks of a file that lie in one piece on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block of the file.
    pub start: u64,
    /// Blocks, at least 1.
    pub len: u64,
    /// First block on the volume.
    pub pba: Pba,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the last.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Longest extent of this one's state.
    #[must_use]
    pub const fn max_len(&self) -> u64 {
        if self.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
    }

    /// The part of it inside `start..end`, if any.
    #[must_use]
    pub fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let from = self.start.max(start);
        let to = self.end().min(end);
        (from < to).then(|| Self {
            start: from,
            len: to - from,
            pba: Pba(self.pba.get() + (from - self.start)),
            ..*self
        })
    }

    /// Whether `next` continues this one in the file, on the volume and in state.
    #[must_use]
    pub fn continues_with(&self, next: &Self) -> bool {
        self.end() == next.start && self.pba.get() + self.len == next.pba.get() && self.unwritten == next.unwritten
    }
}

impl From<&RawExtent> for Extent {
    fn from(raw: &RawExtent) -> Self {
        let stored = u64::from(raw.ee_len.get());
        let unwritten = stored > MAX_WRITTEN;
        Self {
            start: u64::from(raw.ee_block.get()),
            len: if unwritten { stored - MAX_WRITTEN } else { stored },
            pba: address(raw.ee_start_hi, raw.ee_start_lo),
            unwritten,
        }
    }
}

impl From<&Extent> for RawExtent {
    fn from(extent: &Extent) -> Self {
        assert!(extent.len >= 1 && extent.len <= extent.max_len(), "extent of {} blocks", extent.len);
        let stored = if extent.unwritten { extent.len + MAX_WRITTEN } else { extent.len };
        let (hi, lo) = halves(extent.pba);
        Self {
            ee_block: U32::new(file_block(extent.start)),
            ee_len: U16::new(u16::try_from(stored).expect("bounded above")),
            ee_start_hi: hi,
            ee_start_lo: lo,
        }
    }
}

/// Entry of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// First file block of the child's range.
    pub start: u64,
    /// Where the child is.
    pub child: Pba,
}

impl From<&RawIndex> for Index {
    fn from(raw: &RawIndex) -> Self {
        Self { start: u64::from(raw.ei_block.get()), child: address(raw.ei_leaf_hi, raw.ei_leaf_lo) }
    }
}

impl From<&Index> for RawIndex {
    fn from(index: &Index) -> Self {
        let (hi, lo) = halves(index.child);
        Self { ei_block: U32::new(file_block(index.start)), ei_leaf_lo: lo, ei_leaf_hi: hi, ei_unused: U16::ZERO }
    }
}

fn address(hi: U16, lo: U32) -> Pba {
    Pba(u64::from(hi.get()) << 32 | u64::from(lo.get()))
}

fn halves(pba: Pba) -> (U16, U32) {
    let hi = u16::try_from(pba.get() >> 32).expect("block addresses have 48 bits");
    (U16::new(hi), U32::new((pba.get() & u64::from(u32::MAX)) as u32))
}

fn file_block(block: u64) -> u32 {
    u32::try_from(block).expect("file blocks of an extent tree have 32 bits")
}

/// Where a node is, for errors.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The file.
    pub ino: Ino,
    /// The node's block; 0 is the inode.
    pub pba: Pba,
}

impl Site {
    /// A defect here.
    #[must_use]
    pub fn corrupt(&self, at: u64, what: &'static str, value: u64) -> Corrupt {
        Corrupt::Mapping { ino: self.ino, at: FileBlock(at), pba: self.pba, what, value }
    }
}

/// The part of a file that a node may map, and the blocks of the volume it may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<'a> {
    /// First file block.
    pub start: u64,
    /// File block after the last.
    pub end: u64,
    /// First block of the volume that can belong to a file.
    pub volume_start: u64,
    /// Block after the volume's last.
    pub volume_end: u64,
    /// Blocks between the two that are nobody's: the volume's own structures.
    pub system: SystemBlocks<'a>,
}

impl Bounds<'_> {
    /// Whether `len` blocks from `pba` on can belong to a file.
    #[must_use]
    pub fn holds(&self, pba: Pba, len: u64) -> bool {
        let inside =
            pba.get() >= self.volume_start && pba.get().checked_add(len).is_some_and(|end| end <= self.volume_end);
        inside && !self.system.overlap(pba, len)
    }
}

/// Ranges of blocks (the first one, and the one behind the last), sorted and apart: what Linux calls the system zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemBlocks<'a>(pub &'a [(u64, u64)]);

impl SystemBlocks<'_> {
    /// None, for those who read a volume whose structures are not known yet.
    pub const NONE: Self = Self(&[]);

    /// Whether any of `len` blocks from `pba` on is one of them.
    #[must_use]
    pub fn overlap(&self, pba: Pba, len: u64) -> bool {
        let end = pba.get().saturating_add(len);
        let behind = self.0.partition_point(|range| range.1 <= pba.get());
        self.0.get(behind).is_some_and(|range| range.0 < end)
    }
}

/// Entries a block of `block_size` bytes holds; the checksum fits behind them at every block size.
#[must_use]
pub fn block_capacity(block_size: u32) -> usize {
    (block_size as usize).saturating_sub(ENTRY) / ENTRY
}

/// Entries the root in the inode holds.
pub const ROOT_CAPACITY: usize = (ROOT_BYTES - ENTRY) / ENTRY;

/// A node's bytes with a sound header.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    depth: u16,
    max: usize,
    entries: RawEntries<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RawEntries<'a> {
    Leaf(&'a [RawExtent]),
    Inner(&'a [RawIndex]),
}

/// What a leaf knows of one file block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// This extent holds it.
    Extent(Extent),
    /// Nothing does: the hole in this node's range is `start..end`.
    Hole {
        /// First block of the hole.
        start: u64,
        /// Block after its last.
        end: u64,
    },
    /// The answer is in a child, which maps `bounds`.
    Child(Index, Bounds<'a>),
}

impl<'a> NodeView<'a> {
    /// Checks the header. `depth` is what the parent implies; `None` for the root, which says it itself.
    pub fn parse(bytes: &'a [u8], depth: Option<u16>, site: Site) -> Result<Self, Corrupt> {
        let (header, rest) =
            RawHeader::ref_from_prefix(bytes).map_err(|_| site.corrupt(0, "node is too short", bytes.len() as u64))?;
        let fault = |what, value: U16| Err(site.corrupt(0, what, u64::from(value.get())));
        if header.eh_magic.get() != MAGIC {
            return fault("extent node has a wrong magic", header.eh_magic);
        }
        if header.eh_depth.get() > MAX_DEPTH || depth.is_some_and(|depth| depth != header.eh_depth.get()) {
            return fault("extent node has a wrong depth", header.eh_depth);
        }
        let max = usize::from(header.eh_max.get());
        if max == 0 || max > rest.len() / ENTRY {
            return fault("extent node has an impossible capacity", header.eh_max);
        }
        let count = usize::from(header.eh_entries.get());
        let inner = header.eh_depth.get() > 0;
        if count > max || (inner && count == 0) {
            return fault("extent node has an impossible number of entries", header.eh_entries);
        }
        let short = || site.corrupt(0, "extent node ends early", count as u64);
        let entries = if inner {
            RawEntries::Inner(<[RawIndex]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?.0)
        } else {
            RawEntries::Leaf(<[RawExtent]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?.0)
        };
        Ok(Self { depth: header.eh_depth.get(), max, entries })
    }

    /// Levels below this node; 0 is a leaf.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Entries in use.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.entries {
            RawEntries::Leaf(extents) => extents.len(),
            RawEntries::Inner(indexes) => indexes.len(),
        }
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the tail of a block (not of the root) against its bytes.
    pub fn verify_checksum(&self, bytes: &[u8], seed: InodeSeed, site: Site) -> Result<(), Corrupt> {
        let Some(seed) = seed.0 else { return Ok(()) };
        let at = ENTRY + self.max * ENTRY;
        let (covered, tail) =
            bytes.split_at_checked(at).ok_or_else(|| site.corrupt(0, "extent node ends early", at as u64))?;
        let Ok((stored, _)) = U32::ref_from_prefix(tail) else {
            return Err(site.corrupt(0, "extent node has no room for its checksum", self.max as u64));
        };
        let computed = crc32c(seed, covered);
        if stored.get() == computed {
            return Ok(());
        }
        Err(Corrupt::Checksum { what: "extent block", place: site.pba.get(), stored: stored.get(), computed })
    }

    /// Checks every entry: in order, without overlap, inside `bounds`, on the volume.
    pub fn validate(&self, bounds: &Bounds<'_>, site: Site) -> Result<(), Corrupt> {
        match self.entries {
            RawEntries::Leaf(extents) => {
                let mut from = bounds.start;
                for raw in extents {
                    let extent = Extent::from(raw);
                    check_extent(&extent, &Bounds { start: from, ..*bounds }, site)?;
                    from = extent.end();
                }
            }
            RawEntries::Inner(indexes) => {
                let mut from = bounds.start;
                for raw in indexes {
                    let index = Index::from(raw);
                    check_index(&index, &Bounds { start: from, ..*bounds }, site)?;
                    from = index.start + 1;
                }
            }
        }
        Ok(())
    }

    /// What this node says about file block `at`, which lies in `bounds`. Checks the entries it uses, so that bytes
    /// that were never validated give an error or an answer within `bounds`.
    pub fn find<'b>(&self, at: u64, bounds: &Bounds<'b>, site: Site) -> Result<Found<'b>, Corrupt> {
        match self.entries {
            RawEntries::Leaf(extents) => find_extent(extents, at, bounds, site),
            RawEntries::Inner(indexes) => find_child(indexes, at, bounds, site),
        }
    }

    /// The decoded node.
    #[must_use]
    pub fn decode(&self) -> Node {
        let entries = match self.entries {
            RawEntries::Leaf(extents) => Entries::Leaf(extents.iter().map(Extent::from).collect()),
            RawEntries::Inner(indexes) => Entries::Inner(indexes.iter().map(Index::from).collect()),
        };
        Node { depth: self.depth, entries }
    }
}

fn check_extent(extent: &Extent, bounds: &Bounds<'_>, site: Site) -> Result<(), Corrupt> {
    if extent.len == 0 {
        return Err(site.corrupt(extent.start, "extent has no blocks", 0));
    }
    if extent.start < bounds.start || extent.end() > bounds.end {
        return Err(site.corrupt(extent.start, "extent overlaps or leaves its node's range", extent.len));
    }
    if !bounds.holds(extent.pba, extent.len) {
        return Err(site.corrupt(extent.start, "extent lies outside the volume or in its metadata", extent.pba.get()));
    }
    Ok(())
}

fn check_index(index: &Index, bounds: &Bounds<'_>, site: Site) -> Result<(), Corrupt> {
    if index.start < bounds.start || index.start >= bounds.end {
        return Err(site.corrupt(index.start, "index is out of order or leaves its node's range", index.start));
    }
    if !bounds.holds(index.child, 1) {
        return Err(site.corrupt(
            index.start,
            "extent node lies outside the volume or in its metadata",
            index.child.get(),
        ));
    }
    Ok(())
}

fn find_extent<'b>(extents: &[RawExtent], at: u64, bounds: &Bounds<'b>, site: Site) -> Result<Found<'b>, Corrupt> {
    let next = extents.partition_point(|raw| u64::from(raw.ee_block.get()) <= at);
    let mut hole = (bounds.start, bounds.end);
    if let Some(raw) = next.checked_sub(1).and_then(|last| extents.get(last)) {
        let extent = Extent::from(raw);
        check_extent(&extent, bounds, site)?;
        if at < extent.end() {
            return Ok(Found::Extent(extent));
        }
        hole.0 = extent.end();
    }
    if let Some(raw) = extents.get(next) {
        let extent = Extent::from(raw);
        check_extent(&extent, bounds, site)?;
        hole.1 = extent.start;
    }
    if hole.0 > at || hole.1 <= at {
        return Err(site.corrupt(at, "extents are out of order", hole.0));
    }
    Ok(Found::Hole { start: hole.0, end: hole.1 })
}

fn find_child<'b>(indexes: &[RawIndex], at: u64, bounds: &Bounds<'b>, site: Site) -> Result<Found<'b>, Corrupt> {
    let next = indexes.partition_point(|raw| u64::from(raw.ei_block.get()) <= at);
    let end = indexes.get(next).map_or(bounds.end, |raw| u64::from(raw.ei_block.get()));
    let Some(raw) = next.checked_sub(1).and_then(|last| indexes.get(last)) else {
        // Before the first child: nothing is mapped there.
        if end > bounds.end || end <= at {
            return Err(site.corrupt(at, "index is out of order or leaves its node's range", end));
        }
        return Ok(Found::Hole { start: bounds.start, end });
    };
    let index = Index::from(raw);
    check_index(&index, bounds, site)?;
    if end > bounds.end || end <= at {
        return Err(site.corrupt(at, "index is out of order or leaves its node's range", end));
    }
    Ok(Found::Child(index, Bounds { start: index.start, end, ..*bounds }))
}

/// A node taken out of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Levels below; 0 is a leaf.
    pub depth: u16,
    /// What it holds.
    pub entries: Entries,
}

/// Entries of a node, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Of a leaf.
    Leaf(Vec<Extent>),
    /// Of an inner node.
    Inner(Vec<Index>),
}

impl Entries {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Leaf(extents) => extents.len(),
            Self::Inner(indexes) => indexes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First file block of the first entry.
    #[must_use]
    pub fn first_key(&self) -> Option<u64> {
        match self {
            Self::Leaf(extents) => extents.first().map(|extent| extent.start),
            Self::Inner(indexes) => indexes.first().map(|index| index.start),
        }
    }

    /// Takes the entries from `at` on.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Leaf(extents) => Self::Leaf(extents.split_off(at)),
            Self::Inner(indexes) => Self::Inner(indexes.split_off(at)),
        }
    }
}

impl Node {
    /// A file without extents.
    #[must_use]
    pub const fn empty() -> Self {
        Self { depth: 0, entries: Entries::Leaf(Vec::new()) }
    }

    /// Writes the node as the root of an inode.
    pub fn encode_root(&self, i_block: &mut [u8; ROOT_BYTES]) {
        self.encode(i_block, ROOT_CAPACITY);
    }

    /// Writes the node as a block, with its checksum.
    pub fn encode_block(&self, block: &mut [u8], seed: InodeSeed) {
        let capacity = block.len().saturating_sub(ENTRY) / ENTRY;
        self.encode(block, capacity);
        let (covered, tail) = block.split_at_mut(ENTRY + capacity * ENTRY);
        if let Some(seed) = seed.0 {
            let sum = U32::new(crc32c(seed, covered));
            sum.write_to_prefix(tail).expect("a block leaves room for its checksum");
        }
    }

    fn encode(&self, out: &mut [u8], capacity: usize) {
        let count = self.entries.len();
        assert!(count <= capacity, "{count} entries in a node of {capacity}");
        let header = RawHeader {
            eh_magic: U16::new(MAGIC),
            eh_entries: U16::new(u16::try_from(count).expect("bounded by the capacity")),
            eh_max: U16::new(u16::try_from(capacity).expect("blocks have at most 64 KiB")),
            eh_depth: U16::new(self.depth),
            eh_generation: U32::ZERO,
        };
        let (head, body) = out.split_at_mut(ENTRY);
        head.copy_from_slice(header.as_bytes());
        let (used, unused) = body[..capacity * ENTRY].split_at_mut(count * ENTRY);
        match &self.entries {
            Entries::Leaf(extents) => put(used, extents.iter().map(RawExtent::from)),
            Entries::Inner(indexes) => put(used, indexes.iter().map(RawIndex::from)),
        }
        unused.fill(0);
    }
}

fn put<R: IntoBytes + Immutable>(out: &mut [u8], entries: impl Iterator<Item = R>) {
    for (slot, raw) in out.chunks_exact_mut(ENTRY).zip(entries) {
        slot.copy_from_slice(raw.as_bytes());
    }
}

#[cfg(test)]
mod tests;
