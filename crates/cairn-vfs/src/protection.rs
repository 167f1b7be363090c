//! What the flags `immutable` and `append` of an inode forbid, and which privileges go when somebody else changes a file.

use cairn_base::Ino;

use crate::error::{Error, Result};
use crate::filesystem::FileSystem;
use crate::types::{Attributes, FileKind, InodeFlags, SetAttributes, SetTime, XattrMode};

/// Set-user-id.
const SET_UID: u16 = 0o4000;
/// Set-group-id.
const SET_GID: u16 = 0o2000;
/// The attribute that holds a program's capabilities.
const CAPABILITIES: &[u8] = b"security.capability";
/// Where set-group-id means execution.
const GROUP_EXECUTE: u16 = 0o0010;

impl InodeFlags {
    /// Fails if contents may not change so; `adds`: nothing that is there changes.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], as of all checks here.
    pub fn check_write(self, adds: bool) -> Result<()> {
        refuse_if(self.contains(Self::IMMUTABLE) || (self.contains(Self::APPEND) && !adds))
    }

    /// Fails if a file may not be opened so; `append`: it will be written only at its end, and is not emptied first.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_open(self, write: bool, append: bool) -> Result<()> {
        if write { self.check_write(append) } else { Ok(()) }
    }

    /// Fails if a directory's entries may not change; `removing`: one goes, or changes.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_entries(self, removing: bool) -> Result<()> {
        self.check_write(!removing)
    }

    /// Fails if an inode's names and extended attributes may not change.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_links(self) -> Result<()> {
        refuse_if(self.intersects(Self::IMMUTABLE | Self::APPEND))
    }

    /// Fails if attributes may not change so. The flags themselves always may; times may become now where data can be added.
    /// A kernel that keeps a file's times hands them over when it likes, also after the flags were set: they have changed already.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_attributes(self, set: &SetAttributes) -> Result<()> {
        let flags_only = SetAttributes { flags: set.flags, ..SetAttributes::default() } == *set;
        let kept_times = SetAttributes { mtime: set.mtime, ctime: set.ctime, ..SetAttributes::default() } == *set;
        if flags_only || kept_times && set.ctime.is_some() {
            return Ok(());
        }
        // Such a kernel also says itself when now is.
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

/// Mode after an unprivileged write or a chown: no set-user-id; no set-group-id where it means execution. A directory's bits say
/// what its entries inherit, and stay.
#[must_use]
pub const fn without_privileges(mode: u16, kind: FileKind) -> u16 {
    match kind {
        FileKind::Directory => mode,
        _ if mode & GROUP_EXECUTE == 0 => mode & !SET_UID,
        _ => mode & !(SET_UID | SET_GID),
    }
}

/// Mode after an access list was set in this way.
#[must_use]
pub const fn after_access_list(mode: u16, set: XattrMode) -> u16 {
    match set {
        XattrMode::SetByStranger => mode & !SET_GID,
        XattrMode::Set | XattrMode::Create | XattrMode::Replace => mode,
    }
}

/// The permissions that are left of a file's when somebody without privileges changes its contents, or its owner is changed: as
/// [`without_privileges`], and set-group-id goes in any case unless `is_member` of the group.
#[must_use]
pub fn left_permissions(found: &Attributes, is_member: impl FnOnce(u32) -> bool) -> u32 {
    let mode = u16::try_from(found.permissions & 0o7777).unwrap_or(0);
    let left = without_privileges(mode, found.kind);
    let group_goes = left & SET_GID != 0 && found.kind != FileKind::Directory && !is_member(found.gid);
    u32::from(if group_goes { left & !SET_GID } else { left })
}

/// Has whoever runs this file more rights than before?
///
/// # Errors
/// Those of the file system.
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

/// Takes the privileges of a file away as an unprivileged change of its contents does: bits as [`left_permissions`] says, and
/// capabilities. To be called before the change: whoever runs the file never finds the new contents with the old privileges. True if
/// it had any.
///
/// # Errors
/// Those of the file system.
pub fn drop_privileges(fs: &dyn FileSystem, ino: Ino, is_member: impl FnOnce(u32) -> bool) -> Result<bool> {
    let found = fs.getattr(ino)?;
    if found.kind != FileKind::Regular {
        return Ok(false);
    }
    let left = left_permissions(&found, is_member);
    let goes = left != found.permissions;
    if goes {
        fs.setattr(ino, &SetAttributes { permissions: Some(left), ..SetAttributes::default() })?;
    }
    match fs.getxattr(ino, CAPABILITIES) {
        Ok(_) => fs.removexattr(ino, CAPABILITIES).map(|()| true),
        Err(Error::NoAttribute) => Ok(goes),
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
        assert_eq!(without_privileges(0o102_644, FileKind::Regular), 0o102_644, "mandatory locking bit stays");
        assert_eq!(without_privileges(0o046_755, FileKind::Directory), 0o046_755);
        assert_eq!(without_privileges(0o016_755, FileKind::Fifo), 0o010_755, "whatever else it is");
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
        let touch = SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttributes::default() };
        let date = SetAttributes { mtime: Some(SetTime::To(Timestamp::default())), ..SetAttributes::default() };
        let truncate = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert!(immutable.check_attributes(&flags).is_ok() && append.check_attributes(&flags).is_ok());
        assert!(immutable.check_attributes(&touch).is_err() && append.check_attributes(&touch).is_ok());
        assert!(append.check_attributes(&date).is_err() && append.check_attributes(&truncate).is_err());
        assert!(InodeFlags::empty().check_attributes(&truncate).is_ok());
        // By a kernel that keeps the times itself.
        let (now, other) = (Timestamp { seconds: 9, nanoseconds: 9 }, Timestamp::default());
        let touch = SetAttributes { mtime: Some(SetTime::To(now)), ctime: Some(now), ..touch };
        assert!(immutable.check_attributes(&touch).is_err() && append.check_attributes(&touch).is_ok());
        let date = SetAttributes { mtime: Some(SetTime::To(other)), ..touch };
        assert!(append.check_attributes(&date).is_err());
        let kept = SetAttributes { atime: None, ..date };
        assert!(immutable.check_attributes(&kept).is_ok() && append.check_attributes(&kept).is_ok());
    }
}
