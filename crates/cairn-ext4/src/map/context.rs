//! [`MapContext`]: what both kinds of block map use of the file and the volume.

use std::sync::Arc;

use cairn_base::{Ino, Pba};
use cairn_cache::block::BufferCache;

use crate::checksum::InodeSeed;
use crate::error::Result;
use crate::format::extent::{Bounds, MAX_FILE_BLOCKS, Site, SystemBlocks};
use crate::format::layout::Layout;
use crate::space::{BlockSource, Freed};
use crate::txn::Handle;

/// The file and volume of a block map.
#[derive(Clone, Copy)]
pub(crate) struct MapContext<'a> {
    /// The file.
    pub ino: Ino,
    /// Seed of its metadata checksums.
    pub seed: InodeSeed,
    /// The volume's geometry.
    pub layout: &'a Layout,
    /// Blocks of the volume's structures, which the file must not have.
    pub system: SystemBlocks<'a>,
    /// The cache of the map's blocks.
    pub buffers: &'a Arc<BufferCache>,
    /// Allocates and frees blocks.
    pub source: &'a dyn BlockSource,
}

impl MapContext<'_> {
    /// The range of the whole file and the whole volume.
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            start: 0,
            end: MAX_FILE_BLOCKS,
            // The first block contains the superblock.
            volume_start: self.layout.first_data_block + 1,
            volume_end: self.layout.blocks_count,
            system: self.system,
        }
    }

    pub(crate) fn site(&self, pba: Pba) -> Site {
        Site { ino: self.ino, pba }
    }

    /// Allocates `count` blocks for the map, or none.
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

/// The source of a map that is only read: it fails every call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSource;

impl BlockSource for NoSource {
    fn allocate_block(&self, _: &Handle, _: Pba) -> Result<Pba> {
        Err(cairn_vfs::Error::ReadOnly("the block map was opened for reading".into()).into())
    }

    fn free(&self, _: &Handle, _: Pba, _: u64, _: Freed) -> Result<()> {
        Err(cairn_vfs::Error::ReadOnly("the block map was opened for reading".into()).into())
    }
}

/// Result of a bounded step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything is done.
    Done,
    /// The budget is used up at a consistent point. The caller stores the inode and calls again
    /// with the same arguments.
    More,
}
