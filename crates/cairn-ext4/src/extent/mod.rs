//! Extent trees: finding, inserting, converting, freeing and moving runs of a file.
//!
//! A change has three steps: find the leaf (`path`), compute its new entries, store them (`store`).
//! The last step splits, grows, frees and collapses nodes. Invariant: each key of an inner node
//! equals the first entry of its child, as Linux requires. All blocks are allocated before the
//! first change, so a full volume leaves the tree unchanged.
//!
//! Locking: the caller holds the inode's MAPPING lock. No buffer is locked while blocks are
//! allocated or freed.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used
    )
)]

mod edit;
mod path;
mod shift;
mod store;

use cairn_base::units::{as_index, as_u64};
use cairn_base::{FileBlock, Pba};
use cairn_cache::status::{Extent as Known, State};

use crate::error::Result;
use crate::format::extent::{
    Found, MAX_FILE_BLOCKS, MAX_UNWRITTEN, MAX_WRITTEN, Node, NodeView, ROOT_BYTES,
};
use crate::map::MapContext;

pub(crate) use edit::{insert, remove, set_unwritten};
pub(crate) use shift::Shift;

/// Longest written extent, in blocks.
pub(crate) const MAX_WRITTEN_LEN: u32 = 32768;
/// Longest unwritten extent, in blocks.
pub(crate) const MAX_UNWRITTEN_LEN: u32 = 32767;
const _: () = assert!(as_u64(as_index(MAX_WRITTEN_LEN)) == MAX_WRITTEN);
const _: () = assert!(as_u64(as_index(MAX_UNWRITTEN_LEN)) == MAX_UNWRITTEN);

/// Initialises the root of a file without extents.
pub(crate) fn initialize(i_block: &mut [u8; ROOT_BYTES]) {
    Node::empty().encode_root(i_block);
}

/// Most metadata blocks that an insertion or conversion changes in a tree of `depth`, without the
/// inode: every node of the path, and for each level a new block with its bitmap and descriptor.
#[must_use]
pub(crate) fn insert_credits(depth: u16) -> u32 {
    u32::from(depth).saturating_mul(4).saturating_add(3)
}

/// The extent that holds `block`, or the largest hole that its leaf shows. Beyond the last possible
/// block there is one hole without end.
///
/// # Errors
/// A node cannot be read, or is invalid.
pub(crate) fn lookup(
    context: &MapContext<'_>,
    i_block: &[u8; ROOT_BYTES],
    block: FileBlock,
) -> Result<Known> {
    let at = block.get();
    if at >= MAX_FILE_BLOCKS {
        return Ok(Known {
            start: FileBlock(MAX_FILE_BLOCKS),
            len: u64::MAX - MAX_FILE_BLOCKS,
            state: State::Hole,
        });
    }
    let mut bounds = context.bounds();
    let site = context.site(Pba(0));
    let root = NodeView::parse(i_block, None, site)?;
    let mut depth = root.depth();
    let mut found = root.find(at, &bounds, site)?;
    loop {
        match found {
            Found::Extent(extent) => {
                let state = if extent.unwritten {
                    State::Unwritten(extent.pba)
                } else {
                    State::Mapped(extent.pba)
                };
                return Ok(Known { start: FileBlock(extent.start), len: extent.len, state });
            }
            Found::Hole { start, end } => {
                return Ok(Known {
                    start: FileBlock(start),
                    len: end.saturating_sub(start),
                    state: State::Hole,
                });
            }
            Found::Child(index, inside) => {
                // The parser refuses children of a node of depth 0.
                depth = depth.saturating_sub(1);
                bounds = inside;
                let site = context.site(index.child);
                let image = path::read(context, index.child, depth, &bounds)?;
                found = NodeView::parse(&image, Some(depth), site)?.find(at, &bounds, site)?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
