//! Repairs that were interrupted: their undo file is beside the image.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cairn_check::repair::undo;
use rustix::process::geteuid;

use crate::image::ImageSpec;

/// What says that a repair of the volume in `image` was interrupted: its undo file is there. In a
/// directory that others can write, a file of a stranger says nothing.
#[must_use]
pub fn interrupted_repair(image: &ImageSpec) -> Option<undo::Error> {
    let left = own_undo_file(image);
    let owner = std::fs::metadata(&image.path).ok().map(|found| found.uid());
    let may_repair = |uid: u32| uid == 0 || Some(uid) == owner || uid == geteuid().as_raw();
    let found = std::fs::symlink_metadata(&left).ok()?;
    (found.is_file() && may_repair(found.uid())).then(|| {
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
