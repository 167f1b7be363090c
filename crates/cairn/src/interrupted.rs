//! Repairs that were interrupted: their undo file is beside the image.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::shell::quoted;
use cairn_check::repair::undo;
use rustix::process::geteuid;

use crate::error::{Cause, Error, Result};
use crate::image::ImageSpec;

/// Bytes of the header of an undo file.
const HEADER_BYTES: u64 = 4096;

/// What says that a repair of the volume in `image` was interrupted: its undo file is there. In a
/// directory that others can write, a file of a stranger says nothing.
#[must_use]
pub fn interrupted_repair(image: &ImageSpec) -> Option<undo::Error> {
    let left = own_undo_file(image)?;
    let owner = std::fs::metadata(image.file()?).ok().map(|found| found.uid());
    let may_repair = |uid: u32| uid == 0 || Some(uid) == owner || uid == geteuid().as_raw();
    let found = std::fs::symlink_metadata(&left).ok()?;
    if !found.is_file() || !may_repair(found.uid()) {
        return None;
    }
    let file = quoted(&left);
    // One that cannot be read may be finished.
    Some(match starts(&left).is_none_or(|start| undo::is_finished(&start)) {
        true => undo::Error::Interrupted { image: quoted(image.to_os_string()), file },
        false => undo::Error::Unfinished { file },
    })
}

/// The start of a file.
fn starts(file: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(HEADER_BYTES).read_to_end(&mut start).ok()?;
    Some(start)
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
