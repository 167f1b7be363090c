//! Finds the superblock of a volume: the first copy that is sound.
//!
//! A copy whose features contradict each other is used only if the other one is no better.

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Result;
use crate::format::checksum::MAGIC;
use crate::format::layout::Layout;
use crate::format::superblock::{self, Superblock};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// The result of [`probe`].
#[derive(Clone, Debug)]
pub struct Probe {
    /// The superblock.
    pub superblock: Superblock,
    /// Its geometry, checked against itself and the device.
    pub(crate) layout: Layout,
    /// True if the first copy is damaged and this is the second one.
    pub(crate) from_backup: bool,
}

/// Looks for a volume; `None` if neither copy of the superblock has the magic number.
///
/// # Errors
/// The device cannot be read, or both copies are damaged: the error is that of the first one.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    let size = device.geometry().size;
    probe_as(device, size)
}

/// As [`probe`], if the device had this size.
pub(crate) fn probe_as(device: &dyn BlockDevice, size: u64) -> Result<Option<Probe>> {
    if size < 2 * BLOCK_BYTES {
        return Ok(None);
    }
    let blocks = device.read_at(0, 2 * BLOCK_SIZE)?;
    let copies: Vec<&[u8]> = blocks.chunks_exact(BLOCK_SIZE).collect();
    if !copies.iter().any(|block| superblock::magic_of(block) == Some(MAGIC)) {
        return Ok(None);
    }
    let mut first_error = None;
    let mut contradictory = None;
    for (index, block) in copies.into_iter().enumerate() {
        let decoded = Superblock::decode(block);
        match decoded.and_then(|superblock| Ok((Layout::new(&superblock, size)?, superblock))) {
            Ok((layout, superblock)) => {
                let is_possible = superblock.features.is_possible();
                let found = Probe { superblock, layout, from_backup: index > 0 };
                if is_possible {
                    return Ok(Some(found));
                }
                contradictory = contradictory.or(Some(found));
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match (contradictory, first_error) {
        (None, Some(error)) => Err(error.into()),
        (found, _) => Ok(found),
    }
}

/// What is in place of the magic number.
pub(crate) fn found_magic(device: &dyn BlockDevice) -> u32 {
    let at_most = device.geometry().size.min(BLOCK_BYTES);
    let block = usize::try_from(at_most).ok().and_then(|len| device.read_at(0, len).ok());
    block.and_then(|block| superblock::magic_of(&block)).unwrap_or(0)
}
