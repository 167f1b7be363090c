//! Finds a partition's byte range through a [`BlockDevice`]: GPT (512- and 4096-byte sectors), else MBR with logical
//! partitions. Nothing is written; what is read is bounded (at most 1,024 GPT entries, 128 logical partitions).

mod gpt;
mod kinds;
mod mbr;

use cairn_block::{BlockDevice, BlockDeviceExt};

use crate::error::Cause;

/// A partition's place in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// One entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1.
    pub number: u32,
    /// Its place.
    pub range: Range,
    /// Its type, in words if it is a known one.
    pub kind: String,
    /// Its name, where the table has names and this entry one.
    pub name: Option<String>,
}

/// A table's partitions, in the table's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `GPT` or `MBR`.
    pub kind: &'static str,
    /// The entries in use.
    pub partitions: Vec<Partition>,
}

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
/// No table, no such partition, a damaged table, or a device error.
pub fn find(device: &dyn BlockDevice, number: u32) -> Result<Range, Cause> {
    let table = read(device)?.ok_or(Cause::NoPartitionTable)?;
    let Some(range) = table.partitions.iter().find(|one| one.number == number).map(|one| one.range) else {
        let present = table.partitions.iter().map(|one| one.number).collect();
        return Err(Cause::NoSuchPartition { number, table: table.kind, present });
    };
    let size = device.geometry().size;
    match range.offset.checked_add(range.len) {
        Some(end) if end <= size && range.len > 0 => Ok(range),
        _ => Err(Cause::PartitionTable {
            table: table.kind,
            detail: format!(
                "partition {number} is {} bytes at {}, but the image has {size} bytes",
                range.len, range.offset
            ),
        }),
    }
}

/// Reads bytes at any offset, or `None` if they lie beyond the end.
pub(crate) fn read_bytes(device: &dyn BlockDevice, offset: u64, len: usize) -> Result<Option<Vec<u8>>, Cause> {
    let geometry = device.geometry();
    let unit = u64::from(geometry.logical_block.max(1));
    let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= geometry.size) else {
        return Ok(None);
    };
    let start = offset / unit * unit;
    let whole = end.div_ceil(unit).saturating_mul(unit).min(geometry.size) - start;
    let buf = device.read_at(start, usize::try_from(whole).unwrap_or(usize::MAX))?;
    let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
    Ok(buf.get(skip..).and_then(|tail| tail.get(..len)).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests;
