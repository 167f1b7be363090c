//! What a new file of the host has from its directory, and a copy must not have.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cairn_vfs::acl;

/// Removes the access list and the default list of a file of the host that becomes a copy, before
/// it gets the attributes of its source. A symbolic link has none.
///
/// # Errors
/// The host refuses.
pub fn remove_inherited_lists(path: &Path) -> io::Result<()> {
    for name in [acl::ACCESS, acl::DEFAULT] {
        let name = OsStr::from_bytes(name);
        // A filesystem without lists has nothing to remove.
        if let Ok(Some(_)) = xattr::get(path, name) {
            xattr::remove(path, name)?;
        }
    }
    Ok(())
}
