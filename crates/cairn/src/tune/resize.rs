//! Changes the size of a volume, and of its file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use cairn_base::names::Escaped;
use cairn_base::options::written_size;
use cairn_block::{BlockDevice, ErrorKind};

use super::known;
use super::options::{Resized, SizeWish};
use crate::chain::container;
use crate::error::{Cause, Error, Result};
use crate::format;
use crate::image::{ImageSpec, Location, ObjectImage, Part};
use crate::objects;
use crate::volume::{open_device, runtime};

/// Bytes of a block in a file's count of blocks.
const STAT_BLOCK: u64 = 512;

/// Changes the size of the volume in `image`, which is recovered if it was not unmounted cleanly. A
/// file grows and shrinks with its volume.
///
/// # Errors
/// As [`super::tune`]; the volume cannot have this size, or the host has no room for it.
pub fn resize(image: &ImageSpec, wish: SizeWish) -> Result<Resized> {
    resize_as(image, wish).map_err(|cause| Error::new(image, cause))
}

fn resize_as(image: &ImageSpec, wish: SizeWish) -> Result<Resized, Cause> {
    // Before the image is locked.
    let follows =
        (is_whole_file(image) || object_volume(image).is_some()) && container(image).is_none();
    let device = open(image)?;
    let format = known(&device)?;
    let present = format::size(format, device.clone(), runtime(None))?;
    let room = device.geometry().size;
    let wanted = match wish {
        SizeWish::Bytes(bytes) => bytes,
        SizeWish::More(bytes) => present.saturating_add(bytes),
        SizeWish::Less(bytes) => present.saturating_sub(bytes),
        SizeWish::Most => room,
        SizeWish::Least => format::least_size(format, device.clone(), runtime(None))?,
    };
    format::check_size(format, device.clone(), runtime(None), wanted)?;
    let needed = format::room(format, &device, wanted)?;
    if let Some(needed) = needed.filter(|_| follows) {
        check_host(image, wanted, needed)?;
    }
    let larger = wanted > room;
    let device = if larger {
        drop(device);
        set_file_size(image, wanted, follows)?;
        open(image)?
    } else {
        device
    };
    let done = format::resize(format, device.clone(), runtime(None), wanted);
    let (after, refused) = match done {
        Ok(done) if done.after > wanted && wish != SizeWish::Least => {
            let why = "there is no room for all that lies behind the new end: give a larger size, \
                       or min";
            (done.after, Some(why.to_owned()))
        }
        Ok(done) => (done.after, None),
        // Steps before it were made.
        Err(Cause::Refused(why)) => {
            (format::size(format, device.clone(), runtime(None))?, Some(why))
        }
        Err(Cause::Device(error)) if error.kind == ErrorKind::NoSpace => {
            return Err(host_full(image, needed).unwrap_or(Cause::Device(error)));
        }
        Err(cause) => return Err(cause),
    };
    if !larger && after < present && follows {
        drop(device);
        set_file_size(image, after, follows)?;
    }
    match refused {
        None => Ok(Resized { before: present, after }),
        Some(why) => {
            Err(Cause::Refused(format!("{why}; the volume has {} now", written_size(after))))
        }
    }
}

fn open(image: &ImageSpec) -> Result<Arc<dyn BlockDevice>, Cause> {
    open_device(image, &[], true).map_err(Error::into_cause)
}

/// Refuses a change that may write more than the host has for the holes of the image.
fn check_host(image: &ImageSpec, wanted: u64, needed: u64) -> Result<(), Cause> {
    let Some(found) = file(image) else { return Ok(()) };
    let held = found.blocks().saturating_mul(STAT_BLOCK);
    let holes = found.len().max(wanted).saturating_sub(held);
    let needed = needed.min(holes);
    match host_full(image, Some(needed)) {
        Some(full @ Cause::HostFull { free, .. }) if free < needed => Err(full),
        _ => Ok(()),
    }
}

/// What the host has left; `None` if the image is no file, or the host does not say.
fn host_full(image: &ImageSpec, needed: Option<u64>) -> Option<Cause> {
    file(image)?;
    let stats = rustix::fs::statvfs(image.file()?).ok()?;
    Some(Cause::HostFull { free: stats.f_bavail.checked_mul(stats.f_frsize)?, needed })
}

fn file(image: &ImageSpec) -> Option<Metadata> {
    std::fs::metadata(image.file()?).ok().filter(Metadata::is_file)
}

fn is_whole_file(image: &ImageSpec) -> bool {
    image.part == Part::Whole && file(image).is_some()
}

fn object_volume(image: &ImageSpec) -> Option<&ObjectImage> {
    match &image.location {
        Location::Objects(volume) if image.part == Part::Whole => Some(volume),
        _ => None,
    }
}

/// Gives a file or an object volume the size that its volume will have, or has.
fn set_file_size(image: &ImageSpec, size: u64, follows: bool) -> Result<(), Cause> {
    if let Some(volume) = object_volume(image).filter(|_| follows) {
        return objects::resize(image, volume, size).map_err(Error::into_cause);
    }
    let Some(path) = image.file().filter(|_| follows) else {
        return Err(Cause::Refused(
            "the partition, device or disk is smaller than that: make it larger first (qemu-img \
             resize for qcow2), or give max"
                .into(),
        ));
    };
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|file| {
        file.set_len(size)?;
        file.sync_all()
    })
    .map_err(|error| {
        let operation = format!("resize {}", path.escaped());
        Cause::Open(cairn_block::Error::from_io(operation, error))
    })
}
