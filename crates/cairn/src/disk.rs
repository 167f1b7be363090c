//! Lists the partitions of a disk and their contents. Reads the table and the first bytes of each
//! partition, and writes nothing.

use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::wrap::Partition as Narrowed;

use crate::device::open_one;
use crate::error::{Cause, Error, Result};
use crate::format;
use crate::image::{ImageSpec, Part};
use crate::partition::{self, Partition, Range};
use crate::recognise::recognise;

/// A disk.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Disk {
    /// `GPT` or `MBR`.
    pub table: &'static str,
    /// Bytes.
    pub size: u64,
    /// In the table's order.
    pub partitions: Vec<DiskPartition>,
}

impl Disk {
    /// What is missing, if `image`, which holds this disk, ends before a partition of it.
    #[must_use]
    pub fn missing(&self, image: &ImageSpec) -> Option<Error> {
        let ends =
            self.partitions.iter().map(|one| (one.number, one.offset.saturating_add(one.size)));
        let (number, end) = ends.max_by_key(|(_, end)| *end)?;
        let Self { table, size, .. } = *self;
        let cause = Cause::ShortDisk { table, number, end, size };
        (end > size).then(|| Error::new(image, cause))
    }
}

/// One of its partitions.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DiskPartition {
    /// Its number in the table, from 1.
    pub number: u32,
    /// Its name for [`ImageSpec::parse`].
    pub address: String,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its type, in words if the type is known.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name in the table (GPT).
    pub name: Option<String>,
    /// Its contents, if they are recognised.
    pub filesystem: Option<String>,
    /// Label of the volume in it.
    pub label: Option<String>,
}

/// The disk in `image`; `None` if there is no partition table.
///
/// # Errors
/// The image cannot be opened or read, or its table is damaged.
pub fn disk(image: &ImageSpec) -> Result<Option<Disk>> {
    if image.part != Part::Whole {
        return Ok(None);
    }
    let device = open_one(image, false)?;
    let table = partition::read(&*device).map_err(|cause| Error::new(image, cause))?;
    let Some(table) = table else { return Ok(None) };
    let partitions =
        table.partitions.into_iter().map(|partition| describe(image, &device, partition)).collect();
    Ok(Some(Disk { table: table.kind, size: device.geometry().size, partitions }))
}

fn describe(
    image: &ImageSpec,
    device: &Arc<dyn BlockDevice>,
    partition: Partition,
) -> DiskPartition {
    let address = ImageSpec { part: Part::Partition(partition.number), ..image.clone() };
    let (filesystem, label) = filesystem(device, &partition).unwrap_or_default();
    DiskPartition {
        number: partition.number,
        address: address.to_string(),
        offset: partition.range.offset,
        size: partition.range.len,
        kind: partition.kind,
        name: partition.name,
        filesystem,
        label,
    }
}

/// A partition that cannot be read is not recognised, and the list continues.
fn filesystem(
    device: &Arc<dyn BlockDevice>,
    partition: &Partition,
) -> Result<(Option<String>, Option<String>), Cause> {
    let Range { offset, len } = partition.range;
    let there = device.geometry().size.saturating_sub(offset);
    let part = Narrowed::new(device.clone(), offset, len.min(there))?;
    Ok(match format::probe(&part)? {
        Some(format) => {
            let label = format::label(format, &part).filter(|label| !label.is_empty());
            (Some(format.name().into()), label)
        }
        None => (recognise(&part).map(|hint| hint.what.into()), None),
    })
}
