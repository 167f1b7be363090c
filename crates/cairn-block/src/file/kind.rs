//! What kinds of files hold images: regular files and block devices.
//!
//! The type of a file is known before it is opened: opening a FIFO would wait, and opening a
//! terminal or a tape does something to it.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use cairn_base::names::Escaped;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::claimant;
use crate::error::{Error, ErrorKind, Result};

/// Opens a regular file or a block device. For a block device `claim` is added to the flags.
pub(super) fn existing(path: &Path, write: bool, claim: OFlags) -> Result<File> {
    let operation = format!("open {}", path.escaped());
    let io = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => claimant::claimed(&operation, path),
        _ => Error::from_io(operation.as_str(), error),
    };
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| io(error.into()))?;
    let place = File::from(place);
    let found = place.metadata().map_err(io)?;
    check_kind(&operation, &found)?;
    let flags = if found.file_type().is_block_device() { claim } else { OFlags::empty() };
    let open = |path: &Path, flags: OFlags| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    };
    match open(Path::new(&format!("/proc/self/fd/{}", place.as_raw_fd())), flags) {
        // Without /proc, by its name, which may lead to another file now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let file = open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY).map_err(io)?;
            check_kind(&operation, &file.metadata().map_err(io)?)?;
            Ok(file)
        }
        opened => opened.map_err(io),
    }
}

/// Creates a file where there was none a moment ago.
pub(super) fn make(path: &Path) -> Result<File> {
    let operation = format!("open {}", path.escaped());
    let io = |error| Error::from_io(operation.as_str(), error);
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
        .map_err(io)?;
    check_kind(&operation, &file.metadata().map_err(io)?)?;
    Ok(file)
}

fn check_kind(operation: &str, metadata: &Metadata) -> Result<()> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() || kind.is_block_device() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a character device",
    };
    let detail =
        format!("it is {what}, neither a regular file nor a block device: give the image itself");
    let error = Error::new(ErrorKind::Unsupported, operation, detail);
    // Callers of other languages get the number that open(2) has for this.
    let source = kind.is_dir().then(|| Arc::new(Errno::ISDIR.into()));
    Err(Error { source, ..error })
}
