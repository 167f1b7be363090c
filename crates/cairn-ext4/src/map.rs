//! The block map of one file: an extent tree, or the block pointers of ext2 and ext3.
//!
//! All functions work on the inode's `i_block` bytes, which the caller holds locked (its MAPPING rank) and stores in the
//! inode table afterwards, in the same handle; the signed counts they return are blocks added to the file (its data and
//! its map's own blocks), for `i_blocks`. After an error nothing has been allocated or freed, unless the device or the
//! journal failed: then the volume stops anyway. Locking: allocator and buffer locks are taken below, none is held on
//! return.

use cairn_base::{FileBlock, Pba};
use cairn_cache::mapper::Run;
use cairn_cache::status::Extent;

use crate::error::Result;
use crate::extent::Shift;
use crate::format::extent::{MAX_FILE_BLOCKS, ROOT_BYTES};
use crate::format::indirect;
use crate::txn::Handle;

mod budget;
mod context;

pub(crate) use budget::Budget;
pub use context::{MapContext, NoSource, Progress};

/// The block map of one file, of either kind.
#[derive(Clone, Copy)]
pub struct BlockMap<'a> {
    context: MapContext<'a>,
    extents: bool,
}

impl<'a> BlockMap<'a> {
    /// The map of a file; `extents` is the inode's EXTENTS flag.
    #[must_use]
    pub const fn new(context: MapContext<'a>, extents: bool) -> Self {
        Self { context, extents }
    }

    /// What is at `block`: the extent that holds it, or the hole around it as far as one look shows.
    pub fn lookup(&self, i_block: &[u8; ROOT_BYTES], block: FileBlock) -> Result<Extent> {
        if self.extents {
            crate::extent::lookup(&self.context, i_block, block)
        } else {
            crate::indirect::lookup(&self.context, i_block, block)
        }
    }

    /// Maps a hole to blocks that are already marked in use.
    pub fn insert(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        run: Run,
        pba: Pba,
        unwritten: bool,
    ) -> Result<i64> {
        if self.extents {
            return crate::extent::insert(&self.context, handle, i_block, run, pba, unwritten);
        }
        if unwritten {
            return Err(no_extents());
        }
        crate::indirect::insert(&self.context, handle, i_block, run, pba)
    }

    /// Unwritten blocks of the run become written; holes stay holes. Changes at most about `budget` metadata blocks.
    pub fn convert_written(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        run: Run,
        budget: u32,
    ) -> Result<(Progress, i64)> {
        if self.extents {
            crate::extent::set_unwritten(&self.context, handle, i_block, run, false, budget)
        } else {
            Ok((Progress::Done, 0))
        }
    }

    /// Written blocks of the run become unwritten, that is zeros; holes stay holes. Changes at most about `budget` metadata
    /// blocks.
    pub fn mark_unwritten(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        run: Run,
        budget: u32,
    ) -> Result<(Progress, i64)> {
        if self.extents {
            crate::extent::set_unwritten(&self.context, handle, i_block, run, true, budget)
        } else {
            Err(no_extents())
        }
    }

    /// Frees the run's blocks, last first, changing at most about `budget` metadata blocks.
    pub fn remove(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        run: Run,
        budget: u32,
    ) -> Result<(Progress, i64)> {
        if self.extents {
            crate::extent::remove(&self.context, handle, i_block, run, budget)
        } else {
            crate::indirect::remove(&self.context, handle, i_block, run, budget)
        }
    }

    /// Begins to move everything from `from` on by `by` blocks: down onto a hole, or up.
    pub fn begin_shift(&self, i_block: &[u8; ROOT_BYTES], from: FileBlock, by: i64) -> Result<Shift> {
        if self.extents { Shift::new(&self.context, i_block, from, by) } else { Err(no_extents()) }
    }

    /// Goes on with a move, changing at most about `budget` metadata blocks.
    pub fn shift(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        shift: &mut Shift,
        budget: u32,
    ) -> Result<(Progress, i64)> {
        shift.step(&self.context, handle, i_block, budget)
    }

    /// Metadata blocks that inserting (or converting) `extents` runs may change, without the inode and the data's own
    /// bitmaps.
    pub fn credits_for_insert(&self, i_block: &[u8; ROOT_BYTES], extents: u32) -> Result<u32> {
        if self.extents {
            Ok(extents.saturating_mul(crate::extent::insert_credits(crate::extent::depth(&self.context, i_block)?)))
        } else {
            // Three levels at either end of a run, each with its bitmap and descriptor.
            Ok(extents.saturating_mul(18))
        }
    }

    /// Blocks a file with this map can have.
    #[must_use]
    pub fn max_file_block(&self) -> u64 {
        max_file_blocks(self.extents, self.context.layout.block_size)
    }
}

fn no_extents() -> crate::Error {
    cairn_vfs::Error::Unsupported("the file has no extents").into()
}

/// Blocks a file can have with either kind of map.
#[must_use]
pub fn max_file_blocks(extents: bool, block_size: u32) -> u64 {
    if extents { MAX_FILE_BLOCKS } else { indirect::max_blocks(block_size).min(MAX_FILE_BLOCKS) }
}

/// Blocks that are mapped in one handle at most: an extent's, or so many that the indirect blocks of a run, which may begin anywhere,
/// fit the credits (three of the lowest level, the two above them and the one above these).
#[must_use]
pub fn max_run(extents: bool, block_size: u32) -> u32 {
    if extents { crate::extent::MAX_WRITTEN_LEN } else { 2 * (block_size / 4) }
}

#[cfg(test)]
pub(crate) mod testing;
