//! `/dev` of a run: a few device files of the host, terminals, shared memory.

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::MountAttrFlags;

use super::mounts::{HARMLESS, Unplaced, fresh, of_host};
use super::places::{Placed, Point, make_link};

/// Device files that a program may expect everywhere, and that give away nothing.
const FILES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Symbolic links.
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", "/dev/ptmx"),
];

/// The mounts of `/dev`.
pub(super) struct DeviceFiles {
    directory: Unplaced,
    files: Vec<(PathBuf, Unplaced)>,
    terminals: Unplaced,
    memory: Unplaced,
}

impl DeviceFiles {
    /// Takes them from the host. Files that the host lacks are left out.
    ///
    /// # Errors
    /// The kernel refuses a filesystem.
    pub(super) fn take() -> io::Result<Self> {
        let file = |name: &str| {
            let path = Path::new("/dev").join(name);
            of_host(&path).ok().map(|mount| (path, mount))
        };
        let no_suid = MountAttrFlags::MOUNT_ATTR_NOSUID;
        Ok(Self {
            directory: fresh("tmpfs", &[("mode", "755")], no_suid)?,
            files: FILES.into_iter().filter_map(file).collect(),
            terminals: fresh("devpts", &[("mode", "620"), ("ptmxmode", "666")], no_suid)?,
            memory: fresh("tmpfs", &[("mode", "1777")], HARMLESS)?,
        })
    }

    /// Places them in the new root directory.
    ///
    /// # Errors
    /// `/dev` is missing and cannot be made, or the kernel refuses a mount.
    pub(super) fn place(&self, placed: &mut Placed) -> io::Result<()> {
        placed.place(&self.directory, Path::new("/dev"), Point::Directory)?;
        for (path, file) in &self.files {
            placed.place(file, path, Point::File)?;
        }
        placed.place(&self.terminals, Path::new("/dev/pts"), Point::Directory)?;
        placed.place(&self.memory, Path::new("/dev/shm"), Point::Directory)?;
        LINKS.into_iter().try_for_each(|(target, name)| make_link(target, Path::new(name)))
    }
}
