//! Nodes of extent trees: the root in the inode and the blocks below it.
//!
//! A [`NodeView`] borrows the bytes, for searches. A [`Node`] owns its decoded entries, for
//! changes. Both exist only for bytes with a valid header. [`NodeView::validate`] checks every
//! entry against the node's range of the file and against the volume. Source: "Extent Tree" in the
//! kernel's ext4 documentation (`ext4_extent_header`, `ext4_extent_idx`, `ext4_extent`,
//! `ext4_extent_tail`).

use cairn_base::checksum::crc32c;
use cairn_base::units::as_u64;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use crate::checksum::InodeSeed;
use crate::corrupt::Corrupt;

mod entry;
mod node;

pub(crate) use entry::{
    Bounds, Extent, Index, MAGIC, MAX_DEPTH, MAX_FILE_BLOCKS, MAX_UNWRITTEN, MAX_WRITTEN,
    ROOT_BYTES, ROOT_CAPACITY, Site, SystemBlocks, block_capacity,
};
use entry::{ENTRY, RawExtent, RawHeader, RawIndex};
pub(crate) use node::{Entries, Node};

/// The bytes of a node with a valid header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<'a> {
    depth: u16,
    max: usize,
    entries: RawEntries<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RawEntries<'a> {
    Leaf(&'a [RawExtent]),
    Inner(&'a [RawIndex]),
}

/// Result of a search in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The extent that holds the block.
    Extent(Extent),
    /// A hole: `start..end` inside the node's range.
    Hole {
        /// First block of the hole.
        start: u64,
        /// Block after the last one.
        end: u64,
    },
    /// The child that maps `bounds`, and with it the block.
    Child(Index, Bounds<'a>),
}

/// What the checksum of a block of this capacity covers, and the stored and the computed one.
/// `None` without checksums.
#[must_use]
pub(crate) fn block_checksums(
    bytes: &[u8],
    capacity: usize,
    seed: InodeSeed,
) -> Option<(usize, u32, u32)> {
    let at = capacity.saturating_add(1).saturating_mul(ENTRY);
    let (covered, tail) = bytes.split_at_checked(at)?;
    let (stored, _) = U32::ref_from_prefix(tail).ok()?;
    Some((at, stored.get(), crc32c(seed.0?, covered)))
}

impl<'a> NodeView<'a> {
    /// Checks the header. `depth` is the depth below the parent, or `None` for the root.
    ///
    /// # Errors
    /// The magic, the depth, the capacity or the number of entries is invalid.
    pub(crate) fn parse(bytes: &'a [u8], depth: Option<u16>, site: Site) -> Result<Self, Corrupt> {
        let (header, rest) = RawHeader::ref_from_prefix(bytes)
            .map_err(|_| site.corrupt(0, "node is too short", as_u64(bytes.len())))?;
        let fault = |what, value: U16| Err(site.corrupt(0, what, u64::from(value.get())));
        if header.eh_magic.get() != MAGIC {
            return fault("extent node has a wrong magic", header.eh_magic);
        }
        if header.eh_depth.get() > MAX_DEPTH
            || depth.is_some_and(|depth| depth != header.eh_depth.get())
        {
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
        let short = || site.corrupt(0, "extent node ends early", as_u64(count));
        let entries = if inner {
            RawEntries::Inner(
                <[RawIndex]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?.0,
            )
        } else {
            RawEntries::Leaf(
                <[RawExtent]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?.0,
            )
        };
        Ok(Self { depth: header.eh_depth.get(), max, entries })
    }

    /// Levels below this node; 0 is a leaf.
    #[must_use]
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Entries in use.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        match self.entries {
            RawEntries::Leaf(extents) => extents.len(),
            RawEntries::Inner(indexes) => indexes.len(),
        }
    }

    /// Entries that the header says there is room for.
    #[must_use]
    pub(crate) fn capacity(&self) -> usize {
        self.max
    }

    /// Verifies the checksum in the tail of a block. The root has none.
    ///
    /// # Errors
    /// The checksum is wrong or there is no room for it.
    pub(crate) fn verify_checksum(
        &self,
        bytes: &[u8],
        seed: InodeSeed,
        site: Site,
    ) -> Result<(), Corrupt> {
        let Some(seed) = seed.0 else { return Ok(()) };
        let at = self.max.saturating_add(1).saturating_mul(ENTRY);
        let (covered, tail) = bytes
            .split_at_checked(at)
            .ok_or_else(|| site.corrupt(0, "extent node ends early", as_u64(at)))?;
        let Ok((stored, _)) = U32::ref_from_prefix(tail) else {
            return Err(site.corrupt(
                0,
                "extent node has no room for its checksum",
                as_u64(self.max),
            ));
        };
        let computed = crc32c(seed, covered);
        if stored.get() == computed {
            return Ok(());
        }
        Err(Corrupt::Checksum {
            what: "extent block",
            place: site.pba.get(),
            stored: stored.get(),
            computed,
        })
    }

    /// Checks that all entries are in order, do not overlap, and lie in `bounds` and on the volume.
    ///
    /// # Errors
    /// The first entry that is invalid.
    pub(crate) fn validate(&self, bounds: &Bounds<'_>, site: Site) -> Result<(), Corrupt> {
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
                    from = index.start.saturating_add(1);
                }
            }
        }
        Ok(())
    }

    /// Searches for file block `at`, which lies in `bounds`. It checks the entries that it uses, so
    /// the result lies within `bounds` for any bytes.
    ///
    /// # Errors
    /// An entry that it uses is invalid.
    pub(crate) fn find<'b>(
        &self,
        at: u64,
        bounds: &Bounds<'b>,
        site: Site,
    ) -> Result<Found<'b>, Corrupt> {
        match self.entries {
            RawEntries::Leaf(extents) => find_extent(extents, at, bounds, site),
            RawEntries::Inner(indexes) => find_child(indexes, at, bounds, site),
        }
    }

    /// The decoded node.
    #[must_use]
    pub(crate) fn decode(&self) -> Node {
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
        return Err(site.corrupt(
            extent.start,
            "extent overlaps or leaves its node's range",
            extent.len,
        ));
    }
    if !bounds.holds(extent.pba, extent.len) {
        return Err(site.corrupt(
            extent.start,
            "extent lies outside the volume or in its metadata",
            extent.pba.get(),
        ));
    }
    Ok(())
}

fn check_index(index: &Index, bounds: &Bounds<'_>, site: Site) -> Result<(), Corrupt> {
    if index.start < bounds.start || index.start >= bounds.end {
        return Err(site.corrupt(
            index.start,
            "index is out of order or leaves its node's range",
            index.start,
        ));
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

fn find_extent<'b>(
    extents: &[RawExtent],
    at: u64,
    bounds: &Bounds<'b>,
    site: Site,
) -> Result<Found<'b>, Corrupt> {
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

fn find_child<'b>(
    indexes: &[RawIndex],
    at: u64,
    bounds: &Bounds<'b>,
    site: Site,
) -> Result<Found<'b>, Corrupt> {
    let next = indexes.partition_point(|raw| u64::from(raw.ei_block.get()) <= at);
    let end = indexes.get(next).map_or(bounds.end, |raw| u64::from(raw.ei_block.get()));
    let Some(raw) = next.checked_sub(1).and_then(|last| indexes.get(last)) else {
        // Nothing is mapped before the first child.
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

#[cfg(test)]
mod tests;
