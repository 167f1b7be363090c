//! Finds a live Cairn mount and its daemon.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cairn::ImageSpec;
use cairn_base::names::Escaped;
use cairn_base::shell::quoted;
use cairn_block::file::backing_file;
use cairn_fuse::control::{Client, ControlError};

use super::mount::table::{self, Mount};
use super::mount::users;
use crate::failure::{Failure, Outcome, Status};

/// Longest time between a mount and its daemon's socket.
const STARTING: Duration = Duration::from_secs(2);

/// The mount at this path (absolute or not, also through a symbolic link to it), or of this image.
///
/// # Errors
/// Nothing is mounted exactly there, or another filesystem is; or the image has several mounts.
pub fn find(given: &Path) -> Outcome<Mount> {
    let failed = |why: String| Failure::new(Status::Failed, format!("{}: {why}", given.escaped()));
    let nothing = || failed("nothing is mounted here: give the mount point itself".into());
    if ImageSpec::parse(given.as_os_str()).is_ok_and(|image| image.file().is_none()) {
        // An address is no path.
        return mount_of_image(given)?.ok_or_else(nothing);
    }
    let point = match table::absolute(given) {
        Ok(point) => point,
        // The name of a key file in an address has slashes.
        Err(failure) => return mount_of_image(given)?.ok_or(failure),
    };
    let mut found = table::find(&point)?;
    if found.is_none()
        && let Ok(canonical) = std::fs::canonicalize(&point)
    {
        // A symbolic link to the mount point.
        found = table::find(&canonical)?;
    }
    match found {
        Some(mount) if mount.is_cairn() => Ok(mount),
        Some(mount) => Err(failed(format!(
            "mounted as {}, not by cairn: give a mount point of Cairn",
            mount.kind
        ))),
        None => mount_of_image(given)?.ok_or_else(nothing),
    }
}

/// The mount of this image, as umount(8) finds mounts by their source.
fn mount_of_image(given: &Path) -> Outcome<Option<Mount>> {
    let spec = ImageSpec::parse(given.as_os_str()).and_then(|image| image.canonical());
    let Ok(image) = spec else { return Ok(None) };
    let source = image.to_os_string().to_string_lossy().into_owned();
    // Also through a loop device of it, and a name that says otherwise how it is opened.
    let is_source = |mount: &Mount| {
        mount.source == source
            || ImageSpec::parse(mount.source.as_ref())
                .is_ok_and(|other| other.part == image.part && other.is_same_disk(&image))
            || mount.kind.starts_with("fuseblk")
                && backing_file(Path::new(&mount.source)).as_deref() == image.file()
    };
    let mut found: Vec<Mount> =
        table::all()?.into_iter().filter(|mount| mount.is_cairn() && is_source(mount)).collect();
    if let [first, second, ..] = found.as_slice() {
        let (first, second) = (first.point.escaped(), second.point.escaped());
        return Err(Failure::new(
            Status::Failed,
            format!("{source}: mounted on {first} and on {second}: give one of these"),
        ));
    }
    Ok(found.pop())
}

/// All volumes that Cairn may have mounted, each at its first mount point.
///
/// # Errors
/// `/proc` cannot be read.
pub fn all() -> Outcome<Vec<Mount>> {
    let mut mounts: Vec<Mount> = Vec::new();
    for mount in table::all()?.into_iter().filter(Mount::is_cairn) {
        if mounts.iter().all(|known| known.device != mount.device) {
            mounts.push(mount);
        }
    }
    Ok(mounts)
}

/// The image that Cairn has mounted at this path, if it is a mount point of Cairn's.
#[must_use]
pub fn image_at(given: &Path) -> Option<String> {
    let mount = table::find(&table::absolute(given).ok()?).ok()??;
    mount.kind.ends_with(".cairn").then_some(mount.source)
}

/// The daemon of a mount that was found in the table.
///
/// A mount that ends meanwhile leaves its number to the next one, whose daemon must not be asked in
/// its place, far less told to thaw or to end. So the mount is looked for once more: if it is there
/// after the connection was made, the connection is to its daemon.
///
/// # Errors
/// As [`Client::connect`]; [`ControlError::Unmounted`] if the mount has ended.
pub fn daemon(mount: &Mount) -> Result<Client, ControlError> {
    let client = Client::connect(&mount.device, mount.owner)?;
    if users::is_mounted(mount) { Ok(client) } else { Err(ControlError::Unmounted) }
}

/// Its daemon.
///
/// # Errors
/// As [`find`], or the daemon cannot be reached.
pub fn connect(given: &Path) -> Outcome<Client> {
    let started = Instant::now();
    loop {
        let mount = find(given)?;
        match daemon(&mount) {
            // The mount appears a moment before its daemon listens.
            Err(ControlError::NoSocket(_))
                if started.elapsed() < STARTING && !is_dead(&mount.point) =>
            {
                thread::sleep(Duration::from_millis(20))
            }
            // The socket that its daemon left may have been cleared away.
            Err(ControlError::NoSocket(_)) if is_dead(&mount.point) => {
                let message = format!(
                    "the daemon that served it is gone: run `cairn umount -l {}`, then mount again",
                    quoted(&mount.point)
                );
                return Err(Failure::new(
                    Status::Failed,
                    format!("{}: {message}", given.escaped()),
                ));
            }
            found => return found.map_err(|error| failure(given, &error)),
        }
    }
}

/// True if the mount's daemon has gone without unmounting it.
///
/// The kernel answers `stat` from what it remembers, so this asks for the statistics of the volume.
/// A daemon that is stopped does not answer: call this only if nobody listens on its socket.
#[must_use]
pub fn is_dead(point: &Path) -> bool {
    rustix::fs::statfs(point).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// The failure for an error of the control channel.
#[must_use]
pub fn failure(given: &Path, error: &ControlError) -> Failure {
    let status = match error {
        ControlError::Silent | ControlError::Io { .. } => Status::Io,
        _ => Status::Failed,
    };
    Failure::new(status, format!("{}: {error}", given.escaped()))
}
