//! A decoded node of an extent tree, for changes.

use cairn_base::checksum::crc32c;
use cairn_base::units::stored;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

use super::entry::{
    ENTRY, Extent, Index, MAGIC, ROOT_BYTES, ROOT_CAPACITY, RawExtent, RawHeader, RawIndex,
};
use crate::checksum::InodeSeed;
use crate::format::buffer;

/// A decoded node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Levels below; 0 is a leaf.
    pub depth: u16,
    /// Its entries.
    pub entries: Entries,
}

/// Entries of a node, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// Entries of a leaf.
    Leaf(Vec<Extent>),
    /// Entries of an inner node.
    Inner(Vec<Index>),
}

impl Entries {
    /// Number of entries.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(extents) => extents.len(),
            Self::Inner(indexes) => indexes.len(),
        }
    }

    /// First file block of the first entry.
    #[must_use]
    pub(crate) fn first_key(&self) -> Option<u64> {
        match self {
            Self::Leaf(extents) => extents.first().map(|extent| extent.start),
            Self::Inner(indexes) => indexes.first().map(|index| index.start),
        }
    }

    /// Takes the entries from `at` on.
    #[must_use]
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Leaf(extents) => Self::Leaf(extents.split_off(at)),
            Self::Inner(indexes) => Self::Inner(indexes.split_off(at)),
        }
    }
}

impl Node {
    /// The root of a file without extents.
    #[must_use]
    pub(crate) const fn empty() -> Self {
        Self { depth: 0, entries: Entries::Leaf(Vec::new()) }
    }

    /// Writes the node as the root of an inode.
    pub(crate) fn encode_root(&self, i_block: &mut [u8; ROOT_BYTES]) {
        self.encode(i_block, ROOT_CAPACITY);
    }

    /// Writes the node as a block, with its checksum.
    pub(crate) fn encode_block(&self, block: &mut [u8], seed: InodeSeed) {
        let capacity = block.len().saturating_sub(ENTRY) / ENTRY;
        self.encode(block, capacity);
        let (covered, tail) = block.split_at_mut(ENTRY.strict_mul(capacity.strict_add(1)));
        if let Some(seed) = seed.0 {
            *buffer::structure(tail, 0) = U32::new(crc32c(seed, covered));
        }
    }

    fn encode(&self, out: &mut [u8], capacity: usize) {
        let count = self.entries.len();
        assert!(count <= capacity, "{count} entries in a node of {capacity}");
        let header = RawHeader {
            eh_magic: U16::new(MAGIC),
            eh_entries: U16::new(stored(count)),
            eh_max: U16::new(stored(capacity)),
            eh_depth: U16::new(self.depth),
            eh_generation: U32::ZERO,
        };
        let (head, body) = out.split_at_mut(ENTRY);
        head.copy_from_slice(header.as_bytes());
        let body = buffer::part(body, 0, capacity.strict_mul(ENTRY));
        let (used, unused) = body.split_at_mut(count.strict_mul(ENTRY));
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
