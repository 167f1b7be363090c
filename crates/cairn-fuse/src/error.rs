//! Why a mount fails: one line each, which says what to do.

use std::io;
use std::path::PathBuf;

use cairn_base::memory::NoMemory;
use cairn_base::system_error::with_remedy;

use crate::ring::NoRing;

/// Result of mounting and serving.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of [`crate::mount`] and [`crate::Session::run`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
    /// The mount point is not there.
    #[error("mount point {} does not exist: create it with `mkdir`", .0.display())]
    NoMountPoint(PathBuf),
    /// The mount point is a file.
    #[error("mount point {} is not a directory: give one", .0.display())]
    NotDirectory(PathBuf),
    /// A FUSE server died and left its mount behind.
    #[error("a dead mount is left on {}: remove it with `umount -l` (or `fusermount3 \
        -uz`)", .0.display())]
    DeadMount(PathBuf),
    /// A FUSE filesystem is mounted there already.
    #[error("{source_name} is already mounted on {}: unmount it first", path.display())]
    Busy {
        /// Mount point.
        path: PathBuf,
        /// What is mounted there.
        source_name: String,
    },
    /// The mount point cannot be looked at.
    #[error("cannot use mount point {}: \
        {}", path.display(), with_remedy(source, "give a directory \
        that you may enter"))]
    MountPoint {
        /// Mount point.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `/dev/fuse` is not there.
    #[error(
        "/dev/fuse is missing: load the module with `modprobe fuse`, or give the container \
         `--device /dev/fuse`"
    )]
    NoDevice,
    /// `/dev/fuse` may not be opened.
    #[error(
        "no permission to open /dev/fuse: make it readable and writable for you, or run as root; a \
         container has to be given `--device /dev/fuse`"
    )]
    NoPermission,
    /// `/dev/fuse` cannot be opened for another reason.
    #[error("cannot open /dev/fuse: {}", with_remedy(.0, "load the module with `modprobe fuse`"))]
    Device(#[source] io::Error),
    /// Ordinary users need the set-user-id helper.
    #[error("only root can mount without `fusermount3`: install the package fuse3, or run as root")]
    NoHelper,
    /// `allow_other` by an ordinary user.
    #[error(
        "allow_other is not allowed for users: add `user_allow_other` to /etc/fuse.conf, or leave \
         the option out"
    )]
    AllowOther,
    /// The kernel or `fusermount3` refused.
    #[error("cannot mount on {}: {reason}: {advice}", path.display())]
    Refused {
        /// Mount point.
        path: PathBuf,
        /// What it said.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// A remount to read-only is refused, because files are open for writing.
    #[error(
        "files are open for writing, or deleted and still open: close them first (fuser -vm lists \
         who)"
    )]
    OpenForWriting,
    /// The kernel lets only root change a mount.
    #[error(
        "the daemon of this mount is not root's, and the kernel lets only root change ro, rw and \
         the flags of a mount: unmount and mount again"
    )]
    RemountAsUser,
    /// The system has no memory for the first requests.
    #[error("{0}")]
    NoMemory(NoMemory),
    /// `transport=ring` is not possible.
    #[error("{0}")]
    NoRing(#[source] NoRing),
    /// The connection to the kernel broke while the filesystem was mounted.
    #[error("the FUSE connection failed: {}", with_remedy(.0, "mount again"))]
    Connection(#[source] io::Error),
}
