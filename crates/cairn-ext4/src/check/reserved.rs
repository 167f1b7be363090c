//! The number of blocks that are reserved, where the superblock reserves more than half of them.

use super::state::State;
use crate::format::superblock::{SIZE, Superblock};

/// Of a hundred blocks, as many as mke2fs reserves.
const USUAL: u64 = 5;
/// Of a hundred blocks, as many as can be reserved.
const MOST: u64 = 50;

/// The right number: that of the first backup; else that with one bit changed, by which it is a
/// percentage, that of mke2fs first; else that of mke2fs.
pub(super) fn right(state: &State, stored: u64) -> u64 {
    let all = state.layout.blocks_count;
    let of = |percent: u64| all.saturating_mul(percent) / 100;
    let possible = |blocks: &u64| *blocks <= all / 2;
    if let Some(copied) = of_backup(state).filter(possible) {
        return copied;
    }
    let usual = of(USUAL);
    let near: Vec<u64> = (0..u64::BITS).map(|bit| stored ^ 1 << bit).filter(possible).collect();
    if near.contains(&usual) {
        return usual;
    }
    let whole = (0..=MOST).map(of).filter(|blocks| near.contains(blocks));
    let whole: Vec<u64> = whole.collect();
    match (&*whole, &*near) {
        (&[only], _) | (_, &[only]) => only,
        _ => near.into_iter().min_by_key(|blocks| blocks.abs_diff(usual)).unwrap_or(usual),
    }
}

/// The number that the first backup has.
fn of_backup(state: &State) -> Option<u64> {
    let layout = &state.layout;
    let group = (1..layout.groups).find(|group| layout.backups(*group))?;
    let block = state.source.block(layout.superblock_block(group)).ok()?;
    let copy = Superblock::decode(block.get(..SIZE)?).ok()?;
    (copy.uuid() == state.superblock.uuid()).then(|| copy.reserved_blocks())
}
