//! Makes a volume: creates the image file if it does not exist, then calls the format's mkfs.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::names::Escaped;
use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions as FileOptions};
use cairn_block::zoned::{self, ZoneLayout};
use cairn_images::qcow2::{self, CreateOptions};
use uuid::Uuid;

use crate::chain::container;
use crate::contents::contents;
use crate::device::{open_one, open_or_raw, refuse_closed_container, refuse_encrypted_container};
use crate::error::{Cause, Error, Result};
use crate::format;
use crate::host;
use crate::image::{DiskFormat, ImageSpec, Location, ObjectImage, Part, Transfers};
use crate::interrupted::refuse_interrupted;
use crate::objects;
use crate::volume::runtime;

pub(crate) mod options;

/// Why a part of an image gets no size.
const OF_WHOLE: &str = "a size is that of a whole image: a partition has the size its table says";

pub use options::{ImageZones, MkfsOptions, Tuning};

/// Makes a volume in `image`. If that fails, a file that was created for it is removed, and one
/// that was enlarged for it has its size again.
///
/// # Errors
/// The image holds something that would be lost, or a repair of it was interrupted; it cannot be
/// created or is in use, the parameters do not fit, or the device fails.
pub fn mkfs(image: &ImageSpec, options: &MkfsOptions) -> Result<()> {
    if !options.overwrite {
        let further = options.devices.iter().map(ImageSpec::whole);
        for image in std::iter::once(image.clone()).chain(further) {
            refuse_encrypted_container(&image)?;
            if let Some(found) = contents(&image)? {
                return Err(Error::new(&image, Cause::WouldOverwrite { found }));
            }
        }
    }
    if let Some(path) = image.file() {
        place(path).map_err(|cause| Error::new(image, cause))?;
    }
    refuse_interrupted(image)?;
    let Some(path) = image.file().filter(|_| options.size.is_some()) else {
        return make(image, options);
    };
    let found = std::fs::metadata(path);
    // A link that the system does not follow leads to a file that may be there.
    let existed = !matches!(&found, Err(error) if error.kind() == ErrorKind::NotFound);
    let before = found.ok().filter(Metadata::is_file).map(|file| file.len());
    let made = make(image, options);
    match (&made, before) {
        // A device keeps its size.
        (Err(_), Some(len)) => shrink_to(path, len),
        (Err(_), None) if !existed => remove(path),
        _ => {}
    }
    made
}

/// The file that gets the volume, which another user's link in a shared directory cannot choose.
fn place(path: &Path) -> Result<PathBuf, Cause> {
    let operation = format!("open {}", path.escaped());
    host::behind_links(path)
        .map_err(|error| Cause::Open(cairn_block::Error::from_io(operation, error)))
}

/// Makes an empty file where there was none, and follows no link that was put there meanwhile.
fn create(path: &Path) -> Result<(), Cause> {
    match File::options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let operation = format!("open {}", path.escaped());
            Err(Cause::Open(cairn_block::Error::from_io(operation, error)))
        }
        _ => Ok(()),
    }
}

/// Best effort: the user gets the error that led here.
fn shrink_to(path: &Path, len: u64) {
    if let Ok(file) = File::options().write(true).open(path)
        && file.metadata().is_ok_and(|now| now.len() > len)
    {
        let _ = file.set_len(len);
    }
}

/// Best effort, as [`shrink_to`]. If the name is a link, its target was created, not the link.
fn remove(path: &Path) {
    if let Ok(path) = std::fs::canonicalize(path) {
        let _ = std::fs::remove_file(path);
    }
}

fn make(image: &ImageSpec, options: &MkfsOptions) -> Result<()> {
    let new = match &image.location {
        Location::Objects(volume) if options.size.is_some() => {
            objects::size(image, volume)?.is_none().then_some(volume)
        }
        _ => None,
    };
    let mut devices = vec![(image.name(), device_for(image, options)?)];
    let make = || {
        for path in &options.devices {
            devices.push((path.clone(), open_one(&ImageSpec::whole(path), true)?));
        }
        make_on(devices, options).map_err(|cause| Error::new(image, cause))
    };
    make().inspect_err(|_| new.map_or((), |volume| objects::undo(volume)))
}

/// Makes a volume on a device of the caller's, whatever it holds. Its size is the device's.
///
/// # Errors
/// The parameters do not fit, or the device fails.
pub fn mkfs_on(device: Arc<dyn BlockDevice>, options: &MkfsOptions) -> Result<(), Cause> {
    make_on(vec![(PathBuf::new(), device)], options)
}

fn make_on(
    devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    options: &MkfsOptions,
) -> Result<(), Cause> {
    let options =
        MkfsOptions { uuid: options.uuid.or_else(|| fixed_uuid(options)), ..options.clone() };
    format::make(devices, &options, &*runtime(options.time))
}

/// If the time is given, a UUID that depends only on time, label, size and format.
fn fixed_uuid(options: &MkfsOptions) -> Option<Uuid> {
    let label = options.label.as_deref().unwrap_or_default();
    let name = format!("{} {} {:?} {label}", options.time?, options.format, options.size);
    Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

pub(crate) fn device_for(image: &ImageSpec, options: &MkfsOptions) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    if options.size.is_some() && image.key.is_some() {
        return Err(error(Cause::Option(
            "a size makes a new disk, which is not encrypted: encrypt one first (cryptsetup \
             luksFormat), and give no size"
                .into(),
        )));
    }
    if let Location::Objects(volume) = &image.location {
        return object_volume(image, volume, options);
    }
    let Some(path) = image.file() else {
        return match options.size {
            None => open_one(image, true),
            Some(_) => Err(error(Cause::Option(
                "a size makes a file of that size, and this image has one: give none".into(),
            ))),
        };
    };
    let Some(size) = options.size else {
        if !path.exists() {
            return Err(error(Cause::NoSize { what: "the image does not exist".into() }));
        }
        let file = std::fs::metadata(path);
        if image.part == Part::Whole && file.is_ok_and(|file| file.is_file() && file.len() == 0) {
            return Err(error(Cause::NoSize { what: "the image is empty".into() }));
        }
        return open_or_raw(image, true);
    };
    if image.part != Part::Whole {
        return Err(error(Cause::Option(OF_WHOLE.into())));
    }
    if let Some(link) = container(image) {
        let hint =
            format!("a size is that of a file which is the disk, and this is {link}: give none");
        return Err(error(Cause::Option(hint)));
    }
    if i64::try_from(size).is_err() {
        let hint = format!("no file has {size} bytes: give a smaller size");
        return Err(error(Cause::Option(hint)));
    }
    refuse_closed_container(image)?;
    match std::fs::metadata(path) {
        // The file is not shortened, because that could not be undone.
        Ok(file) if file.is_file() && file.len() > size && options.zones.is_none() => {
            let hint = format!(
                "the file has {} bytes, more than the size that is asked for: give none, or remove \
                 the file first",
                file.len()
            );
            return Err(error(Cause::Option(hint)));
        }
        Ok(_) => {}
        Err(_) => {
            check_directory(path).map_err(error)?;
            create(&place(path).map_err(error)?).map_err(error)?;
        }
    }
    if let Some(zones) = &options.zones {
        return zoned_image(path, size, zones).map_err(error);
    }
    if is_new_qcow2(image, path) {
        create_qcow2(path, size).map_err(error)?;
        return open_one(image, true);
    }
    sized_file(image, path, size)
}

/// A file of this size, opened as the image's name says.
fn sized_file(image: &ImageSpec, path: &Path, size: u64) -> Result<Arc<dyn BlockDevice>> {
    let opened = FileDevice::open(path, FileOptions::create(size));
    let device = opened.map_err(|source| Error::new(image, Cause::Open(source)))?;
    if image.transfers == Transfers::Unsaid {
        return Ok(Arc::new(device));
    }
    drop(device);
    open_one(image, true)
}

/// Opens an object volume. One that is not there is made, if its size is given.
fn object_volume(
    image: &ImageSpec,
    volume: &ObjectImage,
    options: &MkfsOptions,
) -> Result<Arc<dyn BlockDevice>> {
    let refused = |why: String| Err(Error::new(image, Cause::Option(why)));
    if options.zones.is_some() {
        return refused("zones are those of a file or device: leave them out".into());
    }
    match (objects::size(image, volume)?, options.size) {
        (None, None) => {
            let name = &volume.address.volume;
            Err(Error::new(image, Cause::NoSize { what: format!("there is no volume {name}") }))
        }
        (_, Some(_)) if image.part != Part::Whole => refused(OF_WHOLE.into()),
        (None, Some(size)) => {
            objects::create(image, volume, size)?;
            open_one(image, true)
        }
        (Some(found), Some(size)) if found != size => refused(format!(
            "the volume has {found} bytes: give no size, or remove the volume first"
        )),
        (Some(_), _) => open_or_raw(image, true),
    }
}

/// True if the name is that of a qcow2 disk, and nothing is there yet.
fn is_new_qcow2(image: &ImageSpec, path: &Path) -> bool {
    let is_named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("qcow2"));
    let is_empty = std::fs::metadata(path).map_or(true, |file| file.is_file() && file.len() == 0);
    is_named && is_empty && image.format == DiskFormat::ByContent
}

/// Makes an empty qcow2 disk.
fn create_qcow2(path: &Path, size: u64) -> Result<(), Cause> {
    let device = FileDevice::open(path, FileOptions::create(0)).map_err(Cause::Open)?;
    qcow2::create(Arc::new(device), &CreateOptions::new(size))
        .map_err(|error| Cause::Option(error.to_string()))
}

/// Refuses a path whose directory does not exist.
fn check_directory(path: &Path) -> Result<(), Cause> {
    let directory =
        path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir());
    directory.map_or(Ok(()), |directory| {
        let detail =
            format!("the directory {} does not exist: create it first", directory.escaped());
        let operation = format!("open {}", path.escaped());
        let kind = cairn_block::ErrorKind::NotFound;
        Err(Cause::Open(cairn_block::Error::new(kind, operation, detail)))
    })
}

/// Creates an image file with zones of `size` bytes in all.
fn zoned_image(path: &Path, size: u64, wanted: &ImageZones) -> Result<Arc<dyn BlockDevice>, Cause> {
    let zones = size
        .checked_div(wanted.size)
        .and_then(|zones| u32::try_from(zones).ok())
        .filter(|zones| *zones > 0);
    let zones = zones.ok_or_else(|| {
        Cause::Option("the size must be that of at least one zone, and of fewer than 2^32".into())
    })?;
    let layout = ZoneLayout {
        capacity: wanted.capacity.unwrap_or(wanted.size),
        max_open: wanted.max_open,
        max_active: wanted.max_active,
        ..ZoneLayout::new(wanted.size, wanted.conventional, zones)
    };
    // Before the file is touched.
    layout.check().map_err(|error| {
        Cause::Option(format!("these zones are not possible: {}", error.detail))
    })?;
    let options = FileOptions::create(layout.image_size());
    let device = FileDevice::open(path, options).map_err(Cause::Open)?;
    Ok(Arc::new(zoned::create_image(Arc::new(device), layout)?))
}
