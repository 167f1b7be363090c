//! A volume in memory for tests of block maps. Its allocator detects blocks that are used twice or
//! freed twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::{FileBlock, Ino, Pba};
use cairn_block::memory::MemoryDevice;
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_cache::mapper::Run;
use cairn_cache::status::State;
use parking_lot::Mutex;
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32};

use super::{BlockMap, MapContext, Progress};
use crate::checksum::{InodeSeed, MetadataChecksum};
use crate::error::Result;
use crate::format::extent::SystemBlocks;
use crate::format::features::Features;
use crate::format::layout::Layout;
use crate::format::superblock::{MAGIC, RawSuperblock, Superblock};
use crate::space::{BlockSource, Freed};
use crate::txn::{Handle, Txn};

/// Blocks of the volume.
const BLOCKS: u64 = 1 << 20;

/// A volume with blocks of 1 KiB, so that trees become deep with few extents.
pub(crate) fn layout() -> Layout {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic = U16::new(MAGIC);
    raw.s_rev_level = U32::new(1);
    raw.s_blocks_per_group = U32::new(8192);
    raw.s_first_data_block = U32::new(1);
    raw.s_inodes_per_group = U32::new(1024);
    raw.s_inodes_count = U32::new(1024 * 128);
    raw.s_first_ino = U32::new(11);
    raw.s_inode_size = U16::new(256);
    raw.s_desc_size = U16::new(64);
    raw.s_checksum_type = 1;
    let mut superblock = Superblock { raw };
    superblock.set_blocks_count(BLOCKS);
    let mut features = Features::default();
    for name in ["64bit", "sparse_super", "metadata_csum", "extent"] {
        assert!(features.set_by_name(name, true));
    }
    superblock.set_features(features);
    Layout::new(&superblock, u64::MAX).expect("the layout is valid")
}

#[derive(Default)]
struct Blocks {
    used: BTreeSet<u64>,
    metadata: BTreeSet<u64>,
    next: u64,
    /// Metadata blocks that can still be allocated.
    left: Option<u32>,
}

/// Allocates blocks in ascending order.
pub(crate) struct Source(Mutex<Blocks>);

impl Source {
    /// Allocates a run of data blocks. Unless `adjacent`, it leaves a gap before the run.
    pub(crate) fn take(&self, len: u64, adjacent: bool) -> Pba {
        let mut blocks = self.0.lock();
        let start = blocks.next + u64::from(!adjacent);
        blocks.next = start + len;
        assert!(blocks.next < BLOCKS, "the test's volume is full");
        blocks.used.extend(start..start + len);
        Pba(start)
    }

    /// Allows only `count` more metadata blocks.
    pub(crate) fn limit(&self, count: Option<u32>) {
        self.0.lock().left = count;
    }
}

impl BlockSource for Source {
    fn allocate_block(&self, _: &Handle, _: Pba) -> Result<Pba> {
        if let Some(left) = &mut self.0.lock().left {
            *left = left.checked_sub(1).ok_or(cairn_vfs::Error::NoSpace)?;
        }
        let pba = self.take(1, false);
        self.0.lock().metadata.insert(pba.get());
        Ok(pba)
    }

    fn free(&self, handle: &Handle, start: Pba, count: u64, kind: Freed) -> Result<()> {
        let mut blocks = self.0.lock();
        for block in start.get()..start.get() + count {
            assert!(blocks.used.remove(&block), "block {block} is freed twice");
            assert_eq!(
                blocks.metadata.remove(&block),
                kind == Freed::Metadata,
                "block {block} freed as {kind:?}"
            );
        }
        drop(blocks);
        if kind == Freed::Metadata {
            handle.forget(start)?;
        }
        Ok(())
    }
}

/// A file on the volume, and its expected contents.
pub(crate) struct Fixture {
    pub layout: Layout,
    pub device: Arc<MemoryDevice>,
    pub buffers: Arc<BufferCache>,
    pub source: Source,
    pub seed: InodeSeed,
    pub extents: bool,
    pub i_block: [u8; 60],
    /// Sum of the returned counts.
    pub blocks: i64,
    /// The address of each file block, and whether it is unwritten.
    pub model: BTreeMap<u64, (u64, bool)>,
}

impl Fixture {
    pub(crate) fn new(extents: bool) -> Self {
        let layout = layout();
        let device = Arc::new(MemoryDevice::new(BLOCKS * 1024));
        let buffers = BufferCache::new(device.clone(), 1024, Budget::new(1 << 30));
        let source = Source(Mutex::new(Blocks { next: 100, ..Blocks::default() }));
        let seed = MetadataChecksum::with_seed(77).for_inode(Ino(12), 3);
        let mut i_block = [0; 60];
        if extents {
            crate::extent::initialize(&mut i_block);
        }
        Self {
            layout,
            device,
            buffers,
            source,
            seed,
            extents,
            i_block,
            blocks: 0,
            model: BTreeMap::new(),
        }
    }

    pub(crate) fn context(&self) -> MapContext<'_> {
        MapContext {
            ino: Ino(12),
            seed: self.seed,
            layout: &self.layout,
            system: SystemBlocks::NONE,
            buffers: &self.buffers,
            source: &self.source,
        }
    }

    /// Changes the map on a copy of `i_block`, as the inode layer does.
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&BlockMap<'_>, &Handle, &mut [u8; 60]) -> Result<(T, i64)>,
    ) -> Result<T> {
        let mut i_block = self.i_block;
        let handle = Txn::Direct(self.buffers.clone()).begin(1000)?;
        let (value, blocks) =
            change(&BlockMap::new(self.context(), self.extents), &handle, &mut i_block)?;
        self.i_block = i_block;
        self.blocks += blocks;
        Ok(value)
    }

    /// Frees a data block that was allocated and never mapped.
    pub(crate) fn give_back(&self, pba: Pba) {
        assert!(self.source.0.lock().used.remove(&pba.get()));
    }

    /// Maps each hole of a run to one run of new blocks.
    pub(crate) fn fill(&mut self, start: u64, len: u64, unwritten: bool, adjacent: bool) {
        let mut at = start;
        while at < start + len {
            let hole = (at..start + len).take_while(|block| !self.model.contains_key(block)).count()
                as u64;
            if hole == 0 {
                at += 1;
                continue;
            }
            let pba = self.source.take(hole, adjacent);
            let run = Run { start: FileBlock(at), len: hole };
            self.change(|map, handle, i_block| {
                Ok(((), map.insert(handle, i_block, run, pba, unwritten)?))
            })
            .unwrap();
            self.model.extend((0..hole).map(|n| (at + n, (pba.get() + n, unwritten))));
            at += hole;
        }
    }

    /// Converts a run in steps of `budget`. Returns the number of steps.
    pub(crate) fn convert(&mut self, start: u64, len: u64, unwritten: bool, budget: u32) -> u32 {
        let run = Run { start: FileBlock(start), len };
        let mut steps = 1;
        let mut step = || {
            self.change(|map, handle, i_block| {
                let convert =
                    if unwritten { BlockMap::mark_unwritten } else { BlockMap::convert_written };
                convert(map, handle, i_block, run, budget)
            })
        };
        while step().unwrap() == Progress::More {
            steps += 1;
            assert!(steps < 100_000, "conversion makes progress");
        }
        self.model.range_mut(start..start + len).for_each(|(_, block)| block.1 = unwritten);
        steps
    }

    /// Frees a run in steps of `budget`. Returns the number of steps.
    pub(crate) fn remove(&mut self, start: u64, len: u64, budget: u32) -> u32 {
        let run = Run { start: FileBlock(start), len };
        let mut steps = 1;
        while self.change(|map, handle, i_block| map.remove(handle, i_block, run, budget)).unwrap()
            == Progress::More
        {
            steps += 1;
            assert!(steps < 100_000, "removal makes progress");
        }
        self.model.retain(|block, _| *block < start || *block - start >= len);
        steps
    }

    /// Moves the blocks from `from` on in steps of `budget`. After each step the map is valid and
    /// has as many blocks as before. Returns the number of steps.
    pub(crate) fn shift(&mut self, from: u64, by: i64, budget: u32) -> u32 {
        let map = BlockMap::new(self.context(), self.extents);
        let mut shift = map.begin_shift(&self.i_block, FileBlock(from), by).unwrap();
        let mut steps = 1;
        while self
            .change(|map, handle, i_block| map.shift(handle, i_block, &mut shift, budget))
            .unwrap()
            == Progress::More
        {
            steps += 1;
            assert!(steps < 100_000, "moving makes progress");
            if steps < 6 {
                let blocks = |map: &BTreeMap<u64, (u64, bool)>| {
                    map.values().copied().collect::<BTreeSet<_>>()
                };
                let end = self
                    .model
                    .keys()
                    .next_back()
                    .map_or(0, |last| last + 1)
                    .saturating_add_signed(by.max(0));
                assert_eq!(blocks(&self.walk(end)), blocks(&self.model));
            }
        }
        let moved = self.model.split_off(&from);
        self.model.extend(
            moved.into_iter().map(|(block, to)| (block.checked_add_signed(by).unwrap(), to)),
        );
        steps
    }

    /// The map up to `end`, by look-ups.
    pub(crate) fn walk(&self, end: u64) -> BTreeMap<u64, (u64, bool)> {
        let map = BlockMap::new(self.context(), self.extents);
        let mut found = BTreeMap::new();
        let mut at = 0;
        while at < end {
            let known = map.lookup(&self.i_block, FileBlock(at)).unwrap();
            assert!(known.start.get() <= at && at < known.end(), "{known:?} holds {at}");
            let to = known.end().min(end);
            let (pba, unwritten) = match known.state {
                State::Mapped(pba) => (pba, false),
                State::Unwritten(pba) => (pba, true),
                State::Hole => {
                    at = to;
                    continue;
                }
                State::Delayed => panic!("nothing is delayed on disk"),
            };
            found.extend(
                (at..to).map(|block| (block, (pba.get() + (block - known.start.get()), unwritten))),
            );
            at = to;
        }
        found
    }

    /// Asserts that the map equals the model, and that exactly its blocks are in use. `tree` are
    /// the blocks of the map itself.
    pub(crate) fn check(&self, end: u64, tree: &BTreeSet<u64>) {
        assert_eq!(self.walk(end), self.model);
        let blocks = self.source.0.lock();
        assert_eq!(&blocks.metadata, tree, "the map's own blocks");
        let data: BTreeSet<u64> = self.model.values().map(|(pba, _)| *pba).collect();
        assert_eq!(blocks.used, data.union(tree).copied().collect(), "blocks in use");
        assert_eq!(self.blocks, blocks.used.len() as i64, "blocks counted");
    }
}
