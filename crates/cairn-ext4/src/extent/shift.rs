//! Moving the extents behind a point up or down, for collapse-range and insert-range.
//!
//! All of it happens in one handle: a file is never half moved after a crash.

use cairn_base::FileBlock;
use cairn_cache::mapper::Run;

use super::edit::more_credits;
use super::path::Path;
use super::store::{Edit, coalesce};
use super::{insert_credits, lookup};
use crate::error::Result;
use crate::format::extent::{Extent, MAX_FILE_BLOCKS, ROOT_BYTES};
use crate::map::MapContext;
use crate::status::State;
use crate::txn::Handle;

/// Metadata blocks that [`shift`] may change, without the inode.
pub fn shift_credits(context: &MapContext<'_>, i_block: &[u8; ROOT_BYTES], from: FileBlock) -> Result<u32> {
    let mut credits = 0_u32;
    let mut at = from.get();
    while at < MAX_FILE_BLOCKS {
        let path = Path::descend(context, i_block, at)?;
        // Only the leaf at `from` may split; each other one is rewritten with the nodes above it.
        let leaf = if credits == 0 { insert_credits(path.depth()) } else { u32::from(path.depth()) };
        credits = credits.saturating_add(leaf);
        at = path.upper;
    }
    Ok(credits)
}

/// Moves everything from `from` on by `by` blocks: up, or down onto a hole. An extent that reaches across `from` is cut.
/// Returns the blocks added (nodes).
pub fn shift(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    from: FileBlock,
    by: i64,
) -> Result<i64> {
    let from = from.get();
    if by < 0 {
        check_hole(context, i_block, from, by.unsigned_abs())?;
    } else if end(context, i_block)?.saturating_add(by.unsigned_abs()) > MAX_FILE_BLOCKS {
        return Err(cairn_vfs::Error::TooLarge.into());
    }
    more_credits(handle, shift_credits(context, i_block, FileBlock(from))?)?;
    let mut edit = Edit { context, handle, root: i_block, blocks: 0 };
    // Leaves move in the order that keeps the tree sorted after each.
    if by < 0 {
        edit.shift_down(from, by)?
    } else {
        edit.shift_up(from, by)?
    }
    Ok(edit.blocks)
}

fn check_hole(context: &MapContext<'_>, i_block: &[u8; ROOT_BYTES], from: u64, by: u64) -> Result<()> {
    let Some(mut at) = from.checked_sub(by) else {
        return Err(cairn_vfs::Error::Invalid("blocks cannot move before the start of the file").into());
    };
    while at < from {
        let known = lookup(context, i_block, FileBlock(at))?;
        if known.state != State::Hole {
            return Err(cairn_vfs::Error::Invalid("the range that blocks move into is not empty").into());
        }
        at = known.end();
    }
    Ok(())
}

/// The block after the last mapped one.
fn end(context: &MapContext<'_>, i_block: &[u8; ROOT_BYTES]) -> Result<u64> {
    let mut to = MAX_FILE_BLOCKS;
    while to > 0 {
        let path = Path::descend(context, i_block, to - 1)?;
        if let Some(last) = path.extents().last() {
            return Ok(last.end());
        }
        to = path.lower;
    }
    Ok(0)
}

impl Edit<'_> {
    fn shift_down(&mut self, from: u64, by: i64) -> Result<()> {
        let mut at = from;
        while at < MAX_FILE_BLOCKS {
            let path = Path::descend(self.context, self.root, at)?;
            let next = path.upper;
            self.shift_leaf(path, Run { start: FileBlock(at), len: MAX_FILE_BLOCKS - at }, by)?;
            at = next;
        }
        Ok(())
    }

    fn shift_up(&mut self, from: u64, by: i64) -> Result<()> {
        let mut to = MAX_FILE_BLOCKS;
        while to > from {
            let path = Path::descend(self.context, self.root, to - 1)?;
            let next = path.lower;
            self.shift_leaf(path, Run { start: FileBlock(from), len: to - from }, by)?;
            to = next;
        }
        Ok(())
    }

    fn shift_leaf(&mut self, path: Path, run: Run, by: i64) -> Result<()> {
        let (start, end) = (run.start.get(), run.start.get() + run.len);
        let pieces = path.extents().iter().flat_map(|extent| {
            let moved = extent.clip(start, end).map(|piece| Extent {
                start: piece.start.checked_add_signed(by).expect("checked before anything moved"),
                ..piece
            });
            [extent.clip(0, start), moved, extent.clip(end, u64::MAX)].into_iter().flatten()
        });
        let extents = coalesce(pieces);
        if extents == path.extents() {
            return Ok(());
        }
        self.replace_leaf(path, extents, false)
    }
}
