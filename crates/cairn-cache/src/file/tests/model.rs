//! A mapper with its map in memory. It places blocks in fragments, counts reservations, and checks
//! its callers.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::ranked_lock::{Mutex, Rank, enter};
use cairn_base::runtime::Runtime;
use cairn_base::runtime::threads::Threads;
use cairn_base::{FileBlock, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_block::wrap::Fault;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::budget::Budget;
use crate::file::{FileCache, PageCache, PageCacheOptions};
use crate::mapper::{FileMapper, MapError, Mapping, Place, Placement, Run, WriteTicket};

pub(super) const DEVICE: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Delayed,
    /// Placed; the data is being written.
    Placed,
    Unwritten(u64),
    Mapped(u64),
}

struct Map {
    blocks: BTreeMap<u64, State>,
    next: u64,
    end: u64,
    /// Number of blocks that can be reserved.
    free: u64,
    random: fastrand::Rng,
    file_end: u64,
}

/// The map of one file.
#[derive(Clone)]
pub(super) struct ModelMapper(Arc<Mutex<Map>>);

impl ModelMapper {
    pub(super) fn new(block_size: u32, free: u64, seed: u64) -> Self {
        let end = DEVICE / u64::from(block_size);
        let random = fastrand::Rng::with_seed(seed);
        let map = Map { blocks: BTreeMap::new(), next: 1, end, free, random, file_end: 0 };
        Self(Arc::new(Mutex::new(Rank::Mapping, map)))
    }

    /// Maps or preallocates blocks, as from an earlier mount.
    pub(super) fn preallocate(&self, blocks: std::ops::Range<u64>, written: bool) -> u64 {
        let mut map = self.0.lock();
        let first = map.next;
        for block in blocks {
            let at = map.next;
            map.next += 1;
            map.blocks
                .insert(block, if written { State::Mapped(at) } else { State::Unwritten(at) });
        }
        first
    }

    /// Truncates the map, as the filesystem does after the cache was truncated.
    pub(super) fn unmap(&self, blocks: std::ops::Range<u64>) {
        let mut map = self.0.lock();
        let gone: Vec<u64> = map.blocks.range(blocks).map(|(block, _)| *block).collect();
        for block in gone {
            let state = map.blocks.remove(&block);
            assert!(
                !matches!(state, Some(State::Delayed | State::Placed)),
                "block {block} was {state:?} when cut"
            );
            map.free += 1;
        }
    }

    pub(super) fn delayed(&self) -> usize {
        let map = self.0.lock();
        map.blocks.values().filter(|state| matches!(state, State::Delayed | State::Placed)).count()
    }

    /// The number of blocks of the device that were placed or passed over.
    pub(super) fn taken(&self) -> u64 {
        self.0.lock().next
    }

    /// The largest end of file that a ticket has passed.
    pub(super) fn file_end(&self) -> u64 {
        self.0.lock().file_end
    }
}

impl Map {
    fn place_of(&self, block: u64) -> Place {
        match self.blocks.get(&block) {
            None => Place::Hole,
            Some(State::Delayed | State::Placed) => Place::Delayed,
            Some(State::Unwritten(at)) => Place::Unwritten(Pba(*at)),
            Some(State::Mapped(at)) => Place::Mapped(Pba(*at)),
        }
    }

    fn mapping(&self, run: Run) -> Mapping {
        let start = run.start.get();
        let place = self.place_of(start);
        let mut len = 1;
        while len < run.len.min(4096) && follows(&place, &self.place_of(start + len), len) {
            len += 1;
        }
        Mapping { run: Run { start: run.start, len }, place }
    }
}

fn follows(first: &Place, next: &Place, distance: u64) -> bool {
    match (first, next) {
        (Place::Hole, Place::Hole) | (Place::Delayed, Place::Delayed) => true,
        (Place::Unwritten(a), Place::Unwritten(b)) | (Place::Mapped(a), Place::Mapped(b)) => {
            a.get() + distance == b.get()
        }
        _ => false,
    }
}

struct Ticket {
    map: Arc<Mutex<Map>>,
    run: Run,
    at: u64,
    done: bool,
}

impl WriteTicket for Ticket {
    fn complete(mut self: Box<Self>, file_end: u64) -> Result<(), MapError> {
        let _gate = enter(Rank::Operation);
        self.done = true;
        let mut map = self.map.lock();
        map.file_end = map.file_end.max(file_end);
        for (block, at) in (self.run.start.get()..).zip(self.at..self.at + self.run.len) {
            let before = map.blocks.insert(block, State::Mapped(at));
            assert!(
                before.is_some_and(|state| state != State::Delayed),
                "block {block} was {before:?} on completion"
            );
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut map = self.map.lock();
        for block in self.run.start.get()..self.run.start.get() + self.run.len {
            if map.blocks.get(&block) == Some(&State::Placed) {
                map.blocks.insert(block, State::Delayed);
            }
        }
    }
}

impl FileMapper for ModelMapper {
    fn lookup(&self, run: Run) -> Result<Mapping, MapError> {
        Ok(self.0.lock().mapping(run))
    }

    fn reserve(&self, run: Run) -> Result<Mapping, MapError> {
        let _gate = enter(Rank::Operation);
        let mut map = self.0.lock();
        let mut mapping = map.mapping(run);
        if mapping.place == Place::Hole {
            if map.free == 0 {
                return Err(MapError::NoSpace);
            }
            mapping.run.len = mapping.run.len.min(map.free);
            map.free -= mapping.run.len;
            for block in run.start.get()..run.start.get() + mapping.run.len {
                map.blocks.insert(block, State::Delayed);
            }
        }
        Ok(mapping)
    }

    fn reserves_ahead(&self) -> bool {
        true
    }

    fn release(&self, run: Run) {
        let _gate = enter(Rank::Operation);
        let mut map = self.0.lock();
        for block in run.start.get()..run.start.get() + run.len {
            if map.blocks.get(&block) == Some(&State::Delayed) {
                map.blocks.remove(&block);
                map.free += 1;
            }
        }
    }

    fn place(&self, run: Run) -> Result<Placement, MapError> {
        let _gate = enter(Rank::Operation);
        let mut map = self.0.lock();
        let mapping = map.mapping(run);
        let start = run.start.get();
        let (len, at) = match mapping.place {
            Place::Mapped(at) | Place::Unwritten(at) => (mapping.run.len, at.get()),
            Place::Delayed => {
                let most = mapping.run.len.min(1 << map.random.u32(0..8));
                let at = map.next;
                map.next += most + map.random.u64(0..2);
                assert!(map.next < map.end, "the model's device is full");
                (most, at)
            }
            other => panic!("place of {run:?}, which is {other:?}"),
        };
        if mapping.place == Place::Delayed {
            for block in start..start + len {
                map.blocks.insert(block, State::Placed);
            }
        }
        let run = Run { start: FileBlock(start), len };
        let ticket = Ticket { map: self.0.clone(), run, at, done: false };
        Ok(Placement { run, start: Pba(at), ticket: Box::new(ticket) })
    }
}

/// A volume with one file.
pub(super) struct Rig {
    pub(super) device: Arc<Fault>,
    pub(super) pages: Arc<PageCache>,
    pub(super) mapper: ModelMapper,
    pub(super) file: FileCache,
}

impl Rig {
    pub(super) fn new(block_size: u32, budget: u64, free: u64, seed: u64) -> Self {
        let memory = MemoryDevice::new(DEVICE);
        for at in (0..DEVICE).step_by(1 << 20) {
            memory.write_at(at, vec![0xAA; 1 << 20]).expect("memory takes writes");
        }
        Self::over(Arc::new(memory), block_size, budget, free, seed)
    }

    pub(super) fn over(
        memory: Arc<dyn BlockDevice>,
        block_size: u32,
        budget: u64,
        free: u64,
        seed: u64,
    ) -> Self {
        Self::under(Threads::new(), memory, block_size, budget, free, seed)
    }

    pub(super) fn under(
        runtime: Arc<dyn Runtime>,
        memory: Arc<dyn BlockDevice>,
        block_size: u32,
        budget: u64,
        free: u64,
        seed: u64,
    ) -> Self {
        let device = Arc::new(Fault::new(memory));
        let dynamic: Arc<dyn BlockDevice> = device.clone();
        let pages = PageCache::new(
            dynamic,
            Budget::new(budget),
            PageCacheOptions::new(block_size),
            runtime,
        );
        let mapper = ModelMapper::new(block_size, free, seed);
        let file = FileCache::new(&pages, block_size);
        Self { device, pages, mapper, file }
    }
}
