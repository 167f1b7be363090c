//! Making a volume: creates the image file if absent, then lets the format write itself.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions as FileOptions};
use cairn_block::zoned::{self, ZoneLayout};
use uuid::Uuid;

use crate::contents::contents;
use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::{ImageSpec, Part};
use crate::volume::{open_one, runtime};

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Format.
    pub format: Format,
    /// Label: at most 16 bytes on ext4, 511 UTF-16 units on F2FS.
    pub label: Option<String>,
    /// UUID; random if absent.
    pub uuid: Option<Uuid>,
    /// Features to add, or with `^` to leave out, relative to the defaults; in mke2fs's or mkfs.f2fs's words.
    pub features: Vec<String>,
    /// Bytes a block; chosen by size if absent.
    pub block_size: Option<u32>,
    /// Size of the image file in bytes: needed to create one, and resizes one that is there.
    pub size: Option<u64>,
    /// F2FS: per cent of the main area kept for cleaning; what leaves users most if absent.
    pub overprovision: Option<f64>,
    /// F2FS: segments a section; 1 if absent.
    pub segments_per_section: Option<u32>,
    /// F2FS: sections a zone; 1 if absent.
    pub sections_per_zone: Option<u32>,
    /// F2FS: more nodes on a large volume.
    pub large_nat_bitmap: bool,
    /// F2FS: for devices with zones that must be written in order.
    pub zoned: bool,
    /// F2FS on such devices: sections kept for cleaning.
    pub reserved_sections: Option<u32>,
    /// Make the image one with zones, all empty.
    pub zones: Option<ImageZones>,
    /// F2FS: devices behind the first one, as the next mount shall find them.
    pub devices: Vec<PathBuf>,
    /// Owner and group of the root directory; 0 and 0 if absent.
    pub root_owner: Option<(u32, u32)>,
    /// Time of all timestamps, in seconds since 1970; now if absent. If given, nothing is left to chance: the same options make the same
    /// bytes, the UUID (if it is absent) following from time, label and size.
    pub time: Option<i64>,
    /// Replace what the devices hold; without it, whatever is found there is [`Cause::WouldOverwrite`].
    pub overwrite: bool,
}

/// The zones of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageZones {
    /// Bytes of each.
    pub size: u64,
    /// Bytes of a sequential one that can be written; all of them if absent.
    pub capacity: Option<u64>,
    /// Those that can be written anywhere; they come first.
    pub conventional: u32,
    /// Zones that can be open at once; 0: any number.
    pub max_open: u32,
    /// Zones that can be neither empty nor full at once; 0: any number.
    pub max_active: u32,
}

impl MkfsOptions {
    /// The defaults of `format`.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self {
            format,
            label: None,
            uuid: None,
            features: Vec::new(),
            block_size: None,
            size: None,
            overprovision: None,
            segments_per_section: None,
            sections_per_zone: None,
            large_nat_bitmap: false,
            zoned: false,
            reserved_sections: None,
            zones: None,
            devices: Vec::new(),
            root_owner: None,
            time: None,
            overwrite: false,
        }
    }

    /// For a format that has no segments.
    pub(crate) fn refuse_f2fs_options(&self) -> Result<(), Cause> {
        let given = [
            (self.overprovision.is_some(), "overprovision"),
            (self.segments_per_section.is_some(), "segments per section"),
            (self.sections_per_zone.is_some(), "sections per zone"),
            (self.large_nat_bitmap, "large NAT bitmap"),
            (self.zoned, "zones"),
            (self.reserved_sections.is_some(), "reserved sections"),
            (!self.devices.is_empty(), "further devices"),
        ];
        match given.into_iter().find(|(given, _)| *given) {
            Some((_, what)) => Err(Cause::Option(format!("{} has no {what}: that is an option of f2fs", self.format))),
            None => Ok(()),
        }
    }
}

/// Makes a volume in `image`. If that fails, a file that was created for it is removed, and one that was enlarged for it has its size again.
///
/// # Errors
/// The image holds something that would be lost, it cannot be created or is in use, the parameters do not fit, or the device fails.
pub fn mkfs(image: &ImageSpec, options: &MkfsOptions) -> Result<()> {
    if !options.overwrite {
        let further = options.devices.iter().map(ImageSpec::whole);
        for image in std::iter::once(image.clone()).chain(further) {
            if let Some(found) = contents(&image)? {
                return Err(Error::new(&image, Cause::WouldOverwrite { found }));
            }
        }
    }
    let before =
        options.size.map(|_| std::fs::metadata(&image.path).ok().filter(Metadata::is_file).map(|file| file.len()));
    let existed = image.path.exists();
    let made = make(image, options);
    match (&made, before) {
        // A device keeps its size.
        (Err(_), Some(Some(len))) => shrink_to(&image.path, len),
        (Err(_), Some(None)) if !existed => remove(&image.path),
        _ => {}
    }
    made
}

/// Best effort: the failure that led here is what the user hears of.
fn shrink_to(path: &Path, len: u64) {
    if let Ok(file) = File::options().write(true).open(path)
        && file.metadata().is_ok_and(|now| now.len() > len)
    {
        let _ = file.set_len(len);
    }
}

/// As [`shrink_to`]. Where the name is a link, what it leads to was created, not the link.
fn remove(path: &Path) {
    if let Ok(path) = std::fs::canonicalize(path) {
        let _ = std::fs::remove_file(path);
    }
}

fn make(image: &ImageSpec, options: &MkfsOptions) -> Result<()> {
    let mut devices = vec![(image.path.clone(), device_for(image, options)?)];
    for path in &options.devices {
        devices.push((path.clone(), open_one(&ImageSpec::whole(path), true)?));
    }
    let options = MkfsOptions { uuid: options.uuid.or_else(|| fixed_uuid(options)), ..options.clone() };
    let runtime = runtime(options.time);
    format::make(devices, &options, &*runtime).map_err(|cause| Error::new(image, cause))
}

/// With the time given: a UUID that is the same for the same volume, and another for another label, size or format.
fn fixed_uuid(options: &MkfsOptions) -> Option<Uuid> {
    let label = options.label.as_deref().unwrap_or_default();
    let name = format!("{} {} {:?} {label}", options.time?, options.format, options.size);
    Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

fn device_for(image: &ImageSpec, options: &MkfsOptions) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    let Some(size) = options.size else {
        if !image.path.exists() {
            let hint = "the image does not exist: give its size, as in --size 1G";
            return Err(error(Cause::Option(hint.into())));
        }
        let file = std::fs::metadata(&image.path);
        if image.part == Part::Whole && file.is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Err(error(Cause::Option("the image is empty: give its size, as in --size 1G".into())));
        }
        return open_one(image, true);
    };
    if image.part != Part::Whole {
        let hint = "--size sets the size of a whole image; a partition has the size its table says";
        return Err(error(Cause::Option(hint.into())));
    }
    match std::fs::metadata(&image.path) {
        // Nothing of it is cut off: that could not be undone.
        Ok(file) if file.is_file() && file.len() > size && options.zones.is_none() => {
            let hint = format!(
                "the file has {} bytes, more than --size says: leave --size out, or remove it first",
                file.len()
            );
            return Err(error(Cause::Option(hint)));
        }
        Ok(_) => {}
        Err(_) => check_directory(&image.path).map_err(error)?,
    }
    if let Some(zones) = &options.zones {
        return zoned_image(image, size, zones).map_err(error);
    }
    let options = FileOptions { write: true, lock: true, create_size: Some(size) };
    let device = FileDevice::open(&image.path, options).map_err(|source| error(Cause::Open(source)))?;
    Ok(Arc::new(device))
}

/// A file is not made where there is no directory for it.
fn check_directory(path: &Path) -> Result<(), Cause> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir());
    directory.map_or(Ok(()), |directory| {
        let detail = format!("the directory {} is not there: make it first", directory.display());
        let operation = format!("open {}", path.display());
        Err(Cause::Open(cairn_block::Error::new(cairn_block::ErrorKind::Io, operation, detail)))
    })
}

/// An image whose zones have `size` bytes together: a file that is made for it.
fn zoned_image(image: &ImageSpec, size: u64, wanted: &ImageZones) -> Result<Arc<dyn BlockDevice>, Cause> {
    let zones = size.checked_div(wanted.size).and_then(|zones| u32::try_from(zones).ok()).filter(|zones| *zones > 0);
    let zones =
        zones.ok_or_else(|| Cause::Option("the size must have room for zones, and for fewer than 2^32".into()))?;
    let layout = ZoneLayout {
        capacity: wanted.capacity.unwrap_or(wanted.size),
        max_open: wanted.max_open,
        max_active: wanted.max_active,
        ..ZoneLayout::new(wanted.size, wanted.conventional, zones)
    };
    // Before the file is touched.
    layout.check().map_err(|error| Cause::Option(format!("zones cannot be like that: {}", error.detail)))?;
    let options = FileOptions { write: true, lock: true, create_size: Some(layout.image_size()) };
    let device = FileDevice::open(&image.path, options).map_err(Cause::Open)?;
    Ok(Arc::new(zoned::create_image(Arc::new(device), layout)?))
}
