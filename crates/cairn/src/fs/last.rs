//! The last component of a path, and what Linux says of one that a call cannot take.

use std::io::Result;

use cairn_base::Ino;
use cairn_vfs::{Error, FileKind, FileSystem, walk};

/// The inode at a path. The empty path leads nowhere, as in POSIX.
pub(super) fn resolve(
    fs: &dyn FileSystem,
    path: &[u8],
    follow: bool,
) -> Result<cairn_vfs::Attributes> {
    match path {
        b"" => Err(Error::NotFound.into()),
        path => Ok(walk::resolve(fs, path, follow)?),
    }
}

/// The entry that a path names: its directory, which exists, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'p> {
    pub(super) directory: Ino,
    pub(super) name: &'p [u8],
    /// The path has a slash at its end.
    pub(super) has_slash: bool,
}

/// What a call does with the last component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Makes it, also a directory.
    Make,
    /// Removes it; it is no directory.
    Unlink,
    /// Removes it; it is a directory.
    RemoveDirectory,
    /// Renames it, or gives its name to another.
    Rename,
}

/// The entry that a path names.
///
/// # Errors
/// A directory above does not exist; the path is empty, the root, or ends with `.` or `..`.
pub(super) fn entry<'p>(fs: &dyn FileSystem, path: &'p [u8], used: Use) -> Result<Entry<'p>> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = path.iter().take(end).rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = path.get(start..end).unwrap_or_default();
    let special = match name {
        _ if path.is_empty() => return Err(Error::NotFound.into()),
        b"" | b"." | b".." => Some(name),
        _ => None,
    };
    if let Some(name) = special {
        walk::resolve(fs, path, true)?.kind.check_directory()?;
        return Err(refusal(used, name).into());
    }
    let (parent, name) = walk::resolve_parent(fs, path)?;
    Ok(Entry { directory: parent.ino, name, has_slash: path.ends_with(b"/") })
}

fn refusal(used: Use, name: &[u8]) -> Error {
    match (used, name) {
        (Use::Make, _) => Error::Exists,
        (Use::Unlink, _) => Error::IsDirectory,
        (Use::RemoveDirectory, b".") => Error::Invalid("the path ends with a dot"),
        (Use::RemoveDirectory, b"..") => Error::NotEmpty,
        (Use::RemoveDirectory | Use::Rename, _) => Error::Busy,
    }
}

impl Entry<'_> {
    /// Checks the slash at the end of the path of something new that is no directory.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn check_new_file(&self, fs: &dyn FileSystem) -> Result<()> {
        match self.has_slash {
            false => Ok(()),
            true => Err(self.found(fs).err().unwrap_or(Error::Exists).into()),
        }
    }

    /// Checks the slash at the end of the path of something that is no directory.
    ///
    /// # Errors
    /// There is one, or nothing is there.
    pub(super) fn check_file(&self, fs: &dyn FileSystem) -> Result<()> {
        match self.has_slash {
            false => Ok(()),
            true => Err(match self.found(fs)? {
                FileKind::Directory => Error::IsDirectory,
                _ => Error::NotDirectory,
            }
            .into()),
        }
    }

    fn found(&self, fs: &dyn FileSystem) -> cairn_vfs::Result<FileKind> {
        Ok(walk::lookup(fs, self.directory, self.name)?.kind)
    }
}
