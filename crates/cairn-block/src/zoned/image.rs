//! Images with zones: the zones, a table of their write pointers, and a last block with their
//! layout.
//!
//! | where | what |
//! |---|---|
//! | from 0 | the zones |
//! | behind them | the table ([`super::table`]) |
//! | last 4096 bytes | magic, version, the layout's numbers, a checksum |
//!
//! Numbers and the checksum are stored as in the table.

use std::sync::Arc;

use super::Emulated;
use super::rules::{State, ZoneLayout, Zones};
use super::table::{BLOCK, Table, damaged, sealed, words};
use crate::device::{BlockDevice, BlockDeviceExt, Durability};
use crate::error::{Error, ErrorKind, Result};

const MAGIC: u64 = u64::from_le_bytes(*b"CairnZon");
const VERSION: u64 = 1;
/// Words of the last block before its checksum.
const HEAD: usize = 9;

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
    let numbers =
        [0, MAGIC, VERSION, layout.zone_size, layout.capacity, layout.conventional.into()];
    let more = [layout.zones.into(), limits, layout.unrestricted_reads.into()];
    let head = sealed(numbers.into_iter().chain(more).collect());
    device.write_durable(size - BLOCK as u64, head, Durability { preflush: true, fua: true })?;
    Emulated::with(device, zones, Some(table))
}

/// The zones of an image, if it has zones.
///
/// # Errors
/// Their table is damaged, or the device failed.
pub fn open_image(device: &Arc<dyn BlockDevice>) -> Result<Option<Emulated>> {
    let size = device.geometry().size;
    let Some(last) =
        size.checked_sub(BLOCK as u64).filter(|last| last.is_multiple_of(BLOCK as u64))
    else {
        return Ok(None);
    };
    let block = device.read_at(last, BLOCK)?;
    if block.get(8..16) != Some(&MAGIC.to_le_bytes()) {
        return Ok(None);
    }
    let words = words(&block, "layout", last)?;
    let Some(numbers) = words.first_chunk::<HEAD>() else { return Ok(None) };
    let [_, _, version, zone_size, capacity, conventional, zones, limits, reads] = *numbers;
    let narrow =
        |value: u64| u32::try_from(value).map_err(|_| damaged(format!("{value} zones"), last));
    if version != VERSION {
        let detail = format!(
            "the image's zones have version {version}, this program knows {VERSION}: use a newer \
             one"
        );
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
        let detail = format!(
            "its zones need {} bytes, but the image has {size}: copy it again, whole",
            image_size(&layout)
        );
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
