//! [`chain()`]: what an image is made of, from what holds the bytes to the volume.

use crate::device::open_linked;
use crate::error::Result;
use crate::image::ImageSpec;
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
