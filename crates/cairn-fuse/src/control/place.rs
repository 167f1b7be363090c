//! Where the socket of a mount is.
//!
//! Its name is the mount's device number, which all paths to one mount share and no two live mounts do. Its directory
//! belongs to the daemon's user and is closed to others: `$XDG_RUNTIME_DIR/cairn` or `/run/user/UID/cairn`, for root
//! `/run/cairn`; where there is no such place, `/tmp/cairn-UID`.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ControlError;

/// Name of the socket of the mount with this device number (`major:minor`).
pub(crate) fn name(device: &str) -> String {
    format!("{}.sock", device.replace(':', "-"))
}

/// Directories that daemons of a user may have chosen, best first. For one's own, `runtime` is `$XDG_RUNTIME_DIR`.
pub(crate) fn directories(uid: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let fallback = PathBuf::from(format!("/tmp/cairn-{uid}"));
    if uid == 0 {
        return vec!["/run/cairn".into(), fallback];
    }
    let mut found: Vec<PathBuf> =
        runtime.filter(|path| path.is_absolute()).map(|path| path.join("cairn")).into_iter().collect();
    let usual = PathBuf::from(format!("/run/user/{uid}/cairn"));
    if !found.contains(&usual) {
        found.push(usual);
    }
    found.push(fallback);
    found
}

/// The first of the directories that can be made, or is there, and is ours alone.
pub(crate) fn make(directories: &[PathBuf], uid: u32) -> Result<PathBuf, ControlError> {
    let mut last = None;
    for directory in directories {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                last = Some(ControlError::Io { path: directory.clone(), source });
            }
            _ => match check(directory, uid) {
                Ok(()) => return Ok(directory.clone()),
                Err(error) => last = Some(error),
            },
        }
    }
    Err(last.unwrap_or_else(|| ControlError::NoSocket(Vec::new())))
}

/// A directory that others could have made or could change is not to be trusted.
pub(crate) fn check(directory: &Path, uid: u32) -> Result<(), ControlError> {
    let broken = |why: &str| ControlError::Unsafe { path: directory.to_owned(), why: why.to_owned() };
    let found =
        fs::symlink_metadata(directory).map_err(|source| ControlError::Io { path: directory.to_owned(), source })?;
    if !found.is_dir() {
        return Err(broken("it is not a directory"));
    }
    if found.uid() != uid {
        return Err(broken(&format!("it belongs to user {}, not {uid}", found.uid())));
    }
    if found.mode() & 0o077 != 0 {
        return Err(broken("others may enter it"));
    }
    Ok(())
}
