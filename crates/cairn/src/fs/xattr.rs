//! Extended attributes.

use std::io::Result;

use cairn_vfs::name::NAME_MAX;
use cairn_vfs::{Error, XattrMode};

use super::last::resolve;
use super::path::AsPath;
use crate::volume::Volume;

/// Longest value on Linux.
const VALUE_MAX: usize = 64 * 1024;

/// What Linux refuses on any filesystem.
fn check(name: &[u8], value: &[u8]) -> Result<()> {
    match () {
        () if name.is_empty() || name.len() > NAME_MAX => Err(Error::Range.into()),
        () if value.len() > VALUE_MAX => Err(Error::TooBig.into()),
        () => Ok(()),
    }
}

impl Volume {
    /// An extended attribute by its full name (`user.note`); a symbolic link's own. `None` if there
    /// is none of that name.
    ///
    /// # Errors
    /// The path leads to no file, no attribute can have this name, or the attributes cannot be
    /// read.
    pub fn xattr(&self, path: impl AsPath, name: impl AsPath) -> Result<Option<Vec<u8>>> {
        check(name.as_path_bytes(), b"")?;
        let fs = self.here()?;
        let found = resolve(&**fs, path.as_path_bytes(), false)?;
        match fs.getxattr(found.ino, name.as_path_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// The path leads to no file, or the attributes cannot be read.
    pub fn list_xattrs(&self, path: impl AsPath) -> Result<Vec<Vec<u8>>> {
        let fs = self.here()?;
        let found = resolve(&**fs, path.as_path_bytes(), false)?;
        Ok(fs.listxattr(found.ino)?)
    }

    /// Sets an extended attribute, or removes it.
    ///
    /// # Errors
    /// As [`Volume::xattr`]; the value is larger than 64 KiB, there is no room, or none to remove.
    pub fn set_xattr(
        &self,
        path: impl AsPath,
        name: impl AsPath,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (fs, name) = (self.here()?, name.as_path_bytes());
        check(name, value.unwrap_or_default())?;
        let found = resolve(&**fs, path.as_path_bytes(), false)?;
        match value {
            Some(value) => fs.setxattr(found.ino, name, value, XattrMode::Set)?,
            None => fs.removexattr(found.ino, name)?,
        }
        Ok(())
    }
}
