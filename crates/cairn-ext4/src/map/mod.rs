//! The block map of one file: an extent tree, or the block pointers of ext2 and ext3.
//!
//! All functions change the inode's `i_block` bytes. The caller holds the inode's MAPPING lock and
//! writes the bytes to the inode table in the same handle. The signed results are blocks added to
//! the file, both of data and of the map, for `i_blocks`. After an error nothing has been allocated
//! or freed, unless the device or the journal failed; the volume then stops.
//!
//! Locking: allocator and buffer locks are taken, and none is held on return.

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
pub(crate) use context::{MapContext, NoSource, Progress};

/// The block map of one file, of either kind.
#[derive(Clone, Copy)]
pub(crate) struct BlockMap<'a> {
    context: MapContext<'a>,
    extents: bool,
}

impl<'a> BlockMap<'a> {
    /// Creates the map of a file. `extents` is the inode's EXTENTS flag.
    #[must_use]
    pub(crate) const fn new(context: MapContext<'a>, extents: bool) -> Self {
        Self { context, extents }
    }

    /// The extent that holds `block`, or the hole around it as far as one leaf or pointer block
    /// shows.
    ///
    /// # Errors
    /// A block of the map cannot be read, or is invalid.
    pub(crate) fn lookup(&self, i_block: &[u8; ROOT_BYTES], block: FileBlock) -> Result<Extent> {
        if self.extents {
            crate::extent::lookup(&self.context, i_block, block)
        } else {
            crate::indirect::lookup(&self.context, i_block, block)
        }
    }

    /// Maps a hole to blocks that are marked in use.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoSpace`] if no block is free for the map,
    /// [`cairn_vfs::Error::TooLarge`] beyond the last possible block; the map is damaged.
    pub(crate) fn insert(
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

    /// Makes unwritten blocks of the run written. Holes stay holes. Changes about `budget` metadata
    /// blocks.
    ///
    /// # Errors
    /// As [`BlockMap::insert`].
    pub(crate) fn convert_written(
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

    /// Makes written blocks of the run unwritten, so that they read as zeros. Holes stay holes.
    /// Changes about `budget` metadata blocks.
    ///
    /// # Errors
    /// As [`BlockMap::insert`]; [`cairn_vfs::Error::Unsupported`] if the file has no extents.
    pub(crate) fn mark_unwritten(
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

    /// Frees blocks of the run from its end backwards. Changes about `budget` metadata blocks.
    ///
    /// # Errors
    /// As [`BlockMap::insert`].
    pub(crate) fn remove(
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

    /// Prepares to move all blocks from `from` on by `by` blocks: down into a hole, or up.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Unsupported`] if the file has no extents; otherwise as `Shift::new`.
    pub(crate) fn begin_shift(
        &self,
        i_block: &[u8; ROOT_BYTES],
        from: FileBlock,
        by: i64,
    ) -> Result<Shift> {
        if self.extents { Shift::new(&self.context, i_block, from, by) } else { Err(no_extents()) }
    }

    /// Continues a move. Changes about `budget` metadata blocks.
    ///
    /// # Errors
    /// As `Shift::step`.
    pub(crate) fn shift(
        &self,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        shift: &mut Shift,
        budget: u32,
    ) -> Result<(Progress, i64)> {
        shift.step(&self.context, handle, i_block, budget)
    }
}

fn no_extents() -> crate::Error {
    cairn_vfs::Error::Unsupported("the file has no extents").into()
}

/// Most blocks of a file with this kind of map.
#[must_use]
pub(crate) fn max_file_blocks(extents: bool, block_size: u32) -> u64 {
    if extents { MAX_FILE_BLOCKS } else { indirect::max_blocks(block_size).min(MAX_FILE_BLOCKS) }
}

/// Largest size of a file with this kind of map, in bytes.
#[must_use]
pub(crate) fn max_file_size(extents: bool, block_size: u32) -> u64 {
    max_file_blocks(extents, block_size).saturating_mul(block_size.into()).min(i64::MAX as u64)
}

/// Most blocks that are mapped in one handle: those of an extent, or as many as need six pointer
/// blocks for a run that begins anywhere (three of the lowest level, two above them and one above
/// these).
#[must_use]
pub(crate) fn max_run(extents: bool, block_size: u32) -> u32 {
    if extents { crate::extent::MAX_WRITTEN_LEN } else { 2 * (block_size / 4) }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
