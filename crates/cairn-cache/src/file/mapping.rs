//! Asking the mapper: counted, checked, and as finely as the mode says.
//!
//! In [`BufferedMode::PerBlock`] every buffered question is about one block. Direct I/O always asks for the largest run.

use cairn_base::FileBlock;

use super::index::FileState;
use super::{CacheError, FileCache};
use crate::mapper::{FileMapper, MapError, Mapping, Placement, Run};

/// How coarsely buffered I/O works. Correctness is the same; only what one mapping and one folio cover differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BufferedMode {
    /// One mapping for the largest run, folios as large as the options allow.
    #[default]
    Extents,
    /// One mapping for each block, folios of a page: the baseline.
    PerBlock,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Cache,
    Direct,
}

impl FileState {
    /// What to ask for at once instead of `len` blocks.
    fn grain(&self, via: Via, len: u64) -> u64 {
        if via == Via::Cache && self.cache.mode() == BufferedMode::PerBlock { 1 } else { len }
    }

    /// Asks for an address for the head of a dirty run.
    pub(crate) fn place(&self, mapper: &dyn FileMapper, run: Run) -> Result<Placement, MapError> {
        self.place_via(Via::Cache, mapper, run)
    }

    pub(super) fn place_via(&self, via: Via, mapper: &dyn FileMapper, run: Run) -> Result<Placement, MapError> {
        self.cache.counters().map_places.add(1);
        let asked = Run { start: run.start, len: self.grain(via, run.len) };
        let placed = mapper.place(asked)?;
        let got = placed.run;
        assert!(got.start == asked.start && (1..=asked.len).contains(&got.len), "place of {asked:?} gave {got:?}");
        Ok(placed)
    }
}

impl FileCache {
    /// Where `start` is, and how far that goes; `len` blocks are of interest.
    pub(super) fn lookup(
        &self,
        via: Via,
        mapper: &dyn FileMapper,
        start: u64,
        len: u64,
    ) -> Result<Mapping, CacheError> {
        self.state.cache.counters().map_lookups.add(1);
        let len = self.state.grain(via, len);
        let mut mapping = mapper.lookup(Run { start: FileBlock(start), len })?;
        assert!(mapping.run.start.get() == start && mapping.run.len > 0, "lookup of {start} gave {:?}", mapping.run);
        mapping.run.len = self.state.grain(via, mapping.run.len);
        Ok(mapping)
    }

    /// Has space promised for the head of a run.
    pub(super) fn reserve(
        &self,
        via: Via,
        mapper: &dyn FileMapper,
        start: u64,
        len: u64,
    ) -> Result<Mapping, CacheError> {
        self.state.cache.counters().map_reserves.add(1);
        let len = self.state.grain(via, len);
        let mapping = mapper.reserve(Run { start: FileBlock(start), len })?;
        let run = mapping.run;
        assert!(run.start.get() == start && (1..=len).contains(&run.len), "reserve of {start}+{len} gave {run:?}");
        Ok(mapping)
    }
}
