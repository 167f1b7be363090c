//! `rename`, in its three modes.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::locks::{MOST, lock_names, peek, relocate};
use super::{NamedInode, Namespace, Side, check_name, check_parent};
use crate::error::Error;
use crate::types::{FileKind, RenameMode};

/// Renames; see [`RenameMode`]. Returns the inode that lost its name.
///
/// # Errors
/// A name is missing, exists or is invalid; the move would make a loop; or the filesystem failed.
pub fn rename<N: Namespace + ?Sized>(
    names: &N,
    (parent, name): (&Arc<N::Inode>, &[u8]),
    (new_parent, new_name): (&Arc<N::Inode>, &[u8]),
    mode: RenameMode,
) -> Result<Option<Arc<N::Inode>>, N::Error> {
    parent.kind().check_directory()?;
    new_parent.kind().check_directory()?;
    let name = check_name(name, Error::Busy)?;
    let new_name = check_name(
        new_name,
        if mode == RenameMode::NoReplace { Error::Exists } else { Error::Busy },
    )?;
    // Only a move between directories can make a loop. Such moves exclude each other during the
    // walk of ancestors.
    let _rename_mutex = (parent.ino() != new_parent.ino()).then(|| names.rename_mutex().lock());
    loop {
        let inode = peek(names, parent, &name)?.ok_or(Error::NotFound)?;
        let other = peek(names, new_parent, &new_name)?;
        let mut concerned: SmallVec<[_; MOST]> = smallvec![parent, new_parent, &inode];
        concerned.extend(&other);
        let _locks = lock_names(&concerned);
        let Some(entry) = relocate(names, parent, &name, Some(&inode))? else { continue };
        let from = Side { parent, name, entry };
        let Some(entry) = relocate(names, new_parent, &new_name, other.as_ref())? else { continue };
        let to = Side { parent: new_parent, name: new_name, entry };
        return rename_locked(names, &from, &inode, &to, other.as_ref(), mode);
    }
}

/// Renames. The caller holds the locks of all directories involved.
fn rename_locked<N: Namespace + ?Sized>(
    names: &N,
    from: &Side<'_, N>,
    inode: &Arc<N::Inode>,
    to: &Side<'_, N>,
    other: Option<&Arc<N::Inode>>,
    mode: RenameMode,
) -> Result<Option<Arc<N::Inode>>, N::Error> {
    match (mode, other) {
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists.into()),
        (RenameMode::Exchange, None) => return Err(Error::NotFound.into()),
        // Both names have the same inode: there is no change that the directories' flags could
        // forbid.
        (_, Some(other)) if other.ino() == inode.ino() => return Ok(None),
        _ => {}
    }
    check_parent(&**from.parent, true)?;
    // The target is removed from its directory.
    check_parent(&**to.parent, other.is_some())?;
    inode.flags().check_links()?;
    if from.parent.ino() != to.parent.ino() {
        check_no_loop(names, inode, to.parent)?;
        if let (RenameMode::Exchange, Some(other)) = (mode, other) {
            check_no_loop(names, other, from.parent)?;
        }
    }
    if let Some(other) = other {
        other.flags().check_links()?;
    }
    match (mode, other) {
        (RenameMode::Exchange, Some(other)) => {
            names.exchange(from, inode, to, other)?;
            Ok(None)
        }
        (mode, target) => {
            check_target(names, inode, target)?;
            let whiteout =
                if let RenameMode::Whiteout(caller) = &mode { Some(caller) } else { None };
            names.replace(from, inode, to, target, whiteout)?;
            Ok(target.cloned())
        }
    }
}

/// Fails if `inode` is `directory` or one of its ancestors.
fn check_no_loop<N: Namespace + ?Sized>(
    names: &N,
    inode: &Arc<N::Inode>,
    directory: &Arc<N::Inode>,
) -> Result<(), N::Error> {
    if inode.kind() != FileKind::Directory {
        return Ok(());
    }
    let mut at = directory.clone();
    // A path is shorter than the number of inodes. A longer walk is a loop on the disk.
    for _ in 0..names.most_inodes() {
        if at.ino() == inode.ino() {
            return Err(Error::Invalid("a directory cannot be moved into itself").into());
        }
        if at.ino() == names.root() {
            return Ok(());
        }
        let above = names.locate(&at, b"..")?.ok_or(Error::NotFound)?;
        at = names.inode(above.into())?;
    }
    Err(Error::Loop.into())
}

fn check_target<N: Namespace + ?Sized>(
    names: &N,
    inode: &Arc<N::Inode>,
    target: Option<&Arc<N::Inode>>,
) -> Result<(), N::Error> {
    let Some(target) = target else { return Ok(()) };
    match (inode.kind() == FileKind::Directory, target.kind() == FileKind::Directory) {
        (true, false) => Err(Error::NotDirectory.into()),
        (false, true) => Err(Error::IsDirectory.into()),
        (true, true) if !names.is_empty(target)? => Err(Error::NotEmpty.into()),
        _ => Ok(()),
    }
}
