//! The list of what a run has made on an image for its mounts. It is an attribute of the root
//! directory until all of it was removed. If the run is killed, its server removes what is listed
//! before it closes the volume. If that is killed too, the next run does when it opens the volume.

use cairn::FileSystem;
use cairn_vfs::{FileKind, Result, walk};

/// The attribute: paths, with NUL behind each.
pub(super) const LIST: &str = "user.cairn.run";

/// Removes what is listed, and the list. The command may have put something in, which stays.
pub(super) fn remove_leftovers(fs: &dyn FileSystem) {
    let Ok(list) = fs.getxattr(fs.root(), LIST.as_bytes()) else { return };
    for path in list.split(|byte| *byte == 0).rev().filter(|path| !path.is_empty()) {
        if let Err(error) = remove(fs, path) {
            tracing::debug!("{} of a run that was killed stays: {error}", path.escape_ascii());
        }
    }
    if let Err(error) = fs.removexattr(fs.root(), LIST.as_bytes()) {
        tracing::debug!("the list of a run that was killed stays: {error}");
    }
}

fn remove(fs: &dyn FileSystem, path: &[u8]) -> Result<()> {
    let (parent, name) = walk::resolve_parent(fs, path)?;
    let found = walk::lookup(fs, parent.ino, name)?;
    match found.kind {
        FileKind::Directory => fs.rmdir(parent.ino, name),
        FileKind::Regular if found.size == 0 => fs.unlink(parent.ino, name),
        _ => Ok(()),
    }
}
