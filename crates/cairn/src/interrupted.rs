//! Repairs that were interrupted: their undo file is beside the image.

use std::path::PathBuf;

use cairn_check::repair::undo;

use crate::image::ImageSpec;

/// What says that a repair of the volume in `image` was interrupted: its undo file is there.
#[must_use]
pub fn interrupted_repair(image: &ImageSpec) -> Option<undo::Error> {
    let left = own_undo_file(image);
    left.exists().then(|| {
        let file = left.display().to_string();
        let command = format!("cairn check --take-back {file} {image}");
        undo::Error::Interrupted { command, file }
    })
}

/// The undo file of a repair for which the user has named none.
pub(crate) fn own_undo_file(image: &ImageSpec) -> PathBuf {
    let mut name = image.path.clone().into_os_string();
    name.push(".cairn-undo");
    name.into()
}
