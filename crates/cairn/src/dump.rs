//! Shows single structures of a volume, and its journal. Nothing is written, and the volume need
//! not mount.

use std::path::PathBuf;

use cairn_check::Fields;

use crate::contents::unknown;
use crate::error::{Cause, Error, Result};
use crate::format::{self, Format};
use crate::image::ImageSpec;
use crate::recognise::recognise;
use crate::structure::{Copies, Structure};
use crate::volume::open_device;

/// Shows a structure of the volume in `image`. `devices`: see [`crate::OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened or is in use, holds no volume of a known format, or no such
/// structure.
pub fn dump(
    image: &ImageSpec,
    devices: &[PathBuf],
    copies: Copies,
    structure: &Structure,
) -> Result<(Format, Fields)> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, false)?;
    let format = format_of(&*device, copies).map_err(error)?;
    Ok((format, format::dump(format, device, copies, structure).map_err(error)?))
}

/// Shows the journal of the volume in `image`, or what F2FS has in its place.
///
/// # Errors
/// As [`dump`]; the volume has no journal.
pub fn journal(image: &ImageSpec, devices: &[PathBuf], copies: Copies) -> Result<(Format, Fields)> {
    let error = |cause| Error::new(image, cause);
    let device = open_device(image, devices, false)?;
    let format = format_of(&*device, copies).map_err(error)?;
    Ok((format, format::journal(format, device, copies).map_err(error)?))
}

/// The format of a volume, of which the first superblock may be damaged or gone.
pub(crate) fn format_of(
    device: &dyn cairn_block::BlockDevice,
    copies: Copies,
) -> Result<Format, Cause> {
    // F2FS has superblocks in blocks 0 and 1 only.
    if copies.group.is_some() || copies.superblock.is_some_and(|block| block > 1) {
        return Ok(Format::Ext4);
    }
    if copies.pack.is_some() {
        return Ok(Format::F2fs);
    }
    // A damaged superblock is an error of the probe, but still says what the volume is.
    match format::probe_damaged(device) {
        Ok(Some(format)) | Err(Cause::Format { format, .. }) => Ok(format),
        Ok(None) => match recognise(device) {
            None if cairn_ext4::rescue::has_unusual_backup(device) => Ok(Format::Ext4),
            hint => Err(Cause::UnknownFormat { hint: hint.or_else(|| unknown(device)) }),
        },
        Err(error) => Err(error),
    }
}
