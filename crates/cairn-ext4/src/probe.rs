//! The first look at a device: which superblock a volume is opened by, the first one or a copy in another group.
//!
//! A copy is used where the first superblock is damaged, where the first descriptors are, or where the option `sb=` says so. Such a
//! volume is only read: copies are as old as the volume's making or its last change of size, what they say of free space is not true,
//! and the first superblock is for e2fsck to mend. (Linux writes through `sb=`, with bitmaps that the copy's descriptors do not fit.)
//! The copy is laid over the place of the first one in memory: everything above reads the volume as ever.

use std::collections::HashMap;

use cairn_base::Pba;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_jbd2::Images;

use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::backup::{self as format_backup, BackupLocation};
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::{self as format, Superblock};

/// What a first look at a device tells.
#[derive(Clone)]
pub struct Probe {
    /// The superblock.
    pub superblock: Superblock,
    /// Set if it, or what lies beside it, is not what stands at the first place.
    pub backup: Option<Backup>,
}

/// A copy of superblock and descriptors.
#[derive(Clone)]
pub struct Backup {
    place: BackupLocation,
    /// Why it is used.
    why: String,
    images: Images,
}

impl Probe {
    /// Warns if this is a copy: once, by whoever opens the volume or shows it.
    pub fn warn(&self) {
        if let Some(backup) = &self.backup {
            tracing::warn!("{}", backup.reason());
        }
    }

    /// Why a volume that is opened by it is read-only, if it is.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<String> {
        self.backup.as_ref().map(Backup::reason)
    }

    /// Blocks that take the device's place.
    pub(crate) fn images(&self) -> Images {
        self.backup.as_ref().map(|backup| backup.images.clone()).unwrap_or_default()
    }
}

impl Backup {
    /// What is used, why, and what mends the volume.
    fn reason(&self) -> String {
        let (BackupLocation { block_size, group, block }, why) = (self.place, &self.why);
        format!(
            "{why}: the volume is read by the backup in group {group}, and not written: \
             repair it with e2fsck -b {block} -B {block_size} IMAGE"
        )
    }
}

/// Looks for a volume; `None` if the magic number is not there. If the first superblock is damaged, a backup takes its place.
///
/// # Errors
/// The device cannot be read, or the superblock is damaged and no backup is there.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    let first = first_bytes(device)?;
    if format::magic_of(&first) != Some(format::MAGIC) {
        return Ok(None);
    }
    let decoded = Superblock::decode(&first);
    let wrong = match &decoded {
        Ok(superblock) => Layout::new(superblock, device.geometry().size).err(),
        Err(error) => Some(error.clone()),
    };
    if let Some(wrong) = wrong
        && let Some(found) = search(device, &first, None, &damaged(&wrong))?
    {
        return Ok(Some(found));
    }
    Ok(Some(Probe { superblock: decoded?, backup: None }))
}

/// Looks for a volume of whose first superblock nothing is left, by its backups. For devices that hold nothing else that is known: a
/// volume that another one replaced can have left backups, too.
///
/// # Errors
/// The device cannot be read.
pub fn probe_backups(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    let first = first_bytes(device)?;
    search(device, &first, None, "the first superblock is damaged (its magic number is not there)")
}

/// What the option `sb=` says: the superblock at this KiB of the volume, and the descriptors beside it.
///
/// # Errors
/// The device cannot be read, or no superblock is there that says that it belongs there.
pub fn probe_at(device: &dyn BlockDevice, kib: u64) -> Result<Probe> {
    let none = |why: String| {
        Error::Option(format!("sb={kib}: {why}: give the place of a backup in KiB, or leave sb= out to have one found"))
    };
    let offset = kib.saturating_mul(1024);
    if offset == format::OFFSET {
        let superblock = Superblock::decode(&first_bytes(device)?)?;
        return Ok(Probe { superblock, backup: None });
    }
    let bytes = read_bytes(device, offset, format::SIZE)?.ok_or_else(|| none("beyond the end".into()))?;
    let place = BackupLocation::at(offset, &bytes).filter(|_| format::magic_of(&bytes) == Some(format::MAGIC));
    let place = place.ok_or_else(|| none("no backup superblock is there".into()))?;
    let (superblock, layout) = place.decode(&bytes, device.geometry().size).map_err(|error| none(error.to_string()))?;
    let images = images(device, place, &superblock, &layout, true)?;
    let backup = Backup { place, why: format!("asked for with sb={kib}"), images };
    Ok(Probe { superblock, backup: Some(backup) })
}

/// For a volume whose first superblock is in order and whose descriptors are not: the same with a backup's descriptors.
///
/// # Errors
/// The device cannot be read.
pub(crate) fn with_other_descriptors(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    wrong: &Corrupt,
) -> Result<Option<Probe>> {
    let why = format!("the group descriptors are damaged ({wrong})");
    search(device, &superblock.encode(), Some(superblock), &why)
}

/// The magic number's place, and what stands there.
pub(crate) fn found_magic(device: &dyn BlockDevice) -> u16 {
    first_bytes(device).ok().and_then(|bytes| format::magic_of(&bytes)).unwrap_or(0)
}

fn damaged(wrong: &Corrupt) -> String {
    format!("the first superblock is damaged ({wrong})")
}

/// The first backup whose superblock and descriptors are in order. With a superblock given, only its own volume's count, and its
/// superblock stays in force.
fn search(device: &dyn BlockDevice, first: &[u8], superblock: Option<&Superblock>, why: &str) -> Result<Option<Probe>> {
    let size = device.geometry().size;
    for place in format_backup::locations(first, size) {
        // What cannot be read is no backup, and the next one may be.
        let Ok(Some(bytes)) = read_bytes(device, place.offset(), format::SIZE) else { continue };
        let Ok((copy, layout)) = place.decode(&bytes, size) else { continue };
        if superblock.is_some_and(|known| known.uuid() != copy.uuid()) {
            continue;
        }
        let layout = superblock.and_then(|known| Layout::new(known, size).ok()).unwrap_or(layout);
        match images(device, place, superblock.unwrap_or(&copy), &layout, superblock.is_none()) {
            Ok(images) => {
                let backup = Some(Backup { place, why: why.to_owned(), images });
                return Ok(Some(Probe { superblock: superblock.cloned().unwrap_or(copy), backup }));
            }
            Err(_) => continue,
        }
    }
    Ok(None)
}

/// Blocks of a backup, by the places of those that they stand for: the descriptors, all of which must be in order, and (`whole`) the
/// superblock.
fn images(
    device: &dyn BlockDevice,
    place: BackupLocation,
    superblock: &Superblock,
    layout: &Layout,
    whole: bool,
) -> Result<Images> {
    let block = |pba: Pba| {
        let len = layout.block_size as usize;
        let bytes = read_bytes(device, pba.get().saturating_mul(layout.block_size.into()), len)?;
        let beyond = Corrupt::Superblock { field: "s_blocks_count", value: pba.get(), expected: "beyond the device" };
        bytes.ok_or(Error::from(beyond))
    };
    let mut images: Images = HashMap::new();
    for index in 0..layout.descriptor_blocks() {
        let first = index * layout.descs_per_block();
        let primary = layout.descriptor_block(first);
        let copy = block(layout.descriptor_block_copy(index, place.group).unwrap_or(primary))?;
        let end = first.saturating_add(layout.descs_per_block()).min(layout.groups);
        for group in first..end {
            let at = layout.descriptor_offset(group);
            GroupDesc::decode(copy.get(at..at + layout.desc_size as usize).unwrap_or_default(), group, layout)?;
        }
        images.insert(primary, copy.into());
    }
    if whole {
        let mut first = superblock.clone();
        first.raw.s_block_group_nr = 0.into();
        let pba = layout.superblock_block(0);
        let offset = usize::try_from(format::OFFSET).unwrap_or(0) % layout.block_size as usize;
        let mut bytes = block(pba)?;
        if let Some(at) = bytes.get_mut(offset..offset + format::SIZE) {
            at.copy_from_slice(&first.encode());
        }
        images.insert(pba, bytes.into());
    }
    Ok(images)
}

/// The bytes at the first superblock's place; none if the device is too small.
fn first_bytes(device: &dyn BlockDevice) -> Result<Vec<u8>> {
    Ok(read_bytes(device, format::OFFSET, format::SIZE)?.unwrap_or_default())
}

/// Bytes anywhere; `None` if they lie beyond the end. Block devices take no less than 4 KiB.
fn read_bytes(device: &dyn BlockDevice, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
    const UNIT: u64 = 4096;
    let size = device.geometry().size;
    let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= size) else { return Ok(None) };
    let start = offset / UNIT * UNIT;
    let whole = end.div_ceil(UNIT).saturating_mul(UNIT).min(size) - start;
    let bytes = device.read_at(start, usize::try_from(whole).unwrap_or(usize::MAX))?;
    let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
    Ok(bytes.get(skip..).and_then(|tail| tail.get(..len)).map(<[u8]>::to_vec))
}
