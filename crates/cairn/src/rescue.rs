//! Rescues files of a volume that is damaged, and deleted files. Nothing is written to the image.

use std::path::PathBuf;

use cairn_check::salvage::Salvage;

use crate::dump::format_of;
use crate::error::{Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
use crate::structure::Copies;
use crate::volume::{open_device, runtime};

/// Opens the volume in `image` to rescue files from. `devices`: see
/// [`crate::OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened or is in use, or no superblock of a known format is left in it.
pub fn rescue(
    image: &ImageSpec,
    devices: &[PathBuf],
    copies: Copies,
) -> Result<(Format, Box<dyn Salvage>)> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, false)?;
    let format = format_of(&*device, copies).map_err(error)?;
    let opened = format::rescue(format, device, &runtime(None), copies).map_err(error)?;
    Ok((format, opened))
}
