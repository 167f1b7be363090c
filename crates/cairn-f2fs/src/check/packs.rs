//! The checkpoint pack that is not used: it must not be a newer one that was damaged later.
//!
//! A power cut leaves an incomplete pack, which is sound. But a pack's last block is written after
//! everything else is on the medium: if it is newer than the checkpoint in use, the pack was
//! complete once.

use cairn_base::Pba;
use cairn_check::{Finding, Findings, Place, Value};

use super::kinds;
use super::volume::Volume;
use crate::error::{Error, Result};
use crate::format::checkpoint::{self, Stamp};
use crate::format::units::BLOCKS_PER_SEGMENT;

/// Looks for a newer pack that is damaged.
///
/// # Errors
/// The device's.
pub(super) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let start = volume.layout.pack_start(volume.loaded.side.other());
    let last = match stamp(volume, start)? {
        Some(first) if !is_newer(volume, &first) => None,
        _ => find_last(volume, start)?,
    };
    if let Some(last) = last {
        findings.add(
            Finding::new(&kinds::CHECKPOINT_PACK, Place::block(start.get()))
                .stored(Value::Hex(last.version))
                .computed(Value::Hex(volume.loaded.checkpoint.version)),
        );
    }
    Ok(())
}

/// The last block of a newer pack, wherever its first block says that it is.
fn find_last(volume: &Volume, start: Pba) -> Result<Option<Stamp>> {
    for offset in 1..BLOCKS_PER_SEGMENT {
        let found = stamp(volume, block(start, offset))?;
        if let Some(found) = found.filter(|found| is_newer(volume, found)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn block(start: Pba, offset: u32) -> Pba {
    Pba(start.get().saturating_add(offset.into()))
}

/// What a checkpoint block says, if its checksum is right.
fn stamp(volume: &Volume, at: Pba) -> Result<Option<Stamp>> {
    let image = volume.buffers.get(at).map_err(Error::from)?.image();
    Ok(checkpoint::verify(&image, at.get()).ok())
}

fn is_newer(volume: &Volume, stamp: &Stamp) -> bool {
    stamp.version.wrapping_sub(volume.loaded.checkpoint.version).cast_signed() > 0
}
