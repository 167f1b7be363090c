//! A new inode before the filesystem gives it a number: its kind, its checks, and what it inherits
//! from its directory.

use crate::acl::Acl;
use crate::error::{Error, Result};
use crate::types::{Caller, FileKind, NewInode};

/// Longest target of a symbolic link in bytes. With its NUL it fits a block of 4 KiB.
pub const SYMLINK_MAX: usize = 4095;
/// Set-group-id. New entries of a directory with this bit get its group.
const SET_GID: u32 = 0o2000;

impl NewInode<'_> {
    /// The kind of the new inode.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Regular => FileKind::Regular,
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::CharDevice(_) => FileKind::CharDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }

    /// Checks the request before anything is allocated.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the target of a symbolic link is empty, [`Error::TargetTooLong`] if
    /// it is too long, [`Error::Invalid`] if it contains a NUL.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Symlink(b"") => Err(Error::NotFound),
            Self::Symlink(target) if target.len() > SYMLINK_MAX => Err(Error::TargetTooLong),
            Self::Symlink(target) if target.contains(&0) => {
                Err(Error::Invalid("a symlink target holds no NUL"))
            }
            _ => Ok(()),
        }
    }
}

/// What a new inode inherits from its directory.
#[derive(Clone, Debug)]
pub struct Inheritance {
    /// The directory's permission bits, with set-group-id.
    pub permissions: u32,
    /// The directory's group.
    pub gid: u32,
    /// New entries get the directory's group even without set-group-id (`grpid`).
    pub group_of_parent: bool,
    /// The directory's default ACL.
    pub default_acl: Option<Acl>,
}

/// Owner, group, permissions and inherited ACLs of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits (`0o7777`).
    pub permissions: u16,
    /// Access ACL to store, unless the permissions contain all of it.
    pub access: Option<Acl>,
    /// Default ACL to store, for a directory.
    pub default: Option<Acl>,
}

impl Ownership {
    /// The owner, group, permissions and ACLs of a new inode of `kind`, as in Linux if the caller
    /// inherits.
    #[must_use]
    pub fn of_new(parent: &Inheritance, kind: FileKind, permissions: u32, caller: &Caller) -> Self {
        let parent = Some(parent).filter(|_| caller.inherits);
        let from_parent = parent.is_some_and(|parent| parent.permissions & SET_GID != 0);
        let gid = parent
            .filter(|parent| from_parent || parent.group_of_parent)
            .map_or(caller.gid, |parent| parent.gid);
        let bits = match kind {
            FileKind::Symlink => 0o777,
            FileKind::Directory if from_parent => permissions & 0o7777 | SET_GID,
            _ => permissions & 0o7777,
        };
        let mode = kind.mode_bits() | bits;
        let default = parent.and_then(|parent| parent.default_acl.as_ref());
        let (mode, access, default) = Acl::for_new_inode(default, mode, caller.umask);
        let permissions = u16::try_from(mode & 0o7777).expect("twelve bits");
        Self { uid: caller.uid, gid, permissions, access, default }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: Caller = Caller { uid: 7, gid: 8, umask: 0o022, inherits: true };

    fn parent(permissions: u32) -> Inheritance {
        Inheritance { permissions, gid: 100, group_of_parent: false, default_acl: None }
    }

    #[test]
    fn the_group_is_the_callers_unless_the_directory_says_otherwise() {
        let of = |parent: &Inheritance, kind| Ownership::of_new(parent, kind, 0o777, &CALLER);
        let plain = of(&parent(0o755), FileKind::Directory);
        assert_eq!((plain.uid, plain.gid, plain.permissions), (7, 8, 0o755));
        let inherits = of(&parent(0o2755), FileKind::Directory);
        assert_eq!(
            (inherits.gid, inherits.permissions),
            (100, 0o2755),
            "directories pass the bit on"
        );
        let file = of(&parent(0o2755), FileKind::Regular);
        assert_eq!((file.gid, file.permissions), (100, 0o755), "files do not");
        let bsd = of(&Inheritance { group_of_parent: true, ..parent(0o755) }, FileKind::Directory);
        assert_eq!((bsd.gid, bsd.permissions), (100, 0o755));
    }

    #[test]
    fn a_default_list_stands_for_the_umask_and_symlinks_have_neither() {
        let with_list = Inheritance { default_acl: Some(Acl::from_mode(0o770)), ..parent(0o755) };
        let directory = Ownership::of_new(&with_list, FileKind::Directory, 0o777, &CALLER);
        assert_eq!(directory.permissions, 0o770);
        assert_eq!((directory.access, directory.default), (None, with_list.default_acl.clone()));
        let file = Ownership::of_new(&with_list, FileKind::Regular, 0o4666, &CALLER);
        assert_eq!((file.permissions, file.default), (0o4660, None));
        for parent in [&with_list, &parent(0o2755)] {
            let link = Ownership::of_new(parent, FileKind::Symlink, 0o600, &CALLER);
            assert_eq!((link.permissions, link.access, link.default), (0o777, None, None));
        }
    }

    #[test]
    fn a_copy_inherits_nothing() {
        let parent = Inheritance {
            group_of_parent: true,
            default_acl: Some(Acl::from_mode(0o770)),
            ..parent(0o2755)
        };
        for kind in [FileKind::Directory, FileKind::Regular, FileKind::Fifo] {
            let copy = Ownership::of_new(&parent, kind, 0o777, &Caller::COPIER);
            let plain =
                Ownership { uid: 0, gid: 0, permissions: 0o777, access: None, default: None };
            assert_eq!(copy, plain);
        }
    }

    #[test]
    fn only_targets_of_links_can_be_wrong() {
        assert!(matches!(NewInode::Symlink(b"").check(), Err(Error::NotFound)));
        assert!(matches!(NewInode::Symlink(b"a\0b").check(), Err(Error::Invalid(_))));
        assert!(matches!(NewInode::Symlink(&[b'a'; 4096]).check(), Err(Error::TargetTooLong)));
        assert!(NewInode::Symlink(&[b'a'; 4095]).check().is_ok());
        assert!(NewInode::Fifo.check().is_ok() && NewInode::Fifo.kind() == FileKind::Fifo);
    }
}
