//! Targets of symbolic links.

use cairn_vfs::{Error as VfsError, FileKind};

use super::{Inode, inline};
use crate::corrupt::Corrupt;
use crate::dir::blocks;
use crate::disk::Disk;
use crate::error::Result;
use crate::format::units::BLOCK_BYTES;

/// The target.
///
/// # Errors
/// The inode is not a link, its target is encrypted or damaged, or the device failed.
pub(crate) fn read(disk: &Disk, inode: &Inode) -> Result<Vec<u8>> {
    if inode.kind != FileKind::Symlink {
        return Err(VfsError::Invalid("not a symbolic link").into());
    }
    inode.check_unencrypted(disk)?;
    let _data = inode.data.read();
    let size = inode.size();
    let expected = "the length of a link's target";
    let bad = || Corrupt::Inode { ino: inode.nid, field: "i_size", value: size, expected };
    if size == 0 || size >= BLOCK_BYTES {
        return Err(bad().into());
    }
    let mut target = if inode.is_inline() {
        inline::contents(disk, inode)?
    } else {
        blocks::read(disk, inode, 0)?.ok_or_else(bad)?.to_vec()
    };
    // What lies behind the end was a part of the target.
    let end = usize::try_from(size).map_err(|_| bad())?;
    if target.get(end).is_some_and(|byte| *byte != 0) {
        return Err(bad().into());
    }
    target.truncate(end);
    // Some writers count the NUL after the target in the size.
    if let Some(end) = target.iter().position(|byte| *byte == 0) {
        target.truncate(end);
    }
    if target.is_empty() { Err(bad().into()) } else { Ok(target) }
}
