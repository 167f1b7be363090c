//! Changes of a volume that nobody has mounted: its superblock and its journal ([`tune`]), and its
//! size ([`resize`]).

use std::sync::Arc;

use cairn_block::BlockDevice;

pub(crate) mod options;

pub use options::{Ext4TuneOptions, OnErrors, Reserved, Resized, SizeWish, TuneOptions, UuidWish};

use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::{ImageSpec, Part};
use crate::recognise::recognise;
use crate::volume::{open_device, runtime};

/// Changes the volume in `image`, which is recovered if it was not unmounted cleanly. Nothing is
/// written if something asked for is not possible.
///
/// # Errors
/// The image cannot be opened or is in use, holds no known volume, or the volume cannot have what
/// is asked for.
pub fn tune(image: &ImageSpec, options: &TuneOptions) -> Result<()> {
    let device = open_device(image, &options.devices, true)?;
    let tuned = known(&device).and_then(|format| {
        let runtime = runtime(None);
        let random = || {
            let bits = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
            uuid::Builder::from_random_bytes(bits.to_le_bytes()).into_uuid()
        };
        let uuid = options.uuid.map(|wish| match wish {
            UuidWish::Is(uuid) => uuid,
            UuidWish::Random => random(),
        });
        format::tune(format, device.clone(), runtime.clone(), options, uuid)
    });
    tuned.map_err(|cause| Error::new(image, cause))
}

/// Changes the size of the volume in `image`, which is recovered if it was not unmounted cleanly. A
/// file grows and shrinks with its volume.
///
/// # Errors
/// As [`tune`]; the volume cannot have this size, or the host has no room for it.
pub fn resize(image: &ImageSpec, wish: SizeWish) -> Result<Resized> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, &[], true)?;
    let format = known(&device).map_err(error)?;
    let present = format::size(format, device.clone(), runtime(None)).map_err(error)?;
    let room = device.geometry().size;
    let wanted = match wish {
        SizeWish::Bytes(bytes) => bytes,
        SizeWish::More(bytes) => present.saturating_add(bytes),
        SizeWish::Most => room,
        SizeWish::Least => {
            format::least_size(format, device.clone(), runtime(None)).map_err(error)?
        }
    };
    if wanted > room {
        format::check_size(format, device.clone(), runtime(None), wanted).map_err(error)?;
        drop(device);
        set_file_size(image, wanted).map_err(error)?;
        let device = open_device(image, &[], true)?;
        return format::resize(format, device, runtime(None), wanted).map_err(error);
    }
    let done = format::resize(format, device.clone(), runtime(None), wanted).map_err(error)?;
    if done.after < done.before && is_whole_file(image) {
        drop(device);
        set_file_size(image, done.after).map_err(error)?;
    }
    Ok(done)
}

/// The format of a volume that nobody has mounted.
pub(crate) fn known(device: &Arc<dyn BlockDevice>) -> Result<Format, Cause> {
    format::probe(&**device)?.ok_or_else(|| Cause::UnknownFormat { hint: recognise(&**device) })
}

fn is_whole_file(image: &ImageSpec) -> bool {
    let found = std::fs::metadata(&image.path);
    image.part == Part::Whole && found.is_ok_and(|found| found.is_file())
}

/// Gives a file the size that its volume will have, or has.
fn set_file_size(image: &ImageSpec, size: u64) -> Result<(), Cause> {
    if !is_whole_file(image) {
        return Err(Cause::Option(
            "the partition or device is smaller than that: make it larger first, or give max"
                .into(),
        ));
    }
    let path = &image.path;
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|file| {
        file.set_len(size)?;
        file.sync_all()
    })
    .map_err(|error| {
        let operation = format!("resize {}", path.display());
        Cause::Open(cairn_block::Error::from_io(operation, error))
    })
}
