//! Volumes on several devices: found by the first one's superblock, put one behind the other.

use std::sync::Arc;

use cairn_block::wrap::Concat;
use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Result;
use crate::format::checksum::MAGIC;
use crate::format::superblock::{self, Superblock};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// The paths that the superblock on a volume's first device names, its own one first; none if the volume lies on this device
/// alone, or there is none.
///
/// # Errors
/// The device cannot be read.
pub fn paths(first: &dyn BlockDevice) -> Result<Vec<String>> {
    let paths = superblock_of(first)?.map(|superblock| superblock.device_paths()).unwrap_or_default();
    Ok(if paths.len() > 1 { paths } else { Vec::new() })
}

/// The whole volume, of all its devices in order.
///
/// # Errors
/// They are not as many or not as large as the superblock says, or the first one cannot be read.
pub fn assemble(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<dyn BlockDevice>> {
    let Some(first) = devices.first().cloned() else {
        return Err(crate::Error::Option("a volume lies on a device: give one".into()));
    };
    let lengths = superblock_of(&*first)?.map(|superblock| superblock.device_lengths()).unwrap_or_default();
    if lengths.len() < 2 && devices.len() == 1 {
        return Ok(first);
    }
    if lengths.len() != devices.len() {
        let text = format!("the volume lies on {} devices, {} are given", lengths.len().max(1), devices.len());
        return Err(crate::Error::Option(text));
    }
    Ok(Arc::new(Concat::new(devices.into_iter().zip(lengths).collect())?))
}

/// The superblock, whichever copy is good, as it says itself.
fn superblock_of(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    if device.geometry().size < 2 * BLOCK_BYTES {
        return Ok(None);
    }
    let blocks = device.read_at(0, 2 * BLOCK_SIZE)?;
    let mut copies = blocks.chunks_exact(BLOCK_SIZE).filter(|block| superblock::magic_of(block) == Some(MAGIC));
    Ok(copies.find_map(|block| Superblock::decode(block).ok()))
}
