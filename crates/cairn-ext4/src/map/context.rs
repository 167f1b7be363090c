//! What both kinds of block map are given: the file, the volume, and where blocks come from.

use std::sync::Arc;

use cairn_base::{Ino, Pba};
use cairn_cache::block::BufferCache;

use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::extent::{Bounds, MAX_FILE_BLOCKS, Site, SystemBlocks};
use crate::format::layout::Layout;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

/// What a block map needs to know of its file and its volume.
#[derive(Clone, Copy)]
pub struct MapContext<'a> {
    /// The file.
    pub ino: Ino,
    /// Seed of its metadata checksums.
    pub seed: InodeSeed,
    /// The volume's geometry.
    pub layout: &'a Layout,
    /// Blocks that the file cannot have: the volume's own.
    pub system: SystemBlocks<'a>,
    /// Where the map's blocks are cached.
    pub buffers: &'a Arc<BufferCache>,
    /// Where they are allocated and freed.
    pub source: &'a dyn BlockSource,
}

impl MapContext<'_> {
    /// The whole file and the whole volume.
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            start: 0,
            end: MAX_FILE_BLOCKS,
            // The first block holds the superblock: no file can have it.
            volume_start: self.layout.first_data_block + 1,
            volume_end: self.layout.blocks_count,
            system: self.system,
        }
    }

    pub(crate) fn site(&self, pba: Pba) -> Site {
        Site { ino: self.ino, pba }
    }

    /// Allocates `count` blocks for the map itself, or none.
    pub(crate) fn allocate(&self, handle: &Handle, count: usize, goal: Pba) -> Result<Vec<Pba>> {
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            match self.source.allocate_block(handle, blocks.last().copied().unwrap_or(goal)) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    for block in blocks {
                        self.source.free(handle, block, 1, Freed::Metadata)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(blocks)
    }
}

/// A source for maps that are only read: it has no blocks and takes none.
#[derive(Clone, Copy, Debug)]
pub struct NoSource;

impl BlockSource for NoSource {
    fn allocate_block(&self, _: &Handle, _: Pba) -> Result<Pba> {
        Err(cairn_vfs::Error::ReadOnly("the block map was opened for reading".into()).into())
    }

    fn free(&self, _: &Handle, _: Pba, _: u64, _: Freed) -> Result<()> {
        Err(cairn_vfs::Error::ReadOnly("the block map was opened for reading".into()).into())
    }
}

/// How far a bounded step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it.
    Done,
    /// The budget is spent at a consistent point: store the inode and call again with the same arguments.
    More,
}
