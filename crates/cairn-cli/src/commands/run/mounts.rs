//! Mounts of the namespace, and the change of the root directory.
//!
//! Everything of the host is taken before the root changes, as mounts without a place. They get
//! their places afterwards ([`super::places`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat, statvfs};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_remount, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

/// A mount that has no place yet.
pub(super) struct Unplaced {
    mount: OwnedFd,
    is_fresh: bool,
}

/// No device files and no set-user-id programs.
pub(super) const HARMLESS: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// A new filesystem of the kernel.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn fresh(
    kind: &str,
    options: &[(&str, &str)],
    flags: MountAttrFlags,
) -> io::Result<Unplaced> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
    Ok(Unplaced { mount, is_fresh: true })
}

/// A file or directory of the host, with what is mounted in it.
///
/// # Errors
/// It is not there, or may not be reached.
pub(super) fn of_host(path: &Path) -> io::Result<Unplaced> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(Unplaced { mount: open_tree(CWD, path, flags)?, is_fresh: false })
}

impl AsFd for Unplaced {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

impl Unplaced {
    /// True for a new filesystem of the kernel, which nobody else has.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Places it where a path of this process leads.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn place_at(&self, path: &Path) -> io::Result<()> {
        Ok(move_mount(&self.mount, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    }
}

/// Makes what is mounted there the root directory, and lets the old one go.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn change_root(place: &Path) -> io::Result<()> {
    chdir(place)?;
    pivot_root(".", ".")?;
    // The old root is now over the new one.
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

/// Makes the mounts at and below a path without symbolic links read-only. The other flags stay,
/// which the kernel demands of mounts that come from outside. `processes` is a `/proc`, placed or
/// not: that of the image may be missing.
///
/// # Errors
/// One of them cannot be changed, or the mount table cannot be read.
pub(super) fn make_read_only(path: &Path, processes: &Unplaced) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let table = openat(processes, "self/mountinfo", flags, Mode::empty())?;
    let table = io::read_to_string(File::from(table))?;
    let below = points(&table).filter(|point| point.starts_with(path) && point != path);
    let all: Vec<PathBuf> = std::iter::once(path.to_owned()).chain(below).collect();
    let mut done = Ok(());
    for point in all {
        let changed = remount_read_only(&point);
        done = done.and(changed);
    }
    done
}

fn remount_read_only(point: &Path) -> io::Result<()> {
    const KEPT: [(StatVfsMountFlags, MountFlags); 5] = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let present = statvfs(point)?.f_flag;
    let kept = KEPT.into_iter().filter(|(flag, _)| present.contains(*flag));
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, (_, flag)| all | flag);
    Ok(mount_remount(point, flags, "")?)
}

/// The places of a mount table.
fn points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| {
        // Spaces and the like are written as octal numbers. Those of /sys have none.
        PathBuf::from(point.replace("\\040", " ").replace("\\134", "\\"))
    })
}
