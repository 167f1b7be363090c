//! Reads the last checkpoint: the later one of the two packs that is valid.
//!
//! A pack is valid if its first and its last block have good checksums and the same version. The
//! last block is written after everything else, so an incomplete pack is found.

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
use cairn_base::sabotage::Safeguard;
use cairn_cache::block::BufferCache;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::checkpoint::{self, Checkpoint, CheckpointFlags};
use crate::format::layout::{Layout, Side};
use crate::format::orphan;
use crate::format::pack::PackMap;
use crate::format::units::Nid;

/// A valid checkpoint and its place.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The pack it is in; the next one goes to the other.
    pub(crate) side: Side,
    /// The layout of the pack.
    pub(crate) map: PackMap,
}

impl Loaded {
    /// Address of a block of the pack.
    #[must_use]
    pub(crate) fn address(&self, layout: &Layout, offset: u32) -> Pba {
        block_of_pack(layout, self.side, offset)
    }

    /// Inodes that had no link but were open when the checkpoint was written.
    ///
    /// # Errors
    /// An orphan block is damaged, or the device failed.
    pub(crate) fn orphans(&self, buffers: &BufferCache, layout: &Layout) -> Result<Vec<Nid>> {
        if !self.checkpoint.flags.contains(CheckpointFlags::ORPHAN_PRESENT) {
            return Ok(Vec::new());
        }
        let mut inos = Vec::new();
        for offset in self.map.orphans() {
            let image = buffers.get(self.address(layout, offset))?.image();
            inos.extend(orphan::decode(&image, layout)?);
        }
        Ok(inos)
    }
}

/// The later one of the valid packs.
///
/// # Errors
/// Neither is valid, or the device failed.
pub fn load(buffers: &BufferCache, layout: &Layout) -> Result<Loaded> {
    match (read_pack(buffers, layout, Side::First), read_pack(buffers, layout, Side::Second)) {
        (Ok(first), Ok(second)) => {
            Ok(if second.checkpoint.is_after(&first.checkpoint) { second } else { first })
        }
        (Ok(one), Err(Error::Corrupt(_))) | (Err(Error::Corrupt(_)), Ok(one)) => Ok(one),
        (Err(Error::Corrupt(first)), Err(Error::Corrupt(second))) => {
            Err(Corrupt::NoCheckpoint { first: Box::new(first), second: Box::new(second) }.into())
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Address of a block of a pack.
pub(super) fn block_of_pack(layout: &Layout, side: Side, offset: u32) -> Pba {
    Pba(layout.pack_start(side).get().strict_add(offset.into()))
}

/// The first block of a pack and its payload.
///
/// # Errors
/// The device failed.
pub(super) fn head_of_pack(buffers: &BufferCache, layout: &Layout, side: Side) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    for block in 0..=layout.cp_payload {
        head.extend_from_slice(&buffers.get(block_of_pack(layout, side, block))?.image());
    }
    Ok(head)
}

/// A pack.
///
/// # Errors
/// It is not valid, or the device failed.
pub(crate) fn read_pack(buffers: &BufferCache, layout: &Layout, side: Side) -> Result<Loaded> {
    let start = layout.pack_start(side);
    let head = head_of_pack(buffers, layout, side)?;
    let checkpoint = Checkpoint::decode(&head, start.get(), layout)?;
    let map = PackMap::of(&checkpoint, layout)?;
    let loaded = Loaded { checkpoint, side, map };
    let last = loaded.address(layout, map.last());
    let stamp = checkpoint::verify(&buffers.get(last)?.image(), last.get())?;
    if stamp.version != loaded.checkpoint.version && !Safeguard::PackEnds.is_off() {
        let expected = "the pack's last block has another version than its first";
        return Err(Corrupt::Checkpoint {
            field: "checkpoint_ver",
            value: stamp.version,
            expected,
        }
        .into());
    }
    Ok(loaded)
}
