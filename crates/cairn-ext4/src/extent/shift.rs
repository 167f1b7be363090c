//! Moves the extents behind a block up or down, for collapse-range and insert-range.
//!
//! It moves leaf by leaf, in the order that keeps the tree sorted, in as many handles as needed.
//! After every step the file is consistent and partly moved, as in Linux.

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;
use cairn_cache::status::State;

use super::path::Path;
use super::store::{Edit, coalesce};
use super::{insert_credits, lookup};
use crate::error::Result;
use crate::format::extent::{Extent, MAX_FILE_BLOCKS, ROOT_BYTES};
use crate::map::{MapContext, Progress};
use crate::txn::Handle;

/// A move in progress. The map must not change otherwise until it is done.
#[derive(Debug)]
pub(crate) struct Shift {
    /// The first block that moves.
    from: u64,
    by: i64,
    /// Moving down: the first block that has not moved. Moving up: the block after the last one
    /// that has not moved.
    at: u64,
}

impl Shift {
    /// Checks that all blocks from `from` on can move by `by` blocks: up, or down into a hole.
    ///
    /// # Errors
    /// [`cairn_vfs::Error::Invalid`] if the blocks would move before the start or onto mapped
    /// blocks, [`cairn_vfs::Error::TooLarge`] if they would move beyond the last possible block;
    /// the tree is damaged.
    pub(crate) fn new(
        context: &MapContext<'_>,
        i_block: &[u8; ROOT_BYTES],
        from: FileBlock,
        by: i64,
    ) -> Result<Self> {
        let from = from.get();
        if by < 0 {
            check_hole(context, i_block, from, by.unsigned_abs())?;
        } else if end(context, i_block)?.saturating_add(by.unsigned_abs()) > MAX_FILE_BLOCKS {
            return Err(cairn_vfs::Error::TooLarge.into());
        }
        Ok(Self { from, by, at: if by < 0 { from } else { MAX_FILE_BLOCKS } })
    }

    fn is_done(&self) -> bool {
        if self.by < 0 { self.at >= MAX_FILE_BLOCKS } else { self.at <= self.from }
    }

    /// Moves leaves. A call changes about `budget` metadata blocks and always makes progress. An
    /// extent that reaches across the start is split. Returns the number of blocks added (nodes).
    ///
    /// # Errors
    /// [`cairn_vfs::Error::NoSpace`] if no block is free for a node; the tree is damaged.
    pub(crate) fn step(
        &mut self,
        context: &MapContext<'_>,
        handle: &Handle,
        i_block: &mut [u8; ROOT_BYTES],
        budget: u32,
    ) -> Result<(Progress, i64)> {
        let mut edit = Edit { context, handle, root: i_block, blocks: 0 };
        let mut left = budget;
        let mut moved = false;
        while !self.is_done() {
            let path = Path::descend(
                context,
                edit.root,
                if self.by < 0 { self.at } else { self.at.saturating_sub(1) },
            )?;
            let cost = insert_credits(path.depth());
            if moved && left < cost {
                return Ok((Progress::More, edit.blocks));
            }
            let (next, run) = if self.by < 0 {
                (
                    path.upper,
                    Run { start: FileBlock(self.at), len: MAX_FILE_BLOCKS.saturating_sub(self.at) },
                )
            } else {
                (
                    path.lower,
                    Run { start: FileBlock(self.from), len: self.at.saturating_sub(self.from) },
                )
            };
            if edit.shift_leaf(path, run, self.by)? {
                (left, moved) = (left.saturating_sub(cost), true);
            }
            self.at = next;
        }
        Ok((Progress::Done, edit.blocks))
    }
}

fn check_hole(
    context: &MapContext<'_>,
    i_block: &[u8; ROOT_BYTES],
    from: u64,
    by: u64,
) -> Result<()> {
    let Some(mut at) = from.checked_sub(by) else {
        return Err(
            cairn_vfs::Error::Invalid("blocks cannot move before the start of the file").into()
        );
    };
    while at < from {
        let known = lookup(context, i_block, FileBlock(at))?;
        if known.state != State::Hole {
            return Err(
                cairn_vfs::Error::Invalid("the range that blocks move into is not empty").into()
            );
        }
        at = known.end();
    }
    Ok(())
}

/// The block after the last mapped one.
fn end(context: &MapContext<'_>, i_block: &[u8; ROOT_BYTES]) -> Result<u64> {
    let mut to = MAX_FILE_BLOCKS;
    while to > 0 {
        let path = Path::descend(context, i_block, to.saturating_sub(1))?;
        if let Some(last) = path.extents().last() {
            return Ok(last.end());
        }
        to = path.lower;
    }
    Ok(0)
}

impl Edit<'_> {
    /// Moves what the leaf maps in `run`. False if it maps nothing there.
    fn shift_leaf(&mut self, path: Path, run: Run, by: i64) -> Result<bool> {
        let (start, end) = (run.start.get(), run.start.get().saturating_add(run.len));
        let pieces = path.extents().iter().flat_map(|extent| {
            // The range was checked before anything moved.
            let moved = extent
                .clip(start, end)
                .map(|piece| Extent { start: piece.start.strict_add_signed(by), ..piece });
            [extent.clip(0, start), moved, extent.clip(end, u64::MAX)].into_iter().flatten()
        });
        let extents = coalesce(pieces);
        if extents == path.extents() {
            return Ok(false);
        }
        self.replace_leaf(path, extents, false)?;
        Ok(true)
    }
}
