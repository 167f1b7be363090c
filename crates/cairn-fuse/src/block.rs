//! Mounts of type `fuseblk`, on a block device.
//!
//! The kernel claims the device, as for a filesystem of its own. Since Linux 6.18 sync(2) of such a
//! mount is sent to its server (SYNCFS), and umount(2) returns when DESTROY is answered, which is
//! after the volume is closed. Only root can make one.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::process::{getgid, getuid};

use crate::handshake::Handshake;
use crate::options::MountOptions;

/// A block device that the kernel claims for a mount.
#[derive(Clone, Copy)]
pub struct BlockDevice<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Bytes of a block, for the kernel's side: a power of two, at least the device's logical
    /// block, at most a page.
    pub block_size: u32,
    /// Gives up what keeps the kernel from claiming the device. Called when all else is ready.
    pub release: &'a dyn Fn(),
}

/// Whether the kernel takes such a mount of this process, as far as it can be told before the
/// device is given up.
pub(crate) fn is_possible(options: &MountOptions, on: BlockDevice<'_>) -> bool {
    let tried = connection().and_then(|connection| context(&connection, options, on));
    tried.inspect_err(|error| tracing::debug!("no mount of type fuseblk: {error}")).is_ok()
}

fn connection() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/fuse")?.into())
}

/// Mounts, and agrees with the kernel on the settings.
pub(crate) fn mount(
    handshake: Handshake,
    mountpoint: &Path,
    options: &MountOptions,
    on: BlockDevice<'_>,
) -> io::Result<fuser::Session<Handshake>> {
    let connection = connection()?;
    let context = context(&connection, options, on)?;
    (on.release)();
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options))?;
    move_mount(mount, "", CWD, mountpoint, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let config = options.to_fuser(true);
    fuser::Session::from_fd(handshake, connection, config.acl, config)
}

fn context(
    connection: &OwnedFd,
    options: &MountOptions,
    on: BlockDevice<'_>,
) -> io::Result<OwnedFd> {
    let context = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
    fsconfig_set_string(&context, "source", on.path)?;
    // As a number: not every kernel takes a descriptor here.
    set("fd", &connection.as_raw_fd().to_string())?;
    set("rootmode", "40000")?;
    set("user_id", &getuid().as_raw().to_string())?;
    set("group_id", &getgid().as_raw().to_string())?;
    set("subtype", "cairn")?;
    set("blksize", &on.block_size.to_string())?;
    let flags = [
        ("default_permissions", !options.private),
        ("allow_other", options.settled(true).allow_other == Some(true)),
        ("sync", options.sync),
        ("dirsync", options.dirsync),
        // Of a device that is read-only, the kernel makes no other mount.
        ("ro", options.read_only),
    ];
    for (flag, _) in flags.iter().filter(|(_, wanted)| *wanted) {
        fsconfig_set_flag(&context, *flag)?;
    }
    Ok(context)
}

fn attributes(options: &MountOptions) -> MountAttrFlags {
    let settled = options.settled(true);
    let flags = [
        (MountAttrFlags::MOUNT_ATTR_NOSUID, settled.suid != Some(true)),
        (MountAttrFlags::MOUNT_ATTR_NODEV, settled.dev != Some(true)),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, !options.exec),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, options.noatime),
    ];
    flags.into_iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag).collect()
}
