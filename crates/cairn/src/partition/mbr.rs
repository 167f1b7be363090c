//! DOS partition tables: four primary entries, and the chain of logical partitions inside an
//! extended one.

use std::io::Cursor;

use cairn_block::BlockDevice;
use mbrman::{MBRHeader, MBRPartitionEntry};

use super::kinds;
use super::table::{Partition, Range, Table};
use crate::bytes::read_bytes;
use crate::error::Cause;

/// A longer chain is a loop or damage.
const LOGICAL_MAX: u32 = 128;
/// Type of the entry of a protective MBR.
const PROTECTIVE: u8 = 0xee;

/// The table; `None` if the first sector has no boot signature or no entry.
pub(super) fn read(device: &dyn BlockDevice) -> Result<Option<Table>, Cause> {
    let sector = u64::from(device.geometry().logical_block.max(512));
    let Some(header) = read_header(device, 0)? else { return Ok(None) };
    let entries =
        [&header.partition_1, &header.partition_2, &header.partition_3, &header.partition_4];
    if entries.iter().any(|entry| entry.sys == PROTECTIVE) {
        return Err(damaged("a protective MBR, but no valid GPT behind it"));
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() && entry.sectors > 0 {
            partitions.push(partition(number, u64::from(entry.starting_lba), entry, sector));
        }
    }
    let extended = entries.iter().find(|entry| entry.is_extended());
    if let Some(extended) = extended {
        read_logical(device, u64::from(extended.starting_lba), sector, &mut partitions)?;
    }
    Ok((!partitions.is_empty() || extended.is_some()).then_some(Table { kind: "MBR", partitions }))
}

/// Follows the chain; each link is a sector whose first entry is the partition and whose second the
/// next link.
fn read_logical(
    device: &dyn BlockDevice,
    extended: u64,
    sector: u64,
    partitions: &mut Vec<Partition>,
) -> Result<(), Cause> {
    let mut link = extended;
    for number in 5..5 + LOGICAL_MAX {
        // An empty extended partition need not hold any record.
        let Some(record) = read_header(device, link * sector)? else { return Ok(()) };
        if record.partition_1.is_used() && record.partition_1.sectors > 0 {
            let start = link + u64::from(record.partition_1.starting_lba);
            partitions.push(partition(number, start, &record.partition_1, sector));
        }
        if record.partition_2.starting_lba == 0 {
            return Ok(());
        }
        link = extended + u64::from(record.partition_2.starting_lba);
    }
    Err(damaged(&format!("more than {LOGICAL_MAX} logical partitions, or a loop")))
}

fn read_header(device: &dyn BlockDevice, offset: u64) -> Result<Option<MBRHeader>, Cause> {
    let Some(mut bytes) = read_bytes(device, offset, 512)? else { return Ok(None) };
    // The copy-protection mark is ignored. Boot code may overlap it.
    if let Some(mark) = bytes.get_mut(444..446) {
        mark.fill(0);
    }
    Ok(MBRHeader::read_from(&mut Cursor::new(bytes)).ok())
}

/// 32-bit sector numbers of at most 4,096 bytes (and one sum of two) cannot overflow 64 bits.
fn partition(number: u32, start: u64, entry: &MBRPartitionEntry, sector: u64) -> Partition {
    let range = Range { offset: start * sector, len: u64::from(entry.sectors) * sector };
    Partition { number, range, kind: kinds::mbr(entry.sys), name: None }
}

fn damaged(detail: &str) -> Cause {
    Cause::PartitionTable { table: "MBR", detail: detail.into() }
}
