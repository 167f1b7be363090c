//! One segment of the table.

use crate::format::sit::VALID_MAP_SIZE;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, bits};

/// A bit a block, from the most significant one.
pub(in crate::segment) type Map = [u8; VALID_MAP_SIZE];
/// Blocks of a segment.
pub(super) const FULL: u16 = BLOCKS_PER_SEGMENT as u16;

/// A bit for each block of a segment, and how many are set. All and none need no bitmap.
#[derive(Clone, Default)]
pub(super) struct BlockSet {
    map: Option<Box<Map>>,
    count: u16,
}

impl BlockSet {
    /// The set that a bitmap says.
    pub(super) fn new(map: Map) -> Self {
        let count = bits::count(&map) as u16;
        Self { count, map: (count != 0 && count != FULL).then(|| Box::new(map)) }
    }

    /// How many are set.
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
        let count = i32::from(self.count) + change(map);
        self.count = u16::try_from(count).expect("as many blocks as bits");
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
    /// It is in one of the sets of segments with holes.
    pub(super) listed: bool,
}
