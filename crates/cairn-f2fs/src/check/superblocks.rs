//! Two damaged copies of the superblock: one copy with a field of the other, or with its checksum
//! or one field computed, may be a sound one.

use std::ops::Range;
use std::sync::Arc;

use cairn_base::units::{as_u64, stored};
use cairn_block::wrap::Overlay;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;

use crate::checkpoint;
use crate::disk::SUPERBLOCKS;
use crate::error::{Error, Result};
use crate::format::Features;
use crate::format::layout::Layout;
use crate::format::superblock::{OFFSET, SIZE, Superblock, implied};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// Bytes of a word: each field but names consists of such.
const WORD: usize = 4;
/// Most words in which the copies may differ. More is not one field of each.
const MOST: usize = 16;
/// Memory for the blocks of a checkpoint.
const CACHE_BYTES: u64 = 1 << 20;

/// The device with a sound superblock in place of both copies, if there is one way to make it: one
/// copy, with one field of the other, or else with its checksum. A checkpoint must agree with it.
///
/// # Errors
/// The device failed.
pub(super) fn merged(device: &Arc<dyn BlockDevice>) -> Result<Option<Arc<dyn BlockDevice>>> {
    let blocks = device.read_at(0, BLOCK_SIZE.saturating_mul(2))?;
    let copies: Vec<&[u8]> = blocks
        .chunks_exact(BLOCK_SIZE)
        .filter_map(|block| block.get(OFFSET..OFFSET.saturating_add(SIZE)))
        .collect();
    let [first, second] = copies[..] else { return Ok(None) };
    let mut found: Option<(Vec<u8>, Arc<dyn BlockDevice>)> = None;
    for (copy, other) in [(first, second), (second, first)] {
        for field in differences(copy, other) {
            let mut bytes = copy.to_vec();
            let (to, from) = (bytes.get_mut(field.clone()), other.get(field));
            to.into_iter().flatten().zip(from.into_iter().flatten()).for_each(|(to, from)| {
                *to = *from;
            });
            let Some(above) = sound(device, &bytes)? else { continue };
            if found.as_ref().is_some_and(|(known, _)| *known != bytes) {
                return Ok(None);
            }
            found = Some((bytes, above));
        }
    }
    if found.is_some() {
        return Ok(found.map(|(_, above)| above));
    }
    for block in blocks.chunks_exact(BLOCK_SIZE) {
        let Ok(mut copy) = Superblock::decode_unsealed(block) else { continue };
        // Without a place for the checksum, and without one, the feature is wrong.
        if copy.checksum_offset == 0 && copy.crc == 0 {
            copy.features.remove(Features::SB_CHECKSUM);
        }
        let bytes = copy.encode();
        let Some(above) = sound(device, &bytes)? else { continue };
        if found.as_ref().is_some_and(|(known, _)| *known != bytes) {
            return Ok(None);
        }
        found = Some((bytes, above));
    }
    if found.is_none() {
        return computed(device, &blocks);
    }
    Ok(found.map(|(_, above)| above))
}

/// The device with a superblock of which one field is computed from the others, if there is one way
/// to make a sound one.
fn computed(device: &Arc<dyn BlockDevice>, blocks: &[u8]) -> Result<Option<Arc<dyn BlockDevice>>> {
    let mut found: Option<(Vec<u8>, Arc<dyn BlockDevice>)> = None;
    for copy in blocks.chunks_exact(BLOCK_SIZE).filter_map(Superblock::decode_any) {
        for right in implied::fields(&copy, device.geometry().size) {
            let bytes = right.encode();
            let Some(above) = sound(device, &bytes)? else { continue };
            if found.as_ref().is_some_and(|(known, _)| *known != bytes) {
                return Ok(None);
            }
            found = Some((bytes, above));
        }
    }
    Ok(found.map(|(_, above)| above))
}

/// The words in which two copies differ, and runs of such words. None if there are too many.
fn differences(one: &[u8], other: &[u8]) -> Vec<Range<usize>> {
    let pairs = one.chunks(WORD).zip(other.chunks(WORD)).enumerate();
    let words = pairs.filter(|(_, (one, other))| one != other);
    let words: Vec<usize> = words.map(|(number, _)| number.saturating_mul(WORD)).collect();
    if words.len() > MOST {
        return Vec::new();
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in &words {
        let end = at.saturating_add(WORD);
        match runs.last_mut().filter(|last| last.end == *at) {
            Some(last) => last.end = end,
            None => runs.push(*at..end),
        }
    }
    let is_longer = |run: &Range<usize>| run.len() > WORD;
    let words = words.iter().map(|at| *at..at.saturating_add(WORD));
    words.chain(runs.into_iter().filter(is_longer)).collect()
}

/// The device with these bytes as both copies, if they are a superblock to which a checkpoint
/// belongs.
fn sound(device: &Arc<dyn BlockDevice>, bytes: &[u8]) -> Result<Option<Arc<dyn BlockDevice>>> {
    let mut block = vec![0; OFFSET];
    block.extend_from_slice(bytes);
    let decoded = Superblock::decode(&block);
    let layout = decoded.and_then(|found| Layout::new(&found, device.geometry().size));
    let Ok(layout) = layout else { return Ok(None) };
    let above = in_both(device, bytes)?;
    let buffers = BufferCache::new(above.clone(), stored(BLOCK_SIZE), Budget::new(CACHE_BYTES));
    match checkpoint::load(&buffers, &layout) {
        Ok(_) => Ok(Some(above)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The device with these bytes as both copies.
///
/// # Errors
/// The device has zones, or failed.
pub(super) fn in_both(device: &Arc<dyn BlockDevice>, bytes: &[u8]) -> Result<Arc<dyn BlockDevice>> {
    let overlay = Overlay::new(device.clone())?;
    for at in SUPERBLOCKS {
        let place = at.get().saturating_mul(BLOCK_BYTES).saturating_add(as_u64(OFFSET));
        overlay.write_at(place, bytes.to_vec())?;
    }
    Ok(Arc::new(overlay))
}
