//! What the flags `immutable` and `append` of an inode forbid, and which privileges a file loses
//! when another user changes it.

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::filesystem::FileSystem;
use crate::types::{Attributes, FileKind, InodeFlags, SetAttributes, SetTime, XattrMode};

/// Set-user-id.
const SET_UID: u16 = 0o4000;
/// Set-group-id.
const SET_GID: u16 = 0o2000;
/// The attribute with a program's capabilities.
const CAPABILITIES: &[u8] = b"security.capability";
/// With this bit, set-group-id applies to execution.
const GROUP_EXECUTE: u16 = 0o0010;

impl InodeFlags {
    /// The flags that `chattr` may change.
    pub const SETTABLE: Self = Self::SYNC
        .union(Self::IMMUTABLE)
        .union(Self::APPEND)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::DIRSYNC)
        .union(Self::TOPDIR)
        .union(Self::PROJINHERIT);

    /// Those of [`Self::SETTABLE`] that an inode of this kind can have. As Linux's ext4 and F2FS,
    /// which leave out the others when flags are set.
    #[must_use]
    pub fn settable_on(kind: FileKind) -> Self {
        match kind {
            FileKind::Directory => Self::SETTABLE,
            FileKind::Regular => Self::SETTABLE - Self::DIRSYNC - Self::TOPDIR - Self::PROJINHERIT,
            _ => Self::NODUMP | Self::NOATIME,
        }
    }

    /// Checks that contents may change. `adds`: existing contents do not change.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_write(self, adds: bool) -> Result<()> {
        refuse_if(self.contains(Self::IMMUTABLE) || (self.contains(Self::APPEND) && !adds))
    }

    /// Checks that a file may be opened. `append`: it is written at its end only and not truncated.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_open(self, write: bool, append: bool) -> Result<()> {
        if write { self.check_write(append) } else { Ok(()) }
    }

    /// Checks that a directory's entries may change. `removing`: an entry is removed or replaced.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub(crate) fn check_entries(self, removing: bool) -> Result<()> {
        self.check_write(!removing)
    }

    /// Checks that an inode's names and extended attributes may change.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_links(self) -> Result<()> {
        refuse_if(self.intersects(Self::IMMUTABLE | Self::APPEND))
    }

    /// Checks that attributes may change. The flags themselves may always change. Times may be set
    /// to now if data can be added. A kernel with a writeback cache sends times later, possibly
    /// after the flags were set; they are accepted.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_attributes(self, set: &SetAttributes) -> Result<()> {
        let flags_only = SetAttributes { flags: set.flags, ..SetAttributes::default() } == *set;
        let kept_times =
            SetAttributes { mtime: set.mtime, ctime: set.ctime, ..SetAttributes::default() }
                == *set;
        if flags_only || kept_times && set.ctime.is_some() {
            return Ok(());
        }
        // A kernel with a writeback cache sends the present time as a value.
        let is_now = |time: Option<SetTime>| match time {
            None | Some(SetTime::Now) => true,
            Some(SetTime::To(time)) => set.ctime == Some(time),
        };
        let touches_times_only = set.permissions.is_none()
            && set.uid.is_none()
            && set.gid.is_none()
            && set.size.is_none()
            && is_now(set.atime)
            && is_now(set.mtime);
        self.check_write(touches_times_only)
    }
}

fn refuse_if(forbidden: bool) -> Result<()> {
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// The mode after an unprivileged write or a chown: without set-user-id, and without set-group-id
/// where it applies to execution. The mode of a directory does not change, because its bits apply
/// to new entries.
#[must_use]
pub const fn without_privileges(mode: u16, kind: FileKind) -> u16 {
    match kind {
        FileKind::Directory => mode,
        _ if mode & GROUP_EXECUTE == 0 => mode & !SET_UID,
        _ => mode & !(SET_UID | SET_GID),
    }
}

/// The mode after an access control list was set.
#[must_use]
pub const fn after_access_list(mode: u16, set: XattrMode) -> u16 {
    match set {
        XattrMode::SetByStranger => mode & !SET_GID,
        XattrMode::Set | XattrMode::Create | XattrMode::Replace => mode,
    }
}

/// The permissions after an unprivileged user has changed contents or the owner was changed: as
/// [`without_privileges`], and without set-group-id unless `is_member` of the group.
#[must_use]
pub fn left_permissions(found: &Attributes, is_member: impl FnOnce(u32) -> bool) -> u32 {
    let mode = u16::try_from(found.permissions & 0o7777).unwrap_or(0);
    let left = without_privileges(mode, found.kind);
    let group_goes =
        left & SET_GID != 0 && found.kind != FileKind::Directory && !is_member(found.gid);
    u32::from(if group_goes { left & !SET_GID } else { left })
}

/// True if the file has set-user-id, set-group-id for execution, or capabilities.
///
/// # Errors
/// The filesystem failed.
pub fn has_privileges(fs: &dyn FileSystem, ino: Ino) -> Result<bool> {
    let found = fs.getattr(ino)?;
    if found.kind != FileKind::Regular || found.permissions & u32::from(SET_UID | SET_GID) != 0 {
        return Ok(found.kind == FileKind::Regular);
    }
    match fs.getxattr(ino, CAPABILITIES) {
        Err(Error::NoAttribute) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Removes the privileges of a file as an unprivileged change of its contents does: the bits of
/// [`left_permissions`], and capabilities. Call it before the change, so that the new contents
/// never run with the old privileges. True if the file had privileges.
///
/// # Errors
/// The filesystem failed.
pub fn drop_privileges(
    fs: &dyn FileSystem,
    ino: Ino,
    is_member: impl FnOnce(u32) -> bool,
) -> Result<bool> {
    let found = fs.getattr(ino)?;
    if found.kind != FileKind::Regular {
        return Ok(false);
    }
    let left = left_permissions(&found, is_member);
    let goes = left != found.permissions;
    if goes {
        fs.setattr(ino, &SetAttributes { permissions: Some(left), ..SetAttributes::default() })?;
    }
    Ok(drop_capabilities(fs, ino)? || goes)
}

/// Removes the capabilities of a file. True if it had some.
///
/// # Errors
/// The filesystem failed.
pub fn drop_capabilities(fs: &dyn FileSystem, ino: Ino) -> Result<bool> {
    match fs.getxattr(ino, CAPABILITIES) {
        Ok(_) => fs.removexattr(ino, CAPABILITIES).map(|()| true),
        Err(Error::NoAttribute) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Timestamp;

    #[test]
    fn privileges_go_only_where_they_mean_execution() {
        assert_eq!(without_privileges(0o106_755, FileKind::Regular), 0o100_755);
        assert_eq!(
            without_privileges(0o102_644, FileKind::Regular),
            0o102_644,
            "mandatory locking bit stays"
        );
        assert_eq!(without_privileges(0o046_755, FileKind::Directory), 0o046_755);
        assert_eq!(without_privileges(0o016_755, FileKind::Fifo), 0o010_755, "whatever else it is");
    }

    #[test]
    fn special_files_cannot_be_immutable_and_only_directories_pass_flags_on() {
        use FileKind::{CharDevice, Directory, Fifo, Regular, Symlink};
        for kind in [CharDevice, Fifo, Symlink] {
            let settable = InodeFlags::settable_on(kind);
            assert!(!settable.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND));
            assert!(settable.contains(InodeFlags::NODUMP | InodeFlags::NOATIME));
        }
        assert!(InodeFlags::settable_on(Regular).contains(InodeFlags::IMMUTABLE));
        assert!(!InodeFlags::settable_on(Regular).contains(InodeFlags::DIRSYNC));
        assert_eq!(InodeFlags::settable_on(Directory), InodeFlags::SETTABLE);
    }

    #[test]
    fn append_lets_things_be_added_and_immutable_nothing() {
        let (append, immutable) = (InodeFlags::APPEND, InodeFlags::IMMUTABLE);
        assert!(append.check_write(true).is_ok() && append.check_write(false).is_err());
        assert!(append.check_entries(false).is_ok() && append.check_entries(true).is_err());
        assert!(immutable.check_write(true).is_err() && immutable.check_entries(false).is_err());
        assert!(append.check_links().is_err() && immutable.check_links().is_err());
        let harmless = InodeFlags::all() - append - immutable;
        assert!(harmless.check_write(false).is_ok() && harmless.check_links().is_ok());
    }

    #[test]
    fn flags_can_always_be_set_and_times_touched_where_data_can_be_added() {
        let (append, immutable) = (InodeFlags::APPEND, InodeFlags::IMMUTABLE);
        let flags = SetAttributes { flags: Some(InodeFlags::empty()), ..SetAttributes::default() };
        let touch = SetAttributes {
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        let date = SetAttributes {
            mtime: Some(SetTime::To(Timestamp::default())),
            ..SetAttributes::default()
        };
        let truncate = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert!(
            immutable.check_attributes(&flags).is_ok() && append.check_attributes(&flags).is_ok()
        );
        assert!(
            immutable.check_attributes(&touch).is_err() && append.check_attributes(&touch).is_ok()
        );
        assert!(
            append.check_attributes(&date).is_err() && append.check_attributes(&truncate).is_err()
        );
        assert!(InodeFlags::empty().check_attributes(&truncate).is_ok());
        // As a kernel with a writeback cache sends them.
        let (now, other) = (Timestamp { seconds: 9, nanoseconds: 9 }, Timestamp::default());
        let touch = SetAttributes { mtime: Some(SetTime::To(now)), ctime: Some(now), ..touch };
        assert!(
            immutable.check_attributes(&touch).is_err() && append.check_attributes(&touch).is_ok()
        );
        let date = SetAttributes { mtime: Some(SetTime::To(other)), ..touch };
        assert!(append.check_attributes(&date).is_err());
        let kept = SetAttributes { atime: None, ..date };
        assert!(
            immutable.check_attributes(&kept).is_ok() && append.check_attributes(&kept).is_ok()
        );
    }
}
