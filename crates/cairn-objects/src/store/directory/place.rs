//! Where an object's file is, and opening it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cairn_base::host;
use rustix::fs::OFlags;

/// The file of a name below `root`, behind the links that are followed.
pub(super) fn behind(root: &Path, name: &str) -> io::Result<PathBuf> {
    let below = |place: PathBuf, part| host::behind_links(&place.join(part));
    name.split('/').try_fold(host::behind_links(root)?, below)
}

/// The file of a name below `root`, which may be a link itself.
pub(super) fn unfollowed(root: &Path, name: &str) -> io::Result<PathBuf> {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    Ok(behind(root, folder)?.join(last))
}

/// Opens a file, and neither a link that has taken its place meanwhile nor a pipe, which would wait
/// for a writer.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}
