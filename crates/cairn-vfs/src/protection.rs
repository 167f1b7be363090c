//! What the flags `immutable` and `append` of an inode forbid, and which privileges go when somebody else changes a file.

use crate::error::{Error, Result};
use crate::types::{FileKind, InodeFlags, SetAttributes, SetTime};

/// Set-user-id.
const SET_UID: u16 = 0o4000;
/// Set-group-id.
const SET_GID: u16 = 0o2000;
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
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn check_attributes(self, set: &SetAttributes) -> Result<()> {
        let flags_only = SetAttributes { flags: set.flags, ..SetAttributes::default() } == *set;
        if flags_only {
            return Ok(());
        }
        let touches_times_only = set.permissions.is_none()
            && set.uid.is_none()
            && set.gid.is_none()
            && set.size.is_none()
            && matches!(set.atime, None | Some(SetTime::Now))
            && matches!(set.mtime, None | Some(SetTime::Now));
        self.check_write(touches_times_only)
    }
}

fn refuse_if(forbidden: bool) -> Result<()> {
    if forbidden { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Mode after an unprivileged write or chown: no set-user-id; no set-group-id where it means execution.
#[must_use]
pub const fn without_privileges(mode: u16, kind: FileKind) -> u16 {
    match kind {
        FileKind::Regular if mode & GROUP_EXECUTE == 0 => mode & !SET_UID,
        FileKind::Regular => mode & !(SET_UID | SET_GID),
        _ => mode,
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
        assert_eq!(without_privileges(0o042_755, FileKind::Directory), 0o042_755);
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
    }
}
