//! One segment of the table.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

use crate::format::sit::VALID_MAP_SIZE;
use crate::format::{Log, bits};

/// A bit for each block, from the most significant one.
pub(in crate::segment) type Map = [u8; VALID_MAP_SIZE];
/// Blocks of a segment.
pub(super) const FULL: u16 = 512;
const _: () = assert!(VALID_MAP_SIZE == 64, "a bit a block");

/// A bit for each block of a segment, and the number of set bits. The full and the empty set need
/// no bitmap.
#[derive(Clone, Default)]
pub(super) struct BlockSet {
    map: Option<Box<Map>>,
    count: u16,
}

impl BlockSet {
    /// The set of a bitmap.
    pub(super) fn new(map: Map) -> Self {
        let count = u16::try_from(bits::count(&map)).unwrap_or(FULL);
        Self { count, map: (count != 0 && count != FULL).then(|| Box::new(map)) }
    }

    /// Number of set bits.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn contains(&self, block: u16) -> bool {
        self.map.as_ref().map_or(self.count == FULL, |map| bits::test(&**map, block.into()))
    }

    pub(super) fn map(&self) -> Map {
        match &self.map {
            Some(map) => **map,
            None if self.count == FULL => [0xff; VALID_MAP_SIZE],
            None => [0; VALID_MAP_SIZE],
        }
    }

    /// Changes the bitmap; `change` returns by how many the number of set bits grows.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Map) -> i32) {
        let byte = if self.count == FULL { 0xff } else { 0 };
        let map = self.map.get_or_insert_with(|| Box::new([byte; VALID_MAP_SIZE]));
        let change = change(map);
        let count = u16::try_from(i32::from(self.count).strict_add(change));
        self.count = count.unwrap_or_else(|_| panic!("{change} blocks more than {}", self.count));
        if self.count == 0 || self.count == FULL {
            self.map = None;
        }
    }
}

/// A segment without the blocks that are held back.
pub(super) struct Segment {
    pub(super) mtime: u64,
    pub(super) valid: BlockSet,
    pub(super) log: Log,
    /// True if it is in one of the sets of segments with holes.
    pub(super) listed: bool,
}
