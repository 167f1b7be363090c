//! Changes of a volume that nobody has mounted: its superblock and its journal ([`tune`]), and its
//! size ([`resize()`]).

use std::sync::Arc;

use cairn_block::BlockDevice;

pub(crate) mod options;
mod resize;

pub use resize::resize;

pub use options::{Ext4TuneOptions, OnErrors, Reserved, Resized, SizeWish, TuneOptions, UuidWish};

use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
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

/// The format of a volume that nobody has mounted.
pub(crate) fn known(device: &Arc<dyn BlockDevice>) -> Result<Format, Cause> {
    format::probe(&**device)?.ok_or_else(|| Cause::UnknownFormat { hint: recognise(&**device) })
}
