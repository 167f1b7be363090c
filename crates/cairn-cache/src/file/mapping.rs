//! Calls of the mapper: each is counted and checked, and asks for as many blocks as the mode
//! allows.
//!
//! In [`BufferedMode::PerBlock`] every call of buffered I/O is about one block. Direct I/O always
//! asks for the largest run.

use cairn_base::FileBlock;

use super::error::CacheError;
use super::file_cache::FileCache;
use super::index::FileState;
use super::options::BufferedMode;
use crate::mapper::{FileMapper, MapError, Mapping, Placement, Run};

/// Which kind of I/O calls the mapper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Buffered,
    Direct,
}

impl FileState {
    /// Number of blocks to ask for at once, of `len` blocks.
    fn grain(&self, caller: Caller, len: u64) -> u64 {
        if caller == Caller::Buffered && self.cache.mode() == BufferedMode::PerBlock {
            1
        } else {
            len
        }
    }

    /// Asks for an address for the head of a dirty run.
    pub(crate) fn place(&self, mapper: &dyn FileMapper, run: Run) -> Result<Placement, MapError> {
        self.place_for(Caller::Buffered, mapper, run)
    }

    pub(super) fn place_for(
        &self,
        caller: Caller,
        mapper: &dyn FileMapper,
        run: Run,
    ) -> Result<Placement, MapError> {
        self.cache.counters().map_places.add(1);
        let asked = Run { start: run.start, len: self.grain(caller, run.len) };
        let placed = mapper.place(asked)?;
        let got = placed.run;
        assert!(
            got.start == asked.start && (1..=asked.len).contains(&got.len),
            "place of {asked:?} gave {got:?}"
        );
        Ok(placed)
    }
}

impl FileCache {
    /// The mapping at `start`; `len` is the number of blocks that the caller can use.
    pub(super) fn lookup(
        &self,
        caller: Caller,
        mapper: &dyn FileMapper,
        start: u64,
        len: u64,
    ) -> Result<Mapping, CacheError> {
        self.state.cache.counters().map_lookups.add(1);
        let len = self.state.grain(caller, len);
        let mut mapping = mapper.lookup(Run { start: FileBlock(start), len })?;
        assert!(
            mapping.run.start.get() == start && mapping.run.len > 0,
            "lookup of {start} gave {:?}",
            mapping.run
        );
        mapping.run.len = self.state.grain(caller, mapping.run.len);
        Ok(mapping)
    }

    /// Reserves space for the head of a run.
    pub(super) fn reserve(
        &self,
        caller: Caller,
        mapper: &dyn FileMapper,
        start: u64,
        len: u64,
    ) -> Result<Mapping, CacheError> {
        self.state.cache.counters().map_reserves.add(1);
        let len = self.state.grain(caller, len);
        let mapping = mapper.reserve(Run { start: FileBlock(start), len })?;
        let run = mapping.run;
        assert!(
            run.start.get() == start && (1..=len).contains(&run.len),
            "reserve of {start}+{len} gave {run:?}"
        );
        Ok(mapping)
    }
}
