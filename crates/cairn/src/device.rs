//! Opening one device: the file or block device, its zones, the part of it that an image's name
//! says.

use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, KeptImage, OpenOptions};
use cairn_block::wrap::Partition;
use cairn_block::zoned::{self, HostZoned};
use cairn_block::{BlockDevice, ErrorKind};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Part};
use crate::partition;

/// Opens a single device; with its zones, if it has some.
pub(crate) fn open_one(image: &ImageSpec, write: bool) -> Result<Arc<dyn BlockDevice>> {
    open_at(image, &image.path, write)
}

/// As [`open_one`], by another path to the file or device that `image` names.
pub(crate) fn open_at(image: &ImageSpec, path: &Path, write: bool) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    if write
        && let Some(zoned) = HostZoned::open(path).map_err(|source| error(Cause::Open(source)))?
    {
        return narrow(Arc::new(zoned), image.part).map_err(error);
    }
    let options = OpenOptions { write, lock: true, create_size: None };
    let device = FileDevice::open(path, options).map_err(|source| error(Cause::Open(source)))?;
    part_of(image, device)
}

/// Opens a single image that a mount has locked, for reading. What is read may change, unless the
/// mount is frozen.
pub(crate) fn open_unlocked(image: &ImageSpec) -> Result<Arc<dyn BlockDevice>> {
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device = FileDevice::open(&image.path, options)
        .map_err(|source| Error::new(image, Cause::Open(source)))?;
    part_of(image, device)
}

/// While it lives, no other process may write the image, as while a volume in it is open for
/// writing.
#[derive(Debug)]
#[must_use]
pub struct Claim(#[expect(dead_code, reason = "it holds the lock")] FileDevice);

/// Claims a whole image file that is about to be replaced. What it holds does not matter.
///
/// # Errors
/// Another process uses it, the kernel has mounted it, or it cannot be opened.
pub fn claim(image: &ImageSpec) -> Result<Claim> {
    let open = |write| {
        let options = OpenOptions { write, lock: true, create_size: None };
        FileDevice::open(&image.path, options)
    };
    let opened = open(true).or_else(|error| match error.kind {
        // A file that this user may not write can still be replaced in its directory.
        ErrorKind::PermissionDenied => open(false),
        _ => Err(error),
    });
    opened.map(Claim).map_err(|source| Error::new(image, Cause::Open(source)))
}

/// As [`open_one`], for reading, of an image that is open already.
pub(crate) fn read_kept(image: &ImageSpec, kept: &KeptImage) -> Result<Arc<dyn BlockDevice>> {
    let device = kept.read().map_err(|source| Error::new(image, Cause::Open(source)))?;
    part_of(image, device)
}

fn part_of(image: &ImageSpec, device: FileDevice) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let zoned = zoned::open_image(&device).map_err(|source| error(source.into()))?;
    let device = zoned.map_or(device, |zoned| Arc::new(zoned));
    narrow(device, image.part).map_err(error)
}

fn narrow(device: Arc<dyn BlockDevice>, part: Part) -> Result<Arc<dyn BlockDevice>, Cause> {
    let range = match part {
        Part::Whole => return Ok(device),
        Part::Partition(number) => partition::find(&*device, number)?,
        Part::Offset(offset) => {
            let size = device.geometry().size;
            let len = size.checked_sub(offset).filter(|len| *len > 0);
            partition::Range { offset, len: len.ok_or(Cause::OffsetBeyondEnd { offset, size })? }
        }
    };
    let part = Partition::new(device, range.offset, range.len)?;
    Ok(Arc::new(part))
}
