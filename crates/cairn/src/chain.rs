//! [`chain()`]: what an image is made of, from what holds the bytes to the volume.

use cairn_luks::Passphrase;

use crate::device::open_linked;
use crate::error::Result;
use crate::image::{ImageSpec, Key};
use crate::keys;
use crate::link::Link;

/// The format of the disk in a file, if the file's bytes are not the disk's. Its size is not that
/// of the file.
pub(crate) fn container(image: &ImageSpec) -> Option<Link> {
    let links = chain(image).ok()?;
    links.into_iter().find(|link| matches!(link.kind, "qcow2" | "zstd" | "LUKS"))
}

/// What an image is made of. The first link holds the bytes; each is in the one before it.
///
/// # Errors
/// The image cannot be opened.
pub fn chain(image: &ImageSpec) -> Result<Vec<Link>> {
    open_linked(image, false).map(|(_, links)| links)
}

/// What another process needs to open an image as this one can: what a descriptor gave or a person
/// typed. `None` if it needs nothing of that kind, or the image cannot be opened for another
/// reason, which the other process will tell.
///
/// # Errors
/// The passphrase is wrong.
pub fn passphrase(image: &ImageSpec) -> Result<Option<Passphrase>> {
    if matches!(image.key, Some(Key::File(_))) {
        return Ok(None);
    }
    let before = keys::asked();
    let opened = open_linked(image, false);
    match (opened, keys::remembered(image)) {
        (Err(error), _) if keys::asked() > before => Err(error),
        (_, Some(found)) => Ok(found),
        _ => Ok(None),
    }
}
