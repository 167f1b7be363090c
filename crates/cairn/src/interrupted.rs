//! Repairs that were interrupted: their undo file is beside the image.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cairn_base::shell::quoted;
use cairn_check::repair::undo;
use rustix::process::geteuid;

use crate::error::{Cause, Error, Result};
use crate::image::ImageSpec;

/// What says that a repair of the volume in `image` was interrupted: its undo file is there. In a
/// directory that others can write, a file of a stranger says nothing.
#[must_use]
pub fn interrupted_repair(image: &ImageSpec) -> Option<undo::Error> {
    let left = own_undo_file(image)?;
    let owner = std::fs::metadata(image.file()?).ok().map(|found| found.uid());
    let may_repair = |uid: u32| uid == 0 || Some(uid) == owner || uid == geteuid().as_raw();
    let found = std::fs::symlink_metadata(&left).ok()?;
    (found.is_file() && may_repair(found.uid())).then(|| undo::Error::Interrupted {
        image: quoted(image.to_os_string()),
        file: quoted(&left),
    })
}

/// Refuses to make another volume in `image` while the undo file of an interrupted repair is there:
/// beside the new volume it would stand for a repair of that.
///
/// # Errors
/// It is there.
pub fn refuse_interrupted(image: &ImageSpec) -> Result<()> {
    match interrupted_repair(image) {
        Some(undo::Error::Interrupted { image: name, file }) => {
            Err(Error::new(image, Cause::Undo(undo::Error::Unwanted { image: name, file })))
        }
        Some(other) => Err(Error::new(image, Cause::Undo(other))),
        None => Ok(()),
    }
}

/// The undo file of a repair for which the user has named none: beside the image.
pub(crate) fn own_undo_file(image: &ImageSpec) -> Option<PathBuf> {
    let mut name = image.file()?.as_os_str().to_owned();
    name.push(".cairn-undo");
    Some(name.into())
}
