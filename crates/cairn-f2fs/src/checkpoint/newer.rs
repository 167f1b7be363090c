//! The checkpoint pack that is not used: it must not be a newer one that was damaged later.
//!
//! A power cut leaves an incomplete pack, which is sound. But a pack's last block is written after
//! everything else is on the medium, and it equals the first one. The pack was complete once if its
//! last block is newer than the checkpoint in use, or differs from a newer first block in so little
//! that a torn write cannot explain it.

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

use std::sync::Arc;

use cairn_base::Pba;
use cairn_base::units::stored;
use cairn_block::BlockDevice;
use cairn_cache::block::{BufferCache, Image};
use cairn_cache::budget::Budget;

use super::read::{Loaded, block_of_pack, head_of_pack, load};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::block::put;
use crate::format::checkpoint::{self, Checkpoint, Stamp, with_usual_checksum};
use crate::format::layout::{Layout, Side};
use crate::format::pack::PackMap;
use crate::format::units::{BLOCK_SIZE, BLOCKS_PER_SEGMENT};

/// A newer pack that is damaged.
#[derive(Clone, Debug)]
pub(crate) struct Damaged {
    /// Its first block.
    pub(crate) start: Pba,
    /// Its last block.
    pub(crate) end: Pba,
    /// Its version.
    pub(crate) version: u64,
    /// The blocks that are damaged and their right contents, if an end of the pack shows them.
    pub(crate) mended: Vec<(Pba, Image)>,
    /// Only a volume of which nothing is lost with them shows that they are right.
    pub(crate) is_doubtful: bool,
}

/// Versions that a pack which was written later may have. What is beyond them is damage.
const LATER: u64 = 1 << 16;

impl Damaged {
    fn new((start, end): (Pba, Pba), version: u64, mended: Vec<(Pba, Image)>) -> Self {
        Self { start, end, version, mended, is_doubtful: false }
    }
}

/// What is said of a volume that is read-only for the sake of a newer pack.
pub(crate) const WHY_READ_ONLY: &str = "the newest checkpoint is damaged, and a write would \
    destroy what is left of it: check and repair the volume; a repair restores it, or, with \
    losses, goes on from the checkpoint before it";

/// Why a volume with a newer pack that is damaged is read-only: a checkpoint that is written now
/// would overwrite what is left of it. Warns of it, too.
pub(crate) fn read_only_reason(
    buffers: &BufferCache,
    layout: &Layout,
    loaded: &Loaded,
) -> Option<&'static str> {
    // Whether the pack can be read concerns nobody but the check.
    let found = damaged(buffers, layout, loaded).ok().flatten()?;
    let (block, version, used) = (found.start, found.version, loaded.checkpoint.version);
    tracing::warn!(%block, version, used, "the newest checkpoint is damaged: the one before it is \
        used, so later changes are missing: check and repair the volume");
    Some(WHY_READ_ONLY)
}

/// Memory for the blocks of the packs when an error is explained.
const BUDGET: u64 = 4 << 20;

/// The error for which a volume is not opened, with the damage of the newest pack as its reason, if
/// there is such damage. Blocks that only the older pack uses are free since the newest one was
/// written, so they may have been discarded or overwritten.
pub(crate) fn explained(error: Error, device: &Arc<dyn BlockDevice>, layout: &Layout) -> Error {
    let why = match error {
        Error::Corrupt(why) if !matches!(why, Corrupt::NewestPack { .. }) => why,
        error => return error,
    };
    let buffers = BufferCache::new(device.clone(), stored(BLOCK_SIZE), Budget::new(BUDGET));
    let found = match load(&buffers, layout) {
        Ok(loaded) => damaged(&buffers, layout, &loaded),
        Err(Error::Corrupt(_)) => damaged_beside_none(&buffers, layout),
        Err(_) => return why.into(),
    };
    // Without such a pack, or if the device fails, the error is what there is to say.
    let Ok(Some(found)) = found else { return why.into() };
    let is_restorable = !found.mended.is_empty() && !found.is_doubtful;
    let block = found.start.get();
    Corrupt::NewestPack { block, is_restorable, why: Box::new(why) }.into()
}

/// The newer pack that is damaged.
///
/// # Errors
/// The device failed.
pub(crate) fn damaged(
    buffers: &BufferCache,
    layout: &Layout,
    loaded: &Loaded,
) -> Result<Option<Damaged>> {
    let side = loaded.side.other();
    let start = layout.pack_start(side);
    let first = stamp(buffers, start)?;
    if let Some(first) = first
        && let Some(found) = compared(buffers, layout, loaded, (side, first))?
    {
        return Ok(Some(found));
    }
    if first.is_none()
        && let Some(found) = misplaced(buffers, layout, loaded, side)?
    {
        return Ok(Some(found));
    }
    match first {
        Some(first) if !is_newer(loaded, first.version) => Ok(None),
        _ => found_by_last(buffers, loaded, start),
    }
}

/// The pack, if its first block has a right checksum and its last one is a damaged copy of it, or
/// the other way round.
fn compared(
    buffers: &BufferCache,
    layout: &Layout,
    loaded: &Loaded,
    (side, first): (Side, Stamp),
) -> Result<Option<Damaged>> {
    let start = layout.pack_start(side);
    let head = head_of_pack(buffers, layout, side)?;
    let decoded = Checkpoint::decode(&head, start.get(), layout);
    let map = decoded.and_then(|checkpoint| PackMap::of(&checkpoint, layout));
    let Ok(map) = map else { return Ok(None) };
    let end = block_of_pack(layout, side, map.last());
    let (head, last) = (buffers.get(start)?.image(), buffers.get(end)?.image());
    if !checkpoint::is_damaged_copy(&head, &last) {
        return Ok(None);
    }
    let next = loaded.checkpoint.version.wrapping_add(1);
    let other = stamp(buffers, end)?.map(|stamp| stamp.version);
    let other = other.filter(|other| is_newer(loaded, *other));
    // Each checkpoint's version is that of the one before it and 1.
    let by_first = is_newer(loaded, first.version) && other != Some(next);
    Ok(match (by_first, other) {
        (true, _) => {
            let mended = vec![(end, head)];
            Some(Damaged::new((start, end), first.version, mended))
        }
        (false, Some(version)) => Some(Damaged::new((start, end), version, vec![(start, last)])),
        (false, None) => None,
    })
}

/// The newest pack if no pack can be used: one of its ends has a right checksum, the other is a
/// damaged copy of it or a first block that is lost, and what is left of the other pack is older.
///
/// # Errors
/// The device failed.
pub(crate) fn damaged_beside_none(
    buffers: &BufferCache,
    layout: &Layout,
) -> Result<Option<Damaged>> {
    let starts = [Side::First, Side::Second].map(|side| layout.pack_start(side));
    let [one, two] = starts.map(|start| Ok::<_, Error>((start, stamps(buffers, start)?)));
    let (one, two) = (one?, two?);
    for ((start, own), (_, others)) in [(&one, &two), (&two, &one)] {
        let Some((at, newest)) = own.iter().max_by_key(|(_, stamp)| stamp.version) else {
            continue;
        };
        let other_end = match block(*start, newest.total_blocks.saturating_sub(1)) {
            end if at == start => end,
            end if *at == end => *start,
            _ => continue,
        };
        // What is left of older packs is behind the end of this one.
        let others = others.iter().map(|(_, other)| other.version).max();
        if others != Some(newest.version.wrapping_sub(1))
            || newest.total_blocks > BLOCKS_PER_SEGMENT
        {
            continue;
        }
        let (right, other) = (buffers.get(*at)?.image(), buffers.get(other_end)?.image());
        let is_copy = checkpoint::is_damaged_copy(&right, &other);
        if is_copy || is_lost_head((other_end, &other), *start, newest.version) {
            let (end, mended) = (Pba(other_end.get().max(at.get())), vec![(other_end, right)]);
            let found = Damaged::new((*start, end), newest.version, mended);
            return Ok(Some(Damaged { is_doubtful: !is_copy, ..found }));
        }
    }
    Ok(None)
}

/// Is a damaged block the first one of a pack whose last one is whole, and so all between them? It
/// may be what a power cut has left of a later pack in the same place.
fn is_lost_head((at, block): (Pba, &[u8]), start: Pba, version: u64) -> bool {
    let later = checkpoint::stored_version(block).wrapping_sub(version);
    at == start && !(1..=LATER).contains(&later)
}

/// What each block of a pack's segment says that is a checkpoint with a right checksum.
fn stamps(buffers: &BufferCache, start: Pba) -> Result<Vec<(Pba, Stamp)>> {
    buffers.prefetch(start, BLOCKS_PER_SEGMENT.into());
    let mut found = Vec::new();
    for at in (0..BLOCKS_PER_SEGMENT).map(|offset| block(start, offset)) {
        found.extend(stamp(buffers, at)?.map(|stamp| (at, stamp)));
    }
    Ok(found)
}

/// The pack, if both ends are newer and name a wrong place for their checksum.
fn misplaced(
    buffers: &BufferCache,
    layout: &Layout,
    loaded: &Loaded,
    side: Side,
) -> Result<Option<Damaged>> {
    let start = layout.pack_start(side);
    let mut head = head_of_pack(buffers, layout, side)?;
    let right = head.first_chunk::<BLOCK_SIZE>().and_then(|head| with_usual_checksum(head));
    let Some(right) = right else { return Ok(None) };
    put(&mut head, 0, &right);
    let decoded = Checkpoint::decode(&head, start.get(), layout);
    let decoded = decoded.and_then(|found| Ok((PackMap::of(&found, layout)?, found.version)));
    let Ok((map, version)) = decoded else { return Ok(None) };
    let end = block_of_pack(layout, side, map.last());
    let last = with_usual_checksum(&buffers.get(end)?.image());
    if last.as_ref() != Some(&right) || !is_newer(loaded, version) {
        return Ok(None);
    }
    let image = Image::from(right);
    let mended = vec![(start, image.clone()), (end, image)];
    Ok(Some(Damaged::new((start, end), version, mended)))
}

/// The pack with a newer last block, wherever its first block says that it is. If the last block
/// says so itself, the first one is to be the same.
fn found_by_last(buffers: &BufferCache, loaded: &Loaded, start: Pba) -> Result<Option<Damaged>> {
    buffers.prefetch(block(start, 1), BLOCKS_PER_SEGMENT.saturating_sub(1).into());
    for offset in 1..BLOCKS_PER_SEGMENT {
        let end = block(start, offset);
        let Some(found) = stamp(buffers, end)?.filter(|found| is_newer(loaded, found.version))
        else {
            continue;
        };
        let mended = match found.total_blocks == offset.saturating_add(1) {
            true => vec![(start, buffers.get(end)?.image())],
            false => Vec::new(),
        };
        return Ok(Some(Damaged::new((start, end), found.version, mended)));
    }
    Ok(None)
}

fn block(start: Pba, offset: u32) -> Pba {
    Pba(start.get().saturating_add(offset.into()))
}

/// What a checkpoint block says, if its checksum is right.
fn stamp(buffers: &BufferCache, at: Pba) -> Result<Option<Stamp>> {
    let image = buffers.get(at)?.image();
    Ok(checkpoint::verify(&image, at.get()).ok())
}

fn is_newer(loaded: &Loaded, version: u64) -> bool {
    version.wrapping_sub(loaded.checkpoint.version).cast_signed() > 0
}
