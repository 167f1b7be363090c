//! Images with zones: the zones, a table of their write pointers, and a last block that says how they are laid out.
//!
//! | where | what |
//! |---|---|
//! | from 0 | the zones |
//! | behind them | table blocks: a checksum, then one number a zone: bytes written, bit 63: finished, 62: read-only, 61: offline |
//! | last 4096 bytes | magic, version, the layout's numbers, a checksum |
//!
//! All numbers are 64-bit little-endian; checksums are CRC-32C of the rest of the block.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::checksum::crc32c;

use super::Emulated;
use super::rules::{Health, State, ZoneLayout, Zones};
use crate::device::{Batch, BlockDevice, BlockDeviceExt, Durability, Request};
use crate::error::{Error, ErrorKind, Result};

const BLOCK: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"CairnZon");
const VERSION: u64 = 1;
/// Words of the last block before its checksum.
const HEAD: usize = 9;
/// Zones a table block.
const ENTRIES: u64 = (BLOCK / 8 - 1) as u64;
const FINISHED: u64 = 1 << 63;
const READ_ONLY: u64 = 1 << 62;
const OFFLINE: u64 = 1 << 61;

/// Where the table of an image is.
pub(super) struct Table {
    start: u64,
    zones: u32,
}

impl Table {
    fn new(layout: &ZoneLayout) -> Self {
        Self { start: layout.size(), zones: layout.zones }
    }

    fn blocks(&self) -> u64 {
        u64::from(self.zones).div_ceil(ENTRIES)
    }

    /// Writes the table blocks of these zones, behind a flush and forced through.
    pub(super) fn write(&self, device: &dyn BlockDevice, states: &[State], zones: &BTreeSet<u32>) -> Result<()> {
        let blocks: BTreeSet<u64> = zones.iter().map(|zone| u64::from(*zone) / ENTRIES).collect();
        let requests = blocks.into_iter().map(|block| {
            let first = (block * ENTRIES) as usize;
            let entries = states.iter().skip(first).take(ENTRIES as usize);
            let words: Vec<u64> = std::iter::once(0).chain(entries.map(word)).collect();
            Request::Write { offset: self.start + block * BLOCK as u64, bufs: vec![sealed(words).into()] }
        });
        let durability = Durability { preflush: true, fua: true };
        device.submit(Batch { requests: requests.collect(), durability }).wait().map(drop)
    }

    fn read(&self, device: &dyn BlockDevice, layout: &ZoneLayout) -> Result<Vec<State>> {
        let mut states = Vec::new();
        for block in 0..self.blocks() {
            let offset = self.start + block * BLOCK as u64;
            let words = words(&device.read_at(offset, BLOCK)?, "table", offset)?;
            let left = (u64::from(self.zones) - block * ENTRIES).min(ENTRIES) as usize;
            for word in words.iter().skip(1).take(left) {
                let state = state(*word);
                if state.written > layout.capacity || !state.written.is_multiple_of(super::rules::BLOCK) {
                    let detail = format!("zone {} cannot have {} bytes written", states.len(), state.written);
                    return Err(damaged(detail, offset));
                }
                states.push(state);
            }
        }
        Ok(states)
    }
}

fn word(state: &State) -> u64 {
    let health = match state.health {
        Health::Good => 0,
        Health::ReadOnly => READ_ONLY,
        Health::Offline => OFFLINE,
    };
    state.written | health | if state.finished { FINISHED } else { 0 }
}

fn state(word: u64) -> State {
    let health = match word & (READ_ONLY | OFFLINE) {
        0 => Health::Good,
        READ_ONLY => Health::ReadOnly,
        _ => Health::Offline,
    };
    State { written: word & !(FINISHED | READ_ONLY | OFFLINE), finished: word & FINISHED != 0, health }
}

/// A block of words whose checksum goes to the upper half of the first one.
fn sealed(words: Vec<u64>) -> Vec<u8> {
    let mut block: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    block.resize(BLOCK, 0);
    let sum = crc32c(!0, &block[8..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
    block
}

fn words(block: &[u8], what: &str, offset: u64) -> Result<Vec<u64>> {
    let words: Vec<u64> =
        block.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?))).collect();
    let (stored, computed) = (words.first().copied().unwrap_or(0), crc32c(!0, block.get(8..).unwrap_or_default()));
    if stored != u64::from(computed) {
        return Err(damaged(format!("the {what}'s checksum is {stored:#x}, its bytes give {computed:#x}"), offset));
    }
    Ok(words)
}

fn damaged(detail: String, offset: u64) -> Error {
    Error::new(ErrorKind::Io, "read zones of the image", detail).at(offset, BLOCK as u64)
}

/// Bytes of an image with these zones.
fn image_size(layout: &ZoneLayout) -> u64 {
    layout.size() + (Table::new(layout).blocks() + 1) * BLOCK as u64
}

/// Makes a device an image with these zones, all empty. It must have exactly the bytes that
/// [`ZoneLayout::image_size`] names.
///
/// # Errors
/// The layout is impossible, the device has another size, or fails.
pub fn create_image(device: Arc<dyn BlockDevice>, layout: ZoneLayout) -> Result<Emulated> {
    layout.check()?;
    let (size, wanted) = (device.geometry().size, image_size(&layout));
    if size != wanted {
        let detail = format!("an image with these zones has {wanted} bytes, this one {size}");
        return Err(Error::new(ErrorKind::OutOfRange, "make an image with zones", detail));
    }
    let (table, zones) = (Table::new(&layout), Zones::new(layout, Vec::new()));
    device.discard(0, layout.size())?;
    let states: Vec<State> = (0..layout.zones).map(|zone| zones.state(zone)).collect();
    table.write(&*device, &states, &(0..layout.zones).collect())?;
    let limits = u64::from(layout.max_open) | u64::from(layout.max_active) << 32;
    let numbers = [0, MAGIC, VERSION, layout.zone_size, layout.capacity, layout.conventional.into()];
    let more = [layout.zones.into(), limits, layout.unrestricted_reads.into()];
    let head = sealed(numbers.into_iter().chain(more).collect());
    device.write_durable(size - BLOCK as u64, head, Durability { preflush: true, fua: true })?;
    Emulated::with(device, zones, Some(table))
}

/// The zones of an image, if it has some.
///
/// # Errors
/// Their table is damaged, or the device failed.
pub fn open_image(device: &Arc<dyn BlockDevice>) -> Result<Option<Emulated>> {
    let size = device.geometry().size;
    let Some(last) = size.checked_sub(BLOCK as u64).filter(|last| last.is_multiple_of(BLOCK as u64)) else {
        return Ok(None);
    };
    let block = device.read_at(last, BLOCK)?;
    if block.get(8..16) != Some(&MAGIC.to_le_bytes()) {
        return Ok(None);
    }
    let words = words(&block, "layout", last)?;
    let Some(numbers) = words.first_chunk::<HEAD>() else { return Ok(None) };
    let [_, _, version, zone_size, capacity, conventional, zones, limits, reads] = *numbers;
    let narrow = |value: u64| u32::try_from(value).map_err(|_| damaged(format!("{value} zones"), last));
    if version != VERSION {
        let detail = format!("the image's zones have version {version}, this program knows {VERSION}: use a newer one");
        return Err(Error::new(ErrorKind::Unsupported, "open an image with zones", detail));
    }
    let layout = ZoneLayout {
        zone_size,
        capacity,
        conventional: narrow(conventional)?,
        zones: narrow(zones)?,
        max_open: (limits & u64::from(u32::MAX)) as u32,
        max_active: (limits >> 32) as u32,
        unrestricted_reads: reads != 0,
    };
    layout.check()?;
    if image_size(&layout) != size {
        let detail = format!("its zones need {} bytes, the image has {size}: was it cut?", image_size(&layout));
        return Err(Error::new(ErrorKind::OutOfRange, "open an image with zones", detail));
    }
    let table = Table::new(&layout);
    let states = table.read(&**device, &layout)?;
    Emulated::with(device.clone(), Zones::new(layout, states), Some(table)).map(Some)
}

impl ZoneLayout {
    /// Bytes of an image that holds these zones and their table.
    #[must_use]
    pub fn image_size(&self) -> u64 {
        image_size(self)
    }
}
