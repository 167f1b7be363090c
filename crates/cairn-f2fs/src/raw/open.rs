//! Finds the superblock and the checkpoint to read a volume with.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::units::stored;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_cache::block::BufferCache;
use cairn_cache::budget::Budget;
use cairn_check::salvage::{ANY_SIZE, Allowance};

use super::RawVolume;
use super::choice::Choice;
use crate::checkpoint::summaries::{self, Journals};
use crate::checkpoint::{Loaded, read_pack};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::checksum::MAGIC;
use crate::format::layout::{Layout, Side};
use crate::format::superblock::{Superblock, implied, magic_of};
use crate::format::units::{BLOCK_BYTES, BLOCK_SIZE};

/// Bytes of buffers.
const BUDGET: u64 = 32 << 20;

impl RawVolume {
    /// Opens a volume.
    ///
    /// # Errors
    /// There is no superblock or no checkpoint as asked for, or the device failed.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, choice: Choice) -> Result<Self> {
        let mut notes = Vec::new();
        let (superblock_block, superblock, layout) = find(&*device, choice.superblock, &mut notes)?;
        let size = device.geometry().size;
        if superblock.bytes() > size {
            let volume = superblock.bytes();
            notes.push(Corrupt::TooShort { volume, device: size }.to_string());
        }
        let buffers = BufferCache::new(device.clone(), stored(BLOCK_SIZE), Budget::new(BUDGET));
        let before = notes.len();
        let loaded = pack(&buffers, &layout, choice.pack, &mut notes)?;
        let has_lost_pack = notes.len() > before;
        let mut journals = Journals::default();
        let mut current = None;
        if let Some(loaded) = &loaded {
            match summaries::journals(loaded, &buffers, &layout) {
                Ok(found) => journals = found,
                Err(error) => {
                    notes.push(format!("the journals of the checkpoint are damaged: {error}"));
                }
            }
            match summaries::current(loaded, &buffers, &layout) {
                Ok(found) => current = Some(found),
                Err(error) => {
                    notes.push(format!("the summaries of the checkpoint are damaged: {error}"));
                }
            }
        }
        Ok(Self {
            device,
            buffers,
            superblock,
            superblock_block,
            layout,
            loaded,
            has_lost_pack,
            journals,
            current,
            newer: HashMap::new(),
            footers: HashMap::new(),
            ignores_checksums: false,
            notes,
            allowance: Allowance::new(layout.block_count),
        })
    }
}

fn find(
    device: &dyn BlockDevice,
    wanted: Option<u64>,
    notes: &mut Vec<String>,
) -> Result<(u64, Superblock, Layout)> {
    let (mut first, mut unsealed) = (None, None);
    let mut copies = Vec::new();
    let mut magic = 0;
    for number in [0, 1_u64].into_iter().filter(|number| wanted.is_none_or(|one| one == *number)) {
        let at = number.saturating_mul(BLOCK_BYTES);
        let end = at.saturating_add(BLOCK_BYTES);
        if end > device.geometry().size {
            continue;
        }
        let block = device.read_at(at, BLOCK_SIZE)?;
        let found = magic_of(&block).unwrap_or_default();
        if found != MAGIC {
            magic = found;
        }
        let decoded = Superblock::decode(&block);
        match decoded.and_then(|found| Ok((Layout::new(&found, ANY_SIZE)?, found))) {
            Ok((layout, superblock)) => {
                if let Some(why) = first {
                    notes.push(format!(
                        "the first superblock is damaged ({why}): the second is used"
                    ));
                }
                return Ok((number, superblock, layout));
            }
            Err(error) => {
                let decoded = Superblock::decode_unsealed(&block);
                let usable = decoded.and_then(|found| Ok((Layout::new(&found, ANY_SIZE)?, found)));
                unsealed = unsealed.or(usable.ok().map(|(layout, found)| (number, found, layout)));
                first = first.or(Some(error));
                copies.extend(Superblock::decode_any(&block).map(|copy| (number, copy)));
            }
        }
    }
    if let Some(found) = unsealed {
        let number = found.0;
        notes.push(format!("the checksum of superblock {number} is wrong: it is used as it is"));
        return Ok(found);
    }
    if let Some(found) = computed(&copies, device.geometry().size) {
        let number = found.0;
        notes.push(format!(
            "a field of superblock {number} is impossible: it was computed from the others"
        ));
        return Ok(found);
    }
    match (first, wanted) {
        (Some(error), None) if magic == 0 => Err(error.into()),
        (_, None) => Err(Error::NotF2fs { found: magic }),
        (Some(error), Some(number)) => Err(Error::Option(format!(
            "no sound superblock is in block {number} ({error}): F2FS has them in blocks 0 and 1"
        ))),
        (None, Some(number)) => {
            let why =
                format!("no superblock is in block {number}: F2FS has them in blocks 0 and 1");
            Err(Error::Option(why))
        }
    }
}

/// The only possible superblock with one field that the others of a copy imply.
fn computed(copies: &[(u64, Superblock)], size: u64) -> Option<(u64, Superblock, Layout)> {
    let mut found: Option<(u64, Superblock, Layout)> = None;
    for (number, copy) in copies {
        for right in implied::fields(copy, size) {
            let layout = right.check_sizes().and_then(|()| Layout::new(&right, ANY_SIZE));
            let Ok(layout) = layout else { continue };
            if found.as_ref().is_some_and(|(_, known, _)| *known != right) {
                return None;
            }
            found.get_or_insert((*number, right, layout));
        }
    }
    found
}

fn pack(
    buffers: &BufferCache,
    layout: &Layout,
    wanted: Option<u8>,
    notes: &mut Vec<String>,
) -> Result<Option<Loaded>> {
    let mut read = |side, number: u8| match read_pack(buffers, layout, side) {
        Ok(loaded) => Some(loaded),
        Err(error) => {
            notes.push(format!("checkpoint pack {number} is damaged: {error}"));
            None
        }
    };
    match wanted {
        None => {
            let (first, second) = (read(Side::First, 1), read(Side::Second, 2));
            Ok(match (first, second) {
                (Some(one), Some(two)) if two.checkpoint.is_after(&one.checkpoint) => Some(two),
                (Some(one), _) => Some(one),
                (None, two) => two,
            })
        }
        Some(number) => {
            let side = if number == 2 { Side::Second } else { Side::First };
            match read_pack(buffers, layout, side) {
                Ok(loaded) => Ok(Some(loaded)),
                Err(error) => Err(Error::Option(format!(
                    "checkpoint pack {number} is damaged ({error}): give the other, or leave it out"
                ))),
            }
        }
    }
}
