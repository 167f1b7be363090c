//! What lies between a file and the disk in it: qcow2, zstd, LUKS. It is recognised by content, or
//! named by the image's address (`?format=`).
//!
//! **What an image may make Cairn open.** A qcow2 image names its backing file. The maker of the
//! image chose that name, so it must not lead to other files of the user: only a file in the
//! directory of the image, or below it, is opened, for reading. And a guest may write what looks
//! like the header of another format to the first block of its raw disk. So a file that is
//! recognised, but is a volume or has a partition table as a raw disk, too, is refused until the
//! address says which it is.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cairn_base::names::Escaped;
use cairn_base::system_error;
use cairn_block::{BlockDevice, ErrorKind};
use cairn_images::qcow2::{self, BackingName};
use cairn_images::{Kind, recognise, zst};
use cairn_luks::Luks;

use crate::error::{Cause, Result};
use crate::format;
use crate::image::{DiskFormat, ImageSpec, Part};
use crate::keys;
use crate::link::Link;
use crate::partition;

/// The disk in what was opened, and what was found on the way to it.
pub(crate) fn disk(
    image: &ImageSpec,
    device: Arc<dyn BlockDevice>,
    write: bool,
    links: &mut Vec<Link>,
) -> Result<Arc<dyn BlockDevice>, Cause> {
    let kind = match image.format {
        DiskFormat::Raw => None,
        DiskFormat::Qcow2 => Some(Kind::Qcow2),
        DiskFormat::Zstd => Some(Kind::Zstd),
        DiskFormat::ByContent => by_content(&*device)?,
    };
    let folder = image.file().and_then(Path::parent);
    disk_as(kind, folder, device, write, 0, links)
}

fn by_content(device: &dyn BlockDevice) -> Result<Option<Kind>, Cause> {
    let Some(kind) = recognise(device) else { return Ok(None) };
    let is_raw = format::probe(device).is_ok_and(|found| found.is_some())
        || partition::read(device).is_ok_and(|table| table.is_some());
    match is_raw {
        false => Ok(Some(kind)),
        true => Err(Cause::Address(format!(
            "it begins like a {kind} image, and is a raw disk as well: write IMAGE?format=raw or \
             IMAGE?format={kind}"
        ))),
    }
}

fn disk_as(
    kind: Option<Kind>,
    folder: Option<&Path>,
    device: Arc<dyn BlockDevice>,
    write: bool,
    depth: u32,
    links: &mut Vec<Link>,
) -> Result<Arc<dyn BlockDevice>, Cause> {
    match kind {
        None => Ok(device),
        Some(Kind::Qcow2) => {
            let backing = |named: &BackingName| backing(folder, named);
            let options = qcow2::Options { write, backing: &backing, depth };
            let disk = qcow2::open(device, &options).map_err(cause)?;
            links.push(Link::qcow2(&disk));
            Ok(Arc::new(disk))
        }
        Some(Kind::Zstd) if write => Err(Cause::ReadOnly {
            why: "the disk is compressed with zstd: decompress it (zstd -d) to write it".into(),
        }),
        Some(Kind::Zstd) => {
            let disk = zst::open(device).map_err(cause)?;
            links.push(Link::new("zstd", String::new(), &disk));
            Ok(Arc::new(disk))
        }
        Some(other) => Err(Cause::Open(cairn_block::Error::new(
            ErrorKind::UnsupportedFeature,
            "open",
            format!("{other} images are not supported: convert it with qemu-img convert"),
        ))),
    }
}

/// The disk on an encrypted device; the device itself if it is not encrypted. With a key, the
/// second header of LUKS 2 is enough. Without one it may be what an older disk has left.
pub(crate) fn decrypted(
    image: &ImageSpec,
    device: Arc<dyn BlockDevice>,
    write: bool,
    links: &mut Vec<Link>,
) -> Result<Arc<dyn BlockDevice>, Cause> {
    let is_found = image.format != DiskFormat::Raw && cairn_luks::recognise(&*device);
    if image.key.is_none() && !is_found {
        return Ok(device);
    }
    let info = match cairn_luks::inspect(&*device) {
        Err(cairn_luks::Error::NotLuks) => return Ok(device),
        found => found.map_err(cause)?,
    };
    let passphrase = keys::of(image, info.version)?;
    let options = cairn_luks::Options { write, ..cairn_luks::Options::default() };
    let disk = Luks::open(device, &passphrase, &options).map_err(cause)?;
    links.push(Link::new("LUKS", format!("version {}, {}", info.version, info.cipher), &disk));
    Ok(Arc::new(disk))
}

/// Refuses an offset that no disk here has, before anybody is asked for a passphrase.
pub(crate) fn check_offset(image: &ImageSpec, device: &dyn BlockDevice) -> Result<(), Cause> {
    let Part::Offset(offset) = image.part else { return Ok(()) };
    let may_be_encrypted = image.format != DiskFormat::Raw;
    let info = may_be_encrypted.then(|| cairn_luks::inspect(device).ok()).flatten();
    let is_used = image.key.is_some() || cairn_luks::recognise(device);
    let size = match info.filter(|_| is_used) {
        Some(info) => info.size,
        None => device.geometry().size,
    };
    match offset < size {
        true => Ok(()),
        false => Err(Cause::OffsetBeyondEnd { offset, size }),
    }
}

/// The backing file of a qcow2 image, for reading.
fn backing(
    folder: Option<&Path>,
    named: &BackingName,
) -> cairn_block::Result<Arc<dyn BlockDevice>> {
    let failed = |kind, detail: String| {
        cairn_block::Error::new(kind, format!("open {}", wanted(folder, named).escaped()), detail)
    };
    let refused = |detail: String| failed(ErrorKind::PermissionDenied, detail);
    let folder = folder.ok_or_else(|| refused("the image is not in a directory".into()))?;
    let path = beside(folder, Path::new(&named.name)).map_err(|error| match error {
        Some(error) if error.kind() == io::ErrorKind::NotFound => failed(
            ErrorKind::NotFound,
            "no such file: put it there, or write its new name into the image (qemu-img rebase -u \
             -F FORMAT -b NAME IMAGE)"
                .into(),
        ),
        Some(error) => refused(system_error::with_remedy(
            &error,
            "see the owner and mode of the file and its directories",
        )),
        None => refused(
            "it is not in the image's directory, and an image must not make Cairn open other \
             files: put it there, and write its name with qemu-img rebase -u -F FORMAT -b NAME \
             IMAGE"
                .into(),
        ),
    })?;
    let options = cairn_block::file::OpenOptions::read();
    let device = cairn_block::file::FileDevice::open(&path, options).map_err(|mut error| {
        if error.kind == ErrorKind::PermissionDenied {
            error.detail += ": see the owner and mode of the file and its directories";
        }
        error
    })?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let kind = match named.format.as_deref() {
        Some("raw") => None,
        Some("qcow2") => Some(Kind::Qcow2),
        Some(other) => {
            return Err(refused(format!(
                "its format is {other}: convert it with qemu-img convert"
            )));
        }
        None => by_content(&*device).map_err(|cause| refused(cause.to_string()))?,
    };
    disk_as(kind, path.parent(), device, false, named.depth, &mut Vec::new()).map_err(|cause| {
        match cause {
            Cause::Open(error) => error,
            cause => refused(cause.to_string()),
        }
    })
}

/// Where the backing file of an image in a directory is looked for.
fn wanted(folder: Option<&Path>, named: &BackingName) -> PathBuf {
    let path = folder.unwrap_or(Path::new("")).join(&named.name);
    std::path::absolute(&path).unwrap_or(path)
}

/// The path of a file in a directory or below it, whatever symbolic links are on the way. Fails
/// without an error of the system if it is elsewhere: whether a file is there, nobody learns.
fn beside(folder: &Path, name: &Path) -> Result<PathBuf, Option<io::Error>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = folder.canonicalize().map_err(Some)?;
    let leads_out = name.has_root() || name.components().any(|part| part == Component::ParentDir);
    let found =
        folder.join(name).canonicalize().map_err(|error| Some(error).filter(|_| !leads_out));
    found.and_then(|found| match found.starts_with(&folder) {
        true => Ok(found),
        false => Err(None),
    })
}

fn cause(error: impl Into<cairn_block::Error>) -> Cause {
    Cause::Open(error.into())
}
