//! `cairn umount`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cairn::ImageSpec;
use cairn_fuse::control::{Client, Ending};
use rustix::mount::{UnmountFlags, unmount};

use super::mount::table::Mount;
use super::{live_mount, stats};
use crate::failure::{Failure, Outcome, Status, plain};

/// Arguments of `umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn umount /mnt

Returns when the daemon has written everything and let go of the image.")]
pub struct Args {
    /// Detach now; the daemon ends when the last file is closed. Does not wait.
    #[arg(short = 'l', long)]
    pub lazy: bool,
    /// Where the image is mounted.
    pub mountpoint: PathBuf,
}

/// Unmounts and waits.
///
/// # Errors
/// Nothing of ours is mounted there, or it is in use.
pub fn run(args: &Args) -> Outcome {
    let mount = live_mount::find(&args.mountpoint)?;
    if args.lazy {
        return detach(&mount.point, true);
    }
    // The daemon's own words about its end, where it has a control channel.
    let ending = Client::connect(&mount.device, mount.owner).and_then(Client::wait_for_end).ok();
    detach(&mount.point, false)?;
    let last = ending.map(Ending::wait);
    wait(&mount)?;
    match last {
        Some(Some(last)) => {
            stats::print_messages(&mount.source, &last);
            stats::check_end(&mount.source, &last)
        }
        Some(None) => {
            let message = format!(
                "{}: unmounted, but its daemon ended without a word (it was killed, or has a fault): what was not fsynced may be \
                 missing; check the volume",
                mount.source
            );
            Err(Failure::new(Status::Io, message))
        }
        None => Ok(()),
    }
}

fn detach(point: &Path, lazy: bool) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return detach_as_user(point, lazy);
    }
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    unmount(point, flags | UnmountFlags::NOFOLLOW).map_err(|error| match error {
        rustix::io::Errno::BUSY => busy(point),
        error => Failure::host(point, &error.into()),
    })
}

fn busy(point: &Path) -> Failure {
    let message = format!(
        "{}: in use: close the files and leave the directories below it (fuser -vm {0} lists who), or use -l",
        point.display()
    );
    Failure::new(Status::Busy, message)
}

/// Only the set-user-id helper may.
fn detach_as_user(point: &Path, lazy: bool) -> Outcome {
    let mut command = Command::new("fusermount3");
    command.env("LC_ALL", "C").arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(point).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Status::Failed, "fusermount3 is not installed: install the package fuse3")
        }
        _ => Failure::host("fusermount3", &error),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("busy") {
        return Err(busy(point));
    }
    Err(Failure::new(Status::Failed, format!("{}: {}", point.display(), text.trim())))
}

/// The daemon holds the image's lock until it has written everything and ended. A reader's lock is waited for with a
/// reader's lock: other read-only mounts of the image do not concern us, and there is nothing to write.
fn wait(mount: &Mount) -> Outcome {
    let Ok(image) = ImageSpec::parse(mount.source.as_ref()) else { return Ok(()) };
    let file = match File::open(&image.path) {
        Ok(file) => file,
        // Deleted or unreadable for us: nothing to wait on.
        Err(_) => return Ok(()),
    };
    let locked = if mount.read_only { file.lock_shared() } else { file.lock() };
    locked.map_err(|error| {
        let message = format!("{image}: unmounted, but waiting for the daemon failed: {}", plain(&error));
        Failure::new(Status::Io, message)
    })?;
    drop(file);
    if mount.read_only { Ok(()) } else { check_clean(&image) }
}

/// The daemon is gone, and with it whatever it had to say: the superblock tells whether its last writes succeeded.
fn check_clean(image: &ImageSpec) -> Outcome {
    match cairn::inspect(image, &[]) {
        Ok(cairn::Info::Ext4(info)) if matches!(info.state, "needs recovery" | "not clean") => {
            let message = format!(
                "{image}: unmounted, but the volume is not clean ({}): its last writes failed; mount it again to recover, or run e2fsck",
                info.state
            );
            Err(Failure::new(Status::Io, message))
        }
        // Somebody else has it already, or it cannot be read any more: nothing to say about the unmount.
        _ => Ok(()),
    }
}
