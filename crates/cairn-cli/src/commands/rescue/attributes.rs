//! Extended attributes on the host: what it does not store is refused by it, and reported.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use cairn_check::salvage::Xattr;
use cairn_vfs::acl;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// An attribute that the host has refused, and why.
pub(super) struct Refused {
    pub(super) name: Vec<u8>,
    pub(super) why: std::io::Error,
}

/// Is it a list of rights?
pub(super) fn is_list(name: &[u8]) -> bool {
    matches!(name, acl::ACCESS | acl::DEFAULT)
}

/// Removes the lists that a new file or directory has got from the directory it was made in: they
/// are not the file's.
pub(super) fn forget_lists(file: impl AsFd) {
    for name in [acl::ACCESS, acl::DEFAULT] {
        // It has none, or the host has no such lists.
        let _ = rustix::fs::fremovexattr(file.as_fd(), OsStr::from_bytes(name));
    }
}

/// Sets the attributes of an open file or directory.
pub(super) fn set_open(file: BorrowedFd<'_>, xattrs: &[Xattr]) -> Vec<Refused> {
    set(xattrs, |name, value| rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()))
}

/// Sets the attributes of a link or a node. No link is followed.
pub(super) fn set_by_name(at: BorrowedFd<'_>, name: &OsStr, xattrs: &[Xattr]) -> Vec<Refused> {
    let mut path = format!("/proc/self/fd/{}/", at.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    let path = OsStr::from_bytes(&path);
    set(xattrs, |name, value| rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()))
}

fn set(xattrs: &[Xattr], set: impl Fn(&OsStr, &[u8]) -> Result<(), Errno>) -> Vec<Refused> {
    let refused = xattrs.iter().filter_map(|(name, value)| {
        let why = set(OsStr::from_bytes(name), value).err()?;
        Some(Refused { name: name.clone(), why: why.into() })
    });
    refused.collect()
}
