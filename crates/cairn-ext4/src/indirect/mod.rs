//! Block maps of ext2 and ext3: finding, inserting and freeing runs.
//!
//! A walk has at most three levels and holds one pointer block at a time. The blocks of an
//! insertion are allocated before the first change.
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

mod insert;
mod remove;

use std::ops::Range;

use cairn_base::units::as_u64;
use cairn_base::{FileBlock, Pba};
use cairn_cache::status::{Extent as Known, State};

use crate::error::Result;
use crate::format::extent::ROOT_BYTES;
use crate::format::indirect::{DIRECT, SLOTS, decode, decode_inode, max_blocks, slot_range, span};
use crate::map::MapContext;

pub(crate) use insert::insert;
pub(crate) use remove::remove;

/// Direct pointers of the inode.
const DIRECT_SLOTS: usize = 12;
const _: () = assert!(as_u64(DIRECT_SLOTS) == DIRECT);

/// The run of data blocks or the hole at `block`, as far as one pointer block shows. Beyond the
/// last possible block there is one hole without end.
///
/// # Errors
/// A pointer block cannot be read, or a pointer is invalid.
pub(crate) fn lookup(
    context: &MapContext<'_>,
    i_block: &[u8; ROOT_BYTES],
    block: FileBlock,
) -> Result<Known> {
    let size = context.layout.block_size;
    let slots = decode_inode(i_block);
    let at = block.get();
    let hole = |start: u64, end: u64| Known {
        start: FileBlock(start),
        len: end.saturating_sub(start),
        state: State::Hole,
    };
    if at >= max_blocks(size) {
        return Ok(hole(max_blocks(size), u64::MAX));
    }
    if at < DIRECT {
        return run_at(context, Pba(0), slots.split_at(DIRECT_SLOTS).0, 0, at);
    }
    let slot = (12..SLOTS).rev().find(|slot| slot_range(*slot, size).1 <= at).unwrap_or(12);
    let (mut level, mut base) = slot_range(slot, size);
    let mut pointer = slots.get(slot).copied().unwrap_or(0);
    if pointer == 0 {
        return Ok(hole(base, base.saturating_add(span(level, size))));
    }
    loop {
        let (pba, pointers) = load(context, pointer, at)?;
        if level == 1 {
            return run_at(context, pba, &pointers, base, at);
        }
        level = level.saturating_sub(1);
        let each = span(level, size);
        let index = index_of(at.saturating_sub(base), each);
        pointer = pointers.get(index).copied().unwrap_or(0);
        if pointer == 0 {
            let zeros = pointers.iter().skip(index).take_while(|pointer| **pointer == 0).count();
            let start = first_of(base, index, each);
            return Ok(hole(start, first_of(start, zeros, each)));
        }
        base = first_of(base, index, each);
    }
}

/// The run at `at` in an array of data pointers whose first one maps file block `base`.
fn run_at(
    context: &MapContext<'_>,
    pba: Pba,
    pointers: &[u32],
    base: u64,
    at: u64,
) -> Result<Known> {
    let mut rest = pointers.iter().skip(index_of(at.saturating_sub(base), 1)).copied();
    let first = rest.next().unwrap_or(0);
    let mut len = 1_u64;
    if first == 0 {
        len = len.saturating_add(as_u64(rest.take_while(|pointer| *pointer == 0).count()));
        return Ok(Known { start: FileBlock(at), len, state: State::Hole });
    }
    while rest
        .next()
        .is_some_and(|pointer| u64::from(pointer) == u64::from(first).saturating_add(len))
    {
        len = len.saturating_add(1);
    }
    let start = Pba(u64::from(first));
    if !context.bounds().holds(start, len) {
        return Err(context
            .site(pba)
            .corrupt(at, "data block outside the volume or in its metadata", start.get())
            .into());
    }
    Ok(Known { start: FileBlock(at), len, state: State::Mapped(start) })
}

fn index_of(offset: u64, each: u64) -> usize {
    usize::try_from(offset.checked_div(each).unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// The first file block of entry `index` of an array whose first entry maps `base`.
fn first_of(base: u64, index: usize, each: u64) -> u64 {
    as_u64(index).saturating_mul(each).saturating_add(base)
}

/// Reads a block of pointers.
fn load(context: &MapContext<'_>, pointer: u32, at: u64) -> Result<(Pba, Vec<u32>)> {
    let pba = Pba(u64::from(pointer));
    if !context.bounds().holds(pba, 1) {
        return Err(context
            .site(pba)
            .corrupt(at, "block of pointers outside the volume or in its metadata", pba.get())
            .into());
    }
    Ok((pba, decode(&context.buffers.get(pba)?.image())))
}

/// The entries of an array that map a part of `range`. The first entry maps `base`, and each maps
/// `each` blocks.
fn entries(base: u64, each: u64, count: usize, range: &Range<u64>) -> Range<usize> {
    let end = first_of(base, count, each);
    let (from, to) = (range.start.clamp(base, end), range.end.clamp(base, end));
    if from >= to {
        return 0..0;
    }
    let index = |block: u64| index_of(block.saturating_sub(base), each);
    index(from)..index(to.saturating_sub(1)).saturating_add(1)
}

#[cfg(test)]
mod tests;
