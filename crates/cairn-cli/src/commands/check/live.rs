//! `cairn check` of what is mounted: a mount of Cairn is frozen for the time of the check.
//!
//! The freeze ends with the connection to the daemon, so also if this process is killed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn::{Checked, ImageSpec};
use cairn_check::Observer;

use super::watch::uncheckable;
use crate::commands::live_mount;
use crate::commands::mount::table;
use crate::failure::{Failure, Outcome, Status};
use crate::output;

/// What is to be checked.
pub(super) enum Target {
    /// An image.
    Image(ImageSpec),
    /// A mount of Cairn.
    Mount(PathBuf),
}

/// What the operand names: a mount point of Cairn, or else an image.
///
/// # Errors
/// The operand names no part of an image.
pub(super) fn target(operand: &OsStr) -> Outcome<Target> {
    if let Some(point) = mount_point(operand) {
        return Ok(Target::Mount(point));
    }
    let image = ImageSpec::parse(operand)?;
    if let Some(point) = image.file().and_then(cairn_block::file::mounted_by_kernel) {
        output::complain(format_args!(
            "warning: {image}: Linux has mounted it on {point}: findings may come from changes \
             during the check; unmount it, and check it again"
        ));
    }
    Ok(Target::Image(image))
}

/// The mount point of Cairn that the operand names, if it names one.
pub(super) fn mount_point(operand: &OsStr) -> Option<PathBuf> {
    let path = Path::new(operand);
    is_mount(path).then(|| path.to_owned())
}

/// Why what is mounted is not repaired, and what to do.
pub(super) fn not_repaired(point: &Path) -> Failure {
    let image = live_mount::find(point).map_or_else(|_| "IMAGE".into(), |mount| mount.source);
    let shown = point.display();
    let text = format!(
        "{shown}: a mounted volume is not repaired: unmount it (cairn umount {shown}), and repair \
         its image (cairn check --repair {image})"
    );
    Failure::new(Status::Busy, text)
}

/// Is the path, or what it leads to, a mount point of Cairn?
fn is_mount(path: &Path) -> bool {
    let Ok(point) = table::absolute(path) else { return false };
    let is_one =
        |point: &Path| table::find(point).ok().flatten().is_some_and(|mount| mount.is_cairn());
    is_one(&point) || std::fs::canonicalize(&point).is_ok_and(|canonical| is_one(&canonical))
}

/// Checks what is mounted there, frozen. Returns the image, too.
///
/// # Errors
/// No daemon serves the mount, another user made it, it is frozen already, or its image cannot be
/// checked.
pub(super) fn check(point: &Path, observer: Arc<dyn Observer>) -> Outcome<(OsString, Checked)> {
    let failed = |error| live_mount::failure(point, &error);
    let mount = live_mount::find(point)?;
    let held = live_mount::connect(point)?.hold().map_err(failed)?;
    let image = ImageSpec::parse(OsStr::new(&mount.source))?;
    let checked = cairn::check_frozen(&image, observer).map_err(uncheckable);
    // The check is worth nothing if something was written meanwhile.
    let released = held.release().map_err(|error| {
        let text = format!(
            "{}: the freeze ended before the check: {error}; check it again",
            point.display()
        );
        Failure::new(Status::Failed, text)
    });
    let checked = checked?;
    released?;
    Ok((image.to_os_string(), checked))
}
