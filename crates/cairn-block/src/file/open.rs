//! Opens an image: checks its kind and size, and takes its locks.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use cairn_base::names::Escaped;
use rustix::fs::{OFlags, ioctl_blkpbszget, ioctl_blksszget, major, minor};

use super::holder;
use super::kind::{existing, make};
use super::lock::{self, Share, Use};
use super::loops::{self, Beneath};
use crate::device::Geometry;
use crate::error::{Error, ErrorKind, Result};
use crate::ioctl;

/// How to open an image. The default reads and locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Accept writes.
    pub write: bool,
    /// Take locks: a writer excludes all others, readers exclude writers.
    pub lock: bool,
    /// Claim a block device that is written, as the kernel's own filesystems do (`O_EXCL`). A
    /// [`BlockClaim`](super::BlockClaim) does this separately.
    pub claim: bool,
    /// Create the file if it does not exist, and make it at least this many bytes large. It is
    /// never shrunk.
    pub create_size: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { write: false, lock: true, claim: true, create_size: None }
    }
}

impl OpenOptions {
    /// Read only, locked against writers.
    #[must_use]
    pub fn read() -> Self {
        Self::default()
    }

    /// Read and write, locked against all others.
    #[must_use]
    pub fn write() -> Self {
        Self { write: true, ..Self::default() }
    }

    /// Like [`OpenOptions::write`]; the file is created or grown to `size` bytes.
    #[must_use]
    pub fn create(size: u64) -> Self {
        Self { create_size: Some(size), ..Self::write() }
    }
}

pub(super) struct Opened {
    pub(super) file: File,
    pub(super) geometry: Geometry,
    pub(super) is_block_device: bool,
    pub(super) beneath: Beneath,
}

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<Opened> {
    let create = options.create_size.is_some() && options.write;
    // Without O_CREAT, O_EXCL on a block device means: not while the system has it mounted or
    // otherwise claimed.
    let wanted = options.write && options.lock && options.claim;
    let claim = if wanted { OFlags::EXCL } else { OFlags::empty() };
    let file = match existing(path, options.write, claim) {
        Err(error) if create && error.kind == ErrorKind::NotFound => make(path)?,
        opened => opened?,
    };
    take(file, path, options)
}

fn operation(path: &Path) -> String {
    format!("open {}", path.escaped())
}

/// Makes an image of an open file. `path` is the path by which it was opened.
pub(super) fn take(file: File, path: &Path, options: OpenOptions) -> Result<Opened> {
    let operation = operation(path);
    let metadata = file.metadata().map_err(|error| Error::from_io(operation.as_str(), error))?;
    let is_block_device = metadata.file_type().is_block_device();
    let beneath = if options.lock {
        lock(&operation, path, &file, &metadata, options.write)?
    } else {
        Beneath::default()
    };
    let size = size_of(&operation, &file, is_block_device, options)?;
    let geometry = geometry(&operation, &file, &metadata, size, !options.write)?;
    Ok(Opened { file, geometry, is_block_device, beneath })
}

/// Takes the locks of the file, and of the backing files of a loop device.
fn lock(
    operation: &str,
    path: &Path,
    file: &File,
    metadata: &Metadata,
    write: bool,
) -> Result<Beneath> {
    let usage = if write { Use::Write } else { Use::Read };
    if !lock::take(file, usage, &Share::Whole).map_err(|error| Error::from_io(operation, error))? {
        return Err(holder::in_use(operation, path, metadata));
    }
    let looked = || {
        if write {
            holder::refuse_fuse(operation, path)?;
            loops::refuse_loops(operation, metadata)?;
        }
        loops::claim_beneath(operation, file, metadata, usage)
    };
    looked().inspect_err(|_| lock::release(file))
}

/// Opens an image for reading, without locks: to look at it, or to wait until it is free.
///
/// # Errors
/// As [`super::FileDevice::open`].
pub fn open_image(path: impl AsRef<Path>) -> Result<File> {
    existing(path.as_ref(), false, OFlags::empty())
}

/// Where the kernel has mounted this image, by itself, through a loop device, or in part. `None`
/// if it has not, or that cannot be found out.
#[must_use]
pub fn mounted_by_kernel(path: impl AsRef<Path>) -> Option<String> {
    loops::mounted(&std::fs::metadata(path).ok()?)
}

/// The size in bytes, after the file has grown to the requested size.
fn size_of(
    operation: &str,
    mut file: &File,
    is_block_device: bool,
    options: OpenOptions,
) -> Result<u64> {
    let io = |error| Error::from_io(operation, error);
    let size = file.seek(SeekFrom::End(0)).map_err(io)?;
    match options.create_size {
        Some(wanted) if size < wanted && is_block_device => {
            let detail = format!("{wanted} bytes are needed, but the block device has {size}");
            Err(Error::new(ErrorKind::OutOfRange, operation, detail))
        }
        Some(wanted) if size < wanted && options.write => {
            file.set_len(wanted).map_err(io)?;
            Ok(wanted)
        }
        _ => Ok(size),
    }
}

fn geometry(
    operation: &str,
    file: &File,
    metadata: &Metadata,
    size: u64,
    read_only: bool,
) -> Result<Geometry> {
    let plain = Geometry {
        size,
        logical_block: 1,
        physical_block: 4096,
        memory_alignment: 1,
        read_only,
        discard: true,
    };
    if metadata.is_file() {
        return Ok(plain);
    }
    let io = |error: rustix::io::Errno| Error::from_io(operation, error.into());
    let read_only = read_only || ioctl::is_read_only(file).map_err(io)?;
    let logical_block = ioctl_blksszget(file).map_err(io)?;
    let physical_block = ioctl_blkpbszget(file).map_err(io)?.max(logical_block);
    Ok(Geometry {
        logical_block,
        physical_block,
        read_only,
        discard: can_discard(metadata.rdev()),
        ..plain
    })
}

/// A partition has no queue of its own: it uses that of the whole device, whose directory contains
/// its own.
fn can_discard(device: u64) -> bool {
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    ["queue/discard_max_bytes", "../queue/discard_max_bytes"].iter().any(|file| {
        let limit = std::fs::read_to_string(format!("{base}/{file}"));
        limit.is_ok_and(|limit| limit.trim() != "0")
    })
}
