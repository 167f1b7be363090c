//! Opening one device: the file or block device, its zones, the part of it that an image's name
//! says.

use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, KeptImage, LoopDevice, OpenOptions};
use cairn_block::wrap::Partition;
use cairn_block::zoned::{self, HostZoned};
use cairn_block::{BlockDevice, ErrorKind};

use crate::error::{Cause, Error, Result};
use crate::image::{ImageSpec, Location, Part};
use crate::partition;

/// Opens a single device; with its zones, if it has some.
pub(crate) fn open_one(image: &ImageSpec, write: bool) -> Result<Arc<dyn BlockDevice>> {
    match &image.location {
        Location::File(path) => open_at(image, path, write, true),
    }
}

/// As [`open_one`], by another path to the file or device that `image` names. `claim`: a block
/// device that is written is claimed, too.
pub(crate) fn open_at(
    image: &ImageSpec,
    path: &Path,
    write: bool,
    claim: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    if write
        && let Some(zoned) = HostZoned::open(path).map_err(|source| error(Cause::Open(source)))?
    {
        return narrow(Arc::new(zoned), image.part).map_err(error);
    }
    let options = OpenOptions { write, claim, ..OpenOptions::default() };
    let device = FileDevice::open(path, options).map_err(|source| error(Cause::Open(source)))?;
    part_of(image, Arc::new(device))
}

/// Opens a single image that a mount has locked, for reading. What is read may change, unless the
/// mount is frozen.
pub(crate) fn open_unlocked(image: &ImageSpec) -> Result<Arc<dyn BlockDevice>> {
    let Location::File(path) = &image.location;
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device =
        FileDevice::open(path, options).map_err(|source| Error::new(image, Cause::Open(source)))?;
    part_of(image, Arc::new(device))
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
    let Location::File(path) = &image.location;
    let open = |write| FileDevice::open(path, OpenOptions { write, ..OpenOptions::default() });
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
    part_of(image, Arc::new(device))
}

fn part_of(image: &ImageSpec, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    let error = |cause| Error::new(image, cause);
    let zoned = zoned::open_image(&device).map_err(|source| error(source.into()))?;
    let device = zoned.map_or(device, |zoned| Arc::new(zoned));
    narrow(device, image.part).map_err(error)
}

fn narrow(device: Arc<dyn BlockDevice>, part: Part) -> Result<Arc<dyn BlockDevice>, Cause> {
    let Some(range) = range_of(&*device, part)? else { return Ok(device) };
    let part = Partition::new(device, range.offset, range.len)?;
    Ok(Arc::new(part))
}

/// Where a part of a device is; `None` for all of it.
fn range_of(device: &dyn BlockDevice, part: Part) -> Result<Option<partition::Range>, Cause> {
    match part {
        Part::Whole => Ok(None),
        Part::Partition(number) => partition::find(device, number).map(Some),
        Part::Offset(offset) => {
            let size = device.geometry().size;
            let len = size.checked_sub(offset).filter(|len| *len > 0);
            let len = len.ok_or(Cause::OffsetBeyondEnd { offset, size })?;
            Ok(Some(partition::Range { offset, len }))
        }
    }
}

/// Makes a loop device of the image, for the kernel to claim. Needs root.
///
/// # Errors
/// The image is no file of this system, cannot be opened or has no such part; the system refuses a
/// loop device.
pub fn attach(image: &ImageSpec, write: bool) -> Result<LoopDevice> {
    let error = |cause| Error::new(image, cause);
    let Location::File(path) = &image.location;
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device = FileDevice::open(path, options).map_err(|source| error(Cause::Open(source)))?;
    let range = range_of(&device, image.part).map_err(error)?;
    let (offset, len) = range.map_or((0, None), |range| (range.offset, Some(range.len)));
    LoopDevice::attach(path, offset, len, write).map_err(|source| error(Cause::Open(source)))
}
