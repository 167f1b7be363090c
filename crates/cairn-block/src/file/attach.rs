//! Makes a loop device of an image file: the kernel's side of it is a block device then.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::kind;
use crate::error::{Error, ErrorKind, Result};
use crate::ioctl::{self, LoopConfig};

/// How often a free loop device is asked for: another program may take it first.
const ATTEMPTS: usize = 64;

/// A loop device that was made for an image. The kernel removes it when nobody has it open.
#[derive(Debug)]
#[must_use]
pub struct LoopDevice {
    #[expect(dead_code, reason = "it keeps the device")]
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a loop device of `len` bytes of the image at `image` from `offset` on; without `len`,
    /// up to its end. Needs root. If the system allows no writes to the image, the device is
    /// read-only.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] without root;
    /// [`ErrorKind::Unsupported`] if it is neither a regular file
    /// nor a block device; the system has no free loop device, or none at all.
    pub fn attach(
        image: impl AsRef<Path>,
        offset: u64,
        len: Option<u64>,
        write: bool,
    ) -> Result<Self> {
        let image = image.as_ref();
        let operation = format!("make a loop device of {}", image.display());
        let io = |error| Error::from_io(operation.as_str(), error);
        let (backing, write) = backing(image, write)?;
        let control = opened(Path::new("/dev/loop-control"), true).map_err(io)?;
        for _ in 0..ATTEMPTS {
            let number = ioctl::free_loop(&control).map_err(|error| io(error.into()))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = opened(&path, write).map_err(io)?;
            let fd = backing.as_raw_fd().cast_unsigned();
            match ioctl::configure_loop(&file, &LoopConfig::new(fd, offset, len, !write)) {
                Ok(()) => return Ok(Self { file, path }),
                Err(Errno::BUSY) => {}
                Err(error) => return Err(io(error.into())),
            }
        }
        Err(io(Errno::BUSY.into()))
    }

    /// `/dev/loop3`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the image, and tells whether it can be written.
fn backing(image: &Path, write: bool) -> Result<(File, bool)> {
    let reading = || Ok((kind::existing(image, false, OFlags::empty())?, false));
    match kind::existing(image, write, OFlags::empty()) {
        Err(Error { kind: ErrorKind::ReadOnly | ErrorKind::PermissionDenied, .. }) if write => {
            reading()
        }
        Ok(file) if write && is_write_protected(&file) => reading(),
        opened => Ok((opened?, write)),
    }
}

/// True of a block device that takes no writes although it was opened for them. The kernel would
/// find that out when a loop device of it is written.
fn is_write_protected(file: &File) -> bool {
    let is_device = file.metadata().is_ok_and(|found| found.file_type().is_block_device());
    is_device && ioctl::is_read_only(file).unwrap_or(false)
}

fn opened(path: &Path, write: bool) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).write(write).custom_flags(flags).open(path)
}
