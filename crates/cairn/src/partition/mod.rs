//! Finds a partition's byte range through a [`BlockDevice`]: GPT (512- and 4096-byte sectors), else
//! MBR with logical partitions. What is read is bounded (at most 1,024 GPT entries, 128 logical
//! partitions). [`NewTable`] is the table of a new disk.

mod gpt;
mod kinds;
mod mbr;
mod new;
mod new_kind;
mod table;

pub use new::{ALIGNMENT, Flags, NewPartition, NewTable, SECTOR, TableKind};
pub use new_kind::PartitionKind;
pub use table::{Partition, Range, Table};

use cairn_block::BlockDevice;

use crate::error::Cause;

/// Reads the partition table; `None` if there is none.
///
/// # Errors
/// The device fails, or the table is damaged.
pub fn read(device: &dyn BlockDevice) -> Result<Option<Table>, Cause> {
    for sector in [512, 4096] {
        if let Some(table) = gpt::read(device, sector)? {
            return Ok(Some(table));
        }
    }
    mbr::read(device)
}

/// The place of partition `number`, checked to lie on the device.
///
/// # Errors
/// No table, no such partition, a damaged table, a device that ends before the partition, or a
/// device error.
pub fn find(device: &dyn BlockDevice, number: u32) -> Result<Range, Cause> {
    let (range, there) = entry(device, number)?;
    there.map(|_| range)
}

/// As [`find`], for reading: of a partition that the device has only in part, that part.
///
/// # Errors
/// As [`find`]; the device has nothing of it.
pub fn find_present(device: &dyn BlockDevice, number: u32) -> Result<Range, Cause> {
    let (Range { offset, .. }, there) = entry(device, number)?;
    match device.geometry().size.checked_sub(offset) {
        Some(rest) if rest > 0 && there.is_err() => Ok(Range { offset, len: rest }),
        _ => there,
    }
}

/// The place of a partition, and what the device has of it if it has all.
fn entry(device: &dyn BlockDevice, number: u32) -> Result<(Range, Result<Range, Cause>), Cause> {
    let table = read(device)?.ok_or(Cause::NoPartitionTable)?;
    let Some(range) = table.partitions.iter().find(|one| one.number == number).map(|one| one.range)
    else {
        let present = table.partitions.iter().map(|one| one.number).collect();
        return Err(Cause::NoSuchPartition { number, table: table.kind, present });
    };
    let damaged = |what: &str| Cause::PartitionTable {
        table: table.kind,
        detail: format!("partition {number} is {} bytes at {}, {what}", range.len, range.offset),
    };
    let end = range.offset.checked_add(range.len).ok_or_else(|| damaged("beyond 2^64"))?;
    if range.len == 0 {
        return Err(damaged("which is none"));
    }
    let size = device.geometry().size;
    let there = match end <= size {
        true => Ok(range),
        false => Err(Cause::ShortDisk { table: table.kind, number, end, size }),
    };
    Ok((range, there))
}

#[cfg(test)]
mod tests;
