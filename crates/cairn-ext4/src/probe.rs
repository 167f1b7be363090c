//! Finds the superblock of a volume: the first one, or a backup.
//!
//! A backup is used if the first superblock or the first descriptors are damaged, or by the option
//! `sb=`. The volume is then read-only: a backup is as old as the volume or its last change of
//! size, its counts of free space are wrong, and a repair must copy it over the first one. (Linux
//! writes with `sb=`, although the backup's descriptors do not fit the bitmaps.) In memory the
//! backup replaces the first superblock and descriptors, so that all other code reads the volume as
//! usual.

use std::collections::HashMap;

use cairn_base::Pba;
use cairn_block::{BlockDevice, BlockDeviceExt};
use cairn_jbd2::Images;

use crate::backups::{self, Found};
use crate::corrupt::Corrupt;
use crate::error::{Error, Result};
use crate::format::backup::BackupLocation;
use crate::format::group_desc::GroupDesc;
use crate::format::layout::Layout;
use crate::format::superblock::{self as format, Superblock};

/// The superblock of a device.
#[derive(Clone)]
pub struct Probe {
    /// The superblock.
    pub(crate) superblock: Superblock,
    /// The backup, if the superblock or the descriptors come from one.
    pub(crate) backup: Option<Backup>,
}

/// A backup of superblock and descriptors.
#[derive(Clone)]
pub(crate) struct Backup {
    place: BackupLocation,
    /// Why it is used.
    why: String,
    images: Images,
}

impl Probe {
    /// Warns that a backup is used. The caller opens or shows the volume.
    pub fn warn(&self) {
        if let Some(backup) = &self.backup {
            tracing::warn!("{}", backup.reason());
        }
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> String {
        self.superblock.label()
    }

    /// Why the volume is read-only, if a backup is used.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<String> {
        self.backup.as_ref().map(Backup::reason)
    }

    /// Blocks that replace those of the device.
    pub(crate) fn images(&self) -> Images {
        self.backup.as_ref().map(|backup| backup.images.clone()).unwrap_or_default()
    }
}

/// Why a backup is used where no superblock is.
const NO_MAGIC: &str = "the first superblock is damaged (its magic number is missing)";
/// What gives the volume its superblock back.
const REPAIR: &str = "check and repair it";

impl Backup {
    /// Names the backup, why it is used, and what repairs the volume.
    fn reason(&self) -> String {
        let (BackupLocation { block_size, group, block }, why) = (self.place, &self.why);
        format!(
            "{why}: the backup superblock of group {group} is used, and the volume is read-only: \
             {REPAIR} (or e2fsck -b {block} -B {block_size} IMAGE)"
        )
    }
}

/// Is a superblock in its place, sound or not? Reads nothing else.
///
/// # Errors
/// The device cannot be read.
pub fn is_marked(device: &dyn BlockDevice) -> Result<bool> {
    Ok(format::magic_of(&first_bytes(device)?) == Some(format::MAGIC))
}

/// Is the first superblock one that is used, so that no backup is looked for?
#[must_use]
pub fn is_sound(device: &dyn BlockDevice) -> bool {
    let first = first_bytes(device).unwrap_or_default();
    let size = device.geometry().size;
    Superblock::decode(&first).is_ok_and(|superblock| Layout::new(&superblock, size).is_ok())
}

/// Looks for a volume. `None` if the magic number is missing. If the first superblock is damaged,
/// uses a backup.
///
/// # Errors
/// The device cannot be read, or the superblock is damaged and there is no backup.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    if !is_marked(device)? {
        return Ok(None);
    }
    let first = first_bytes(device)?;
    let decoded = Superblock::decode(&first);
    let wrong = match &decoded {
        Ok(superblock) => Layout::new(superblock, device.geometry().size).err(),
        Err(error) => Some(error.clone()),
    };
    if let Some(wrong) = wrong
        && let Some(found) = search(device, &first, Places::All, &damaged(&wrong))?
    {
        return Ok(Some(found));
    }
    Ok(Some(Probe { superblock: decoded?, backup: None }))
}

/// Looks for the backups of a volume whose first superblock is lost, in usual places: nothing says
/// that there is one, and each place is a read. Use it for devices without another known format,
/// because a volume that was replaced can leave backups.
///
/// # Errors
/// The device cannot be read.
pub fn probe_backups(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    search(device, &first_bytes(device)?, Places::Usual, NO_MAGIC)
}

/// As [`probe_backups`], also in unusual places, if there is none in a usual one. Reads up to
/// 128 MiB: use it where a volume is known to be damaged.
///
/// # Errors
/// The device cannot be read.
pub fn probe_all_backups(device: &dyn BlockDevice) -> Result<Option<Probe>> {
    search(device, &first_bytes(device)?, Places::All, NO_MAGIC)
}

/// Looks for the superblock at `kib` KiB, by the option `sb=`, and the descriptors beside it.
///
/// # Errors
/// [`Error::Option`] if there is no valid superblock for that place; the device cannot be read.
pub fn probe_at(device: &dyn BlockDevice, kib: u64) -> Result<Probe> {
    let none = |why: String| {
        Error::Option(format!(
            "sb={kib}: {why}: give the place of a backup in KiB, or leave sb= out to have one found"
        ))
    };
    let offset = kib.saturating_mul(1024);
    if offset == format::OFFSET {
        let superblock = Superblock::decode(&first_bytes(device)?)?;
        return Ok(Probe { superblock, backup: None });
    }
    let bytes =
        read_bytes(device, offset, format::SIZE)?.ok_or_else(|| none("beyond the end".into()))?;
    let place = BackupLocation::at(offset, &bytes)
        .filter(|_| format::magic_of(&bytes) == Some(format::MAGIC));
    let place = place.ok_or_else(|| none("no backup superblock is there".into()))?;
    let (superblock, layout) =
        place.decode(&bytes, device.geometry().size).map_err(|error| none(error.to_string()))?;
    let images = images(device, place, &superblock, &layout, true)?;
    let backup = Backup { place, why: format!("asked for with sb={kib}"), images };
    Ok(Probe { superblock, backup: Some(backup) })
}

/// Replaces damaged descriptors by those of a backup. The first superblock is valid.
///
/// # Errors
/// The device cannot be read.
pub(crate) fn with_other_descriptors(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    wrong: &Corrupt,
) -> Result<Option<Probe>> {
    let why = format!("the group descriptors are damaged ({wrong})");
    search(device, &superblock.encode(), Places::Of(superblock), &why)
}

/// Refuses a volume whose blocks the device cannot read one by one.
///
/// # Errors
/// They are smaller than its sectors.
pub(crate) fn check_sectors(device: &dyn BlockDevice, layout: &Layout) -> Result<()> {
    let (blocks, sectors) = (layout.block_size, device.geometry().logical_block.max(1));
    if blocks.is_multiple_of(sectors) {
        return Ok(());
    }
    Err(Error::Feature(format!(
        "its blocks of {blocks} bytes are smaller than the sectors of {sectors} bytes of this \
         device, of which Cairn can only check and rescue it: copy it into a file"
    )))
}

/// The number at the place of the magic number.
pub(crate) fn found_magic(device: &dyn BlockDevice) -> u16 {
    first_bytes(device).ok().and_then(|bytes| format::magic_of(&bytes)).unwrap_or(0)
}

fn damaged(wrong: &Corrupt) -> String {
    format!("the first superblock is damaged ({wrong})")
}

/// Where backups are looked for.
enum Places<'a> {
    /// In usual places.
    Usual,
    /// In all places.
    All,
    /// In usual places; only those of this volume count, and its superblock is used.
    Of(&'a Superblock),
}

/// The first backup with valid superblock and descriptors.
fn search(
    device: &dyn BlockDevice,
    first: &[u8],
    places: Places<'_>,
    why: &str,
) -> Result<Option<Probe>> {
    let size = device.geometry().size;
    let (mut found, superblock) = match places {
        Places::Usual => (backups::usual(device, first, size), None),
        Places::All => (backups::all(device, first, size), None),
        Places::Of(superblock) => (backups::usual(device, first, size), Some(superblock)),
    };
    // Not that of an older volume, where that of the younger one has damaged descriptors.
    let Some(uuid) =
        superblock.or(found.first().map(|found| &found.superblock)).map(Superblock::uuid)
    else {
        return Ok(None);
    };
    found.retain(|found| found.superblock.uuid() == uuid);
    for Found { place, superblock: copy, layout, .. } in found {
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

/// Blocks of a backup by the places of the primary ones: the descriptors, all of which must be
/// valid, and the superblock if `whole`.
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
        let beyond = Corrupt::Superblock {
            field: "s_blocks_count",
            value: pba.get(),
            problem: "beyond the device",
        };
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
            GroupDesc::decode(
                copy.get(at..at + layout.desc_size as usize).unwrap_or_default(),
                group,
                layout,
            )?;
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

/// The bytes at the place of the first superblock. Empty if the device is too small.
fn first_bytes(device: &dyn BlockDevice) -> Result<Vec<u8>> {
    Ok(read_bytes(device, format::OFFSET, format::SIZE)?.unwrap_or_default())
}

/// Reads bytes at any offset. `None` if they are beyond the end.
fn read_bytes(device: &dyn BlockDevice, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > device.geometry().size) {
        return Ok(None);
    }
    Ok(Some(device.read_bytes(offset, len)?.to_vec()))
}
