//! One segment of the table.

use crate::format::sit::VALID_MAP_SIZE;
use crate::format::units::BLOCKS_PER_SEGMENT;
use crate::format::{Log, bits};

/// A bit a block, from the most significant one.
pub(in crate::segment) type Map = [u8; VALID_MAP_SIZE];
/// Blocks of a segment.
pub(super) const FULL: u16 = BLOCKS_PER_SEGMENT as u16;

/// A segment without the blocks that are held back.
pub(super) struct Segment {
    pub(super) mtime: u64,
    /// `None` for a full or an empty segment.
    pub(super) map: Option<Box<Map>>,
    pub(super) valid: u16,
    pub(super) log: Log,
    /// It is in one of the sets of segments with holes.
    pub(super) listed: bool,
}

impl Segment {
    pub(super) fn map(&self) -> Map {
        match &self.map {
            Some(map) => **map,
            None if self.valid == FULL => [0xff; VALID_MAP_SIZE],
            None => [0; VALID_MAP_SIZE],
        }
    }

    pub(super) fn set_map(&mut self, map: Map) {
        self.valid = bits::count(&map) as u16;
        self.map = (self.valid != 0 && self.valid != FULL).then(|| Box::new(map));
    }

    /// Changes the bitmap; `change` returns by how many blocks the number of valid ones grows.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Map) -> i32) {
        let byte = if self.valid == FULL { 0xff } else { 0 };
        let map = self.map.get_or_insert_with(|| Box::new([byte; VALID_MAP_SIZE]));
        let valid = i32::from(self.valid) + change(map);
        self.valid = u16::try_from(valid).expect("as many valid blocks as bits");
        if self.valid == 0 || self.valid == FULL {
            self.map = None;
        }
    }
}
