//! Mounts of the namespace, and the change of the root directory.
//!
//! Everything of the host is taken before the root changes, as mounts without a place. They get
//! their places afterwards: then a symbolic link of the image leads to the image.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_remount, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::failure::{Failure, Outcome};

/// A mount that has no place yet.
pub(super) struct Unplaced(OwnedFd);

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
    Ok(Unplaced(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?))
}

/// A file or directory of the host, with what is mounted in it.
///
/// # Errors
/// It is not there, or may not be reached.
pub(super) fn of_host(path: &Path) -> io::Result<Unplaced> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(Unplaced(open_tree(CWD, path, flags)?))
}

/// Makes the volume that is mounted there the root directory.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn change_root(place: &Path) -> Outcome {
    let changed = chdir(place)
        .and_then(|()| pivot_root(".", "."))
        // The old root is now over the new one.
        .and_then(|()| unmount(".", UnmountFlags::DETACH))
        .and_then(|()| chdir("/"));
    changed.map_err(|error| {
        let advice = "the root directory of this system must be a mount, not an initramfs";
        Failure::start("the root directory cannot be changed", &error.into(), advice)
    })
}

/// What was placed in the root directory.
#[derive(Default)]
pub(super) struct Placed {
    /// The mounts, in order.
    points: Vec<PathBuf>,
    /// Files and directories that were made for them.
    made: Vec<PathBuf>,
}

/// What a mount needs at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// A directory.
    Directory,
    /// A file of another kind.
    File,
}

impl Placed {
    /// Places a mount. What is missing for it is made.
    ///
    /// # Errors
    /// It cannot be made, something else is there, or the kernel refuses the mount.
    pub(super) fn place(&mut self, mount: &Unplaced, at: &Path, point: Point) -> io::Result<()> {
        self.make(at, point)?;
        // Symbolic links lead to where they lead on the image.
        let at = fs::canonicalize(at)?;
        move_mount(&mount.0, "", CWD, &at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        self.points.push(at);
        Ok(())
    }

    fn make(&mut self, at: &Path, point: Point) -> io::Result<()> {
        match (fs::metadata(at).map(|found| found.is_dir()), point) {
            (Ok(true), Point::Directory) | (Ok(false), Point::File) => return Ok(()),
            (Ok(true), Point::File) => return Err(Errno::ISDIR.into()),
            (Ok(false), Point::Directory) => return Err(Errno::NOTDIR.into()),
            (Err(_), _) => {}
        }
        let mut missing: Vec<&Path> =
            at.ancestors().skip(1).take_while(|above| fs::metadata(above).is_err()).collect();
        while let Some(directory) = missing.pop() {
            fs::create_dir(directory)?;
            self.made.push(directory.to_owned());
        }
        match point {
            Point::Directory => fs::create_dir(at)?,
            Point::File => fs::File::create_new(at).map(drop)?,
        }
        self.made.push(at.to_owned());
        Ok(())
    }

    /// Takes all mounts away, and what was made for them.
    pub(super) fn remove(self) {
        for point in self.points.iter().rev() {
            // What is not removed here ends with the namespace.
            let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        for made in self.made.iter().rev() {
            // The command may have put something in.
            let is_empty = fs::symlink_metadata(made).is_ok_and(|of| of.is_dir() || of.len() == 0);
            let _ = match is_empty {
                true => fs::remove_file(made).or_else(|_| fs::remove_dir(made)),
                false => Ok(()),
            };
        }
    }
}

/// Makes the mounts at and below a path read-only. The other flags stay, which the kernel demands
/// of mounts that come from outside.
///
/// # Errors
/// One of them cannot be changed.
pub(super) fn make_read_only(path: &Path) -> io::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
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
