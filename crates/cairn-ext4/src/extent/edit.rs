//! Inserts, converts and frees runs.

use cairn_base::Pba;
use cairn_cache::mapper::Run;

use super::insert_credits;
use super::path::Path;
use super::store::{Edit, coalesce};
use crate::error::Result;
use crate::format::extent::{Extent, MAX_FILE_BLOCKS, MAX_UNWRITTEN, ROOT_BYTES};
use crate::map::{Budget, MapContext, Progress};
use crate::space::Freed;
use crate::txn::Handle;

/// Longest run inserted at once: its extents fit into one split of the smallest node.
const MAX_INSERT: u64 = 64 * MAX_UNWRITTEN;

/// Maps the hole `run` to the blocks from `pba` on, which are marked in use. Returns the number of
/// blocks added.
///
/// # Errors
/// [`cairn_vfs::Error::NoSpace`] if no block is free for a node, [`cairn_vfs::Error::TooLarge`]
/// beyond the last possible block; the tree is damaged or maps the run already.
pub(crate) fn insert(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    run: Run,
    pba: Pba,
    unwritten: bool,
) -> Result<i64> {
    assert!((1..=MAX_INSERT).contains(&run.len), "a run of {} blocks is inserted at once", run.len);
    let new = Extent { start: run.start.get(), len: run.len, pba, unwritten };
    if run.start.get().checked_add(run.len).is_none_or(|end| end > MAX_FILE_BLOCKS) {
        return Err(cairn_vfs::Error::TooLarge.into());
    }
    assert!(
        context.bounds().holds(pba, run.len),
        "blocks outside the volume and its own are never mapped"
    );
    let path = Path::descend(context, i_block, new.start)?;
    let mut extents = path.extents().to_vec();
    let at = extents.partition_point(|extent| extent.start < new.start);
    let before = at.checked_sub(1).and_then(|before| extents.get(before)).map_or(0, Extent::end);
    let after = extents.get(at).map_or(path.upper, |extent| extent.start);
    if before > new.start || after < new.end() {
        let leaf = path.steps.last().map_or(Pba(0), |leaf| leaf.pba);
        return Err(context
            .site(leaf)
            .corrupt(new.start, "blocks to be mapped are mapped already", run.len)
            .into());
    }
    let appended = at == extents.len();
    extents.insert(at, new);
    let mut edit = Edit { context, handle, root: i_block, blocks: 0 };
    edit.replace_leaf(path, coalesce(extents), appended)?;
    Ok(edit.blocks.saturating_add(new.len.cast_signed()))
}

/// Makes the mapped blocks of `run` written or unwritten, from the first leaf on. Holes stay holes.
/// A call changes about `budget` metadata blocks and always makes progress. Returns the number of
/// blocks added (nodes).
///
/// # Errors
/// [`cairn_vfs::Error::NoSpace`] if no block is free for a node; the tree is damaged.
pub(crate) fn set_unwritten(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    run: Run,
    unwritten: bool,
    budget: u32,
) -> Result<(Progress, i64)> {
    let (start, end) = range(run);
    let mut edit = Edit { context, handle, root: i_block, blocks: 0 };
    let (mut at, mut left, mut changed) = (start, budget, false);
    while at < end {
        let path = Path::descend(context, edit.root, at)?;
        let next = path.upper;
        let differs =
            |extent: &Extent| extent.unwritten != unwritten && extent.clip(start, end).is_some();
        if path.extents().iter().any(differs) {
            let cost = insert_credits(path.depth());
            if changed && left < cost {
                return Ok((Progress::More, edit.blocks));
            }
            (left, changed) = (left.saturating_sub(cost), true);
            let pieces = path.extents().iter().flat_map(|extent| {
                let inside = extent.clip(start, end).map(|piece| Extent { unwritten, ..piece });
                [extent.clip(0, start), inside, extent.clip(end, u64::MAX)].into_iter().flatten()
            });
            let extents = coalesce(pieces);
            edit.replace_leaf(path, extents, false)?;
        }
        at = next;
    }
    Ok((Progress::Done, edit.blocks))
}

/// Frees the blocks of `run` from its end backwards. A call changes about `budget` metadata
/// blocks and always makes progress. Returns the number of blocks added, which is negative.
///
/// # Errors
/// The tree is damaged. [`cairn_vfs::Error::NoSpace`] if an extent is split and no block is free
/// for a node.
pub(crate) fn remove(
    context: &MapContext<'_>,
    handle: &Handle,
    i_block: &mut [u8; ROOT_BYTES],
    run: Run,
    budget: u32,
) -> Result<(Progress, i64)> {
    let (start, end) = range(run);
    let mut budget = Budget::new(context.layout, budget);
    let mut edit = Edit { context, handle, root: i_block, blocks: 0 };
    let mut to = end;
    while start < to {
        let path = Path::descend(context, edit.root, to.saturating_sub(1))?;
        let lower = path.lower;
        if path.extents().iter().any(|extent| extent.clip(start, to).is_some()) {
            if !budget.set_aside(insert_credits(path.depth())) {
                return Ok((Progress::More, edit.blocks));
            }
            let from = edit.remove_from_leaf(path, start, to, &mut budget)?;
            if from > start.max(lower) {
                return Ok((Progress::More, edit.blocks));
            }
        }
        to = lower;
    }
    Ok((Progress::Done, edit.blocks))
}

impl Edit<'_> {
    /// Frees what the leaf maps in `start..to`, from the end as far as the budget allows. Returns
    /// the first freed block.
    fn remove_from_leaf(
        &mut self,
        path: Path,
        start: u64,
        to: u64,
        budget: &mut Budget<'_>,
    ) -> Result<u64> {
        let mut from = start;
        let mut freed = Vec::new();
        for extent in path.extents().iter().rev() {
            let Some(piece) = extent.clip(start, to) else { continue };
            let len = budget.afford(piece.pba, piece.len);
            let begin = piece.end().saturating_sub(len);
            freed.extend(piece.clip(begin, piece.end()));
            if len < piece.len {
                from = begin;
                break;
            }
        }
        let kept = path
            .extents()
            .iter()
            .flat_map(|extent| [extent.clip(0, from), extent.clip(to, u64::MAX)]);
        let extents = coalesce(kept.flatten());
        self.replace_leaf(path, extents, false)?;
        for piece in freed {
            self.blocks = self.blocks.saturating_sub_unsigned(piece.len);
            self.context.source.free(self.handle, piece.pba, piece.len, Freed::Data)?;
        }
        Ok(from)
    }
}

fn range(run: Run) -> (u64, u64) {
    let start = run.start.get().min(MAX_FILE_BLOCKS);
    (start, run.start.get().saturating_add(run.len).min(MAX_FILE_BLOCKS))
}
