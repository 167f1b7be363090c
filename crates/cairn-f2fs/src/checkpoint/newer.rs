//! The checkpoint pack that is not used: it must not be a newer one that was damaged later.
//!
//! A power cut leaves an incomplete pack, which is sound. But a pack's last block is written after
//! everything else is on the medium: if it is newer than the checkpoint in use, the pack was
//! complete once.

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

use cairn_base::Pba;
use cairn_cache::block::BufferCache;

use super::read::Loaded;
use crate::error::Result;
use crate::format::checkpoint::{self, Stamp};
use crate::format::layout::Layout;
use crate::format::units::BLOCKS_PER_SEGMENT;

/// Where a newer pack that is damaged begins, and its version.
///
/// # Errors
/// The device failed.
pub(crate) fn damaged(
    buffers: &BufferCache,
    layout: &Layout,
    loaded: &Loaded,
) -> Result<Option<(Pba, u64)>> {
    let start = layout.pack_start(loaded.side.other());
    let last = match stamp(buffers, start)? {
        Some(first) if !is_newer(loaded, &first) => None,
        _ => find_last(buffers, loaded, start)?,
    };
    Ok(last.map(|last| (start, last.version)))
}

/// The last block of a newer pack, wherever its first block says that it is.
fn find_last(buffers: &BufferCache, loaded: &Loaded, start: Pba) -> Result<Option<Stamp>> {
    buffers.prefetch(block(start, 1), BLOCKS_PER_SEGMENT.saturating_sub(1).into());
    for offset in 1..BLOCKS_PER_SEGMENT {
        let found = stamp(buffers, block(start, offset))?;
        if let Some(found) = found.filter(|found| is_newer(loaded, found)) {
            return Ok(Some(found));
        }
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

fn is_newer(loaded: &Loaded, stamp: &Stamp) -> bool {
    stamp.version.wrapping_sub(loaded.checkpoint.version).cast_signed() > 0
}
