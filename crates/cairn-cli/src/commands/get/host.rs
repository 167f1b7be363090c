//! Making files on the host, for `get`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_vfs::Timestamp;
use rustix::fs::Timespec;

use crate::commands::destination::{in_the_way, names_beside};
use crate::failure::{Failure, Outcome, Status};
use crate::print;

/// Where a file goes if the destination is a name, not a directory. Symbolic links are followed, as
/// cp(1) does: the user gave the whole path, and no part of it comes from the image.
///
/// # Errors
/// A symbolic link leads to nothing or to itself, or is not followed
/// ([`cairn::host::behind_links`]).
pub(super) fn behind_links(path: &Path) -> Outcome<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {}
        _ => return Ok(path.to_owned()),
    }
    let place = cairn::host::behind_links(path).map_err(|error| Failure::host(path, &error))?;
    match fs::metadata(path) {
        // A device such as /dev/stdout leads to a name that is no file's.
        Ok(found) if found.is_file() => Ok(place),
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::new(
            Status::Failed,
            format!(
                "{}: a dangling symbolic link: remove it first, or give another name",
                host_name(path)
            ),
        )),
        Err(error) => Err(Failure::host(path, &error)),
    }
}

/// Opens the device or FIFO at `path`, if there is one: `get` writes to it and does not replace it.
///
/// # Errors
/// The device or FIFO cannot be opened.
pub(super) fn open_device(path: &Path) -> Outcome<Option<File>> {
    let Ok(found) = fs::metadata(path) else { return Ok(None) };
    let kind = found.file_type();
    if !kind.is_char_device() && !kind.is_block_device() && !kind.is_fifo() {
        return Ok(None);
    }
    let opened = File::options().write(true).open(path);
    opened.map(Some).map_err(|error| Failure::host(path, &error))
}

/// EPERM, EACCES, EOPNOTSUPP, ENOSPC, ERANGE, E2BIG: errors of hosts for attributes that they do
/// not store.
pub(super) fn tolerable(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(1 | 7 | 13 | 28 | 34 | 95))
}

/// A relative path that cannot leave its directory.
pub(super) fn safe(path: &[u8]) -> Outcome<&Path> {
    let bad = |name: &[u8]| matches!(name, b"." | b"..") || name.contains(&0);
    if path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(bad) {
        let message =
            format!("{}: an invalid name: run `cairn check` on the image", path.escaped());
        return Err(Failure::new(Status::Corrupt, message));
    }
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// Calls `make` with a name to make a file, and gives the file the name `path`, replacing an entry
/// that is not a directory. It is [`Place::fill`](super::destination::Place::fill) on the host.
/// False if `make` left the file out.
pub(super) fn fill(path: &Path, make: impl FnOnce(&Path) -> Outcome<bool>) -> Outcome<bool> {
    let failed = |error: std::io::Error| Failure::host(path, &error);
    let replaces = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            let message = format!(
                "{}: a directory exists there: remove it first, or give another name",
                host_name(path)
            );
            return Err(Failure::new(Status::Failed, message));
        }
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    let beside = || {
        names_beside()
            .map(|name| path.with_file_name(name))
            .find(|path| path.symlink_metadata().is_err())
    };
    let name = if replaces {
        beside().ok_or_else(|| failed(ErrorKind::AlreadyExists.into()))?
    } else {
        path.to_owned()
    };
    let made = make(&name).and_then(|made| {
        if replaces && made {
            fs::rename(&name, path).map_err(failed)?;
        }
        Ok(made)
    });
    if replaces || made.is_err() {
        // A rename of one name of a file to another name of the same file leaves both names.
        match fs::remove_file(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return made.map_err(|failure| {
                    failure.leaving(format!("an incomplete {} remains", host_name(&name)))
                });
            }
            _ => {}
        }
    }
    made
}

/// The failure of a call that makes a file or directory on the host.
pub(super) fn unmade(path: &Path, error: &std::io::Error) -> Failure {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty() && !above.exists());
    above.map_or_else(|| Failure::host(path, error), no_host_directory)
}

fn no_host_directory(path: &Path) -> Failure {
    let what = "no such directory on this host: create it first";
    Failure::of_host(format!("{}: {what}", host_name(path)))
}

/// A path of the host, for messages.
pub(super) fn host_name(path: &Path) -> String {
    print::escaped(path.as_os_str().as_bytes())
}

/// Makes a directory that only its owner may enter until its attributes are set. An existing
/// directory is used, a link to one is not.
pub(super) fn make_directory(path: &Path) -> Outcome {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_dir() => Ok(()),
                _ => Err(in_the_way(&host_name(path))),
            }
        }
        done => done.map_err(|error| unmade(path, &error)),
    }
}

pub(super) fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
