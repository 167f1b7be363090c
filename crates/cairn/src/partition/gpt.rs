//! GUID partition tables, primary header first, then the backup in the last sector.

use std::io::Cursor;

use cairn_block::BlockDevice;
use gpt::disk::LogicalBlockSize;
use gpt::header::{Header, read_header_from_arbitrary_device};
use gpt::partition::file_read_partitions;

use super::kinds;
use super::table::{Partition, Range, Table};
use crate::bytes::read_bytes;
use crate::error::Cause;

/// The specification requires at least 128 entries. Larger tables exist; beyond this, a table is
/// damaged.
const ENTRIES_MAX: u32 = 1024;
/// Bytes of one entry, the only size in use.
const ENTRY_SIZE: u32 = 128;
const SIGNATURE: &[u8] = b"EFI PART";

/// The table for one sector size; `None` if neither header is there.
pub(super) fn read(device: &dyn BlockDevice, sector: u32) -> Result<Option<Table>, Cause> {
    let size = device.geometry().size;
    let sector = u64::from(sector);
    let backup = (size / sector).saturating_sub(1).saturating_mul(sector);
    let mut damage = None;
    for offset in [sector, backup] {
        match read_at(device, sector, offset) {
            Ok(Some(table)) => return Ok(Some(table)),
            Ok(None) => {}
            Err(Cause::Device(error)) => return Err(Cause::Device(error)),
            Err(other) => damage = damage.or(Some(other)),
        }
    }
    damage.map_or(Ok(None), Err)
}

fn read_at(device: &dyn BlockDevice, sector: u64, offset: u64) -> Result<Option<Table>, Cause> {
    let Some(header) = read_bytes(device, offset, 512)? else { return Ok(None) };
    if !header.starts_with(SIGNATURE) {
        return Ok(None);
    }
    let mut header = parse_header(header).map_err(|detail| damaged(offset, &detail))?;
    if header.part_size != ENTRY_SIZE || header.num_parts > ENTRIES_MAX {
        let detail = format!("{} entries of {} bytes", header.num_parts, header.part_size);
        return Err(damaged(offset, &detail));
    }
    let entries = header
        .part_start
        .checked_mul(sector)
        .map_or(Ok(None), |start| {
            read_bytes(device, start, (header.num_parts * ENTRY_SIZE) as usize)
        })?
        .ok_or_else(|| {
            damaged(offset, &format!("entries at sector {}, beyond the end", header.part_start))
        })?;
    // The library seeks to the entries' offset on the disk. This reader contains only the entries.
    header.part_start = 0;
    let entries = file_read_partitions(&mut Cursor::new(entries), &header, LogicalBlockSize::Lb512)
        .map_err(|error| damaged(offset, &error.to_string()))?;
    let mut partitions = Vec::new();
    for (number, entry) in entries.iter().filter(|(_, entry)| entry.is_used()) {
        let range = entry
            .last_lba
            .checked_sub(entry.first_lba)
            .and_then(|last| last.checked_add(1)?.checked_mul(sector))
            .zip(entry.first_lba.checked_mul(sector))
            .map(|(len, offset)| Range { offset, len });
        let range = range.ok_or_else(|| {
            damaged(
                offset,
                &format!(
                    "partition {number} spans sectors {} to {}",
                    entry.first_lba, entry.last_lba
                ),
            )
        })?;
        partitions.push(Partition {
            number: *number,
            range,
            kind: kinds::gpt(entry.part_type_guid.guid),
            name: Some(entry.name.clone()).filter(|name| !name.is_empty()),
        });
    }
    Ok(Some(Table { kind: "GPT", partitions }))
}

/// The library expects the header after one sector. This buffer has exactly that.
fn parse_header(header: Vec<u8>) -> Result<Header, String> {
    let mut disk = vec![0; 512];
    disk.extend(header);
    read_header_from_arbitrary_device(&mut Cursor::new(disk), LogicalBlockSize::Lb512)
        .map_err(|error| error.to_string())
}

fn damaged(offset: u64, detail: &str) -> Cause {
    Cause::PartitionTable { table: "GPT", detail: format!("header at byte {offset}: {detail}") }
}
