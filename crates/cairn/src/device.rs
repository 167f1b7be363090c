//! Opening one device: what holds the bytes, the disk in it, its zones, the part of it that an
//! image's name says.

use std::path::Path;
use std::sync::Arc;

use cairn_block::file::{FileDevice, KeptImage, LoopDevice, OpenOptions};
use cairn_block::wrap::Partition;
use cairn_block::zoned::{self, HostZoned};
use cairn_block::{BlockDevice, ErrorKind};

use crate::direct;
use crate::error::{Cause, Error, Result};
use crate::image::{DiskFormat, ImageSpec, Location, Part};
use crate::keys;
use crate::layers;
use crate::link::Link;
use crate::objects;
use crate::partition;
use crate::remote;

/// Opens a single device; with its zones, if it has some.
pub(crate) fn open_one(image: &ImageSpec, write: bool) -> Result<Arc<dyn BlockDevice>> {
    open_linked(image, write).map(|(device, _)| device)
}

/// As [`open_one`], for what is looked at or replaced as a whole: what holds no disk that can be
/// opened (it is encrypted or damaged) is taken as it is. But who is asked for a passphrase means
/// the disk in it, also if the passphrase is wrong. And a container such as qcow2 is written as it
/// is only if its name says `?format=raw`: its files are there, whatever this program lacks to open
/// it.
pub(crate) fn open_or_raw(image: &ImageSpec, write: bool) -> Result<Arc<dyn BlockDevice>> {
    open_one(image, write).or_else(|error| {
        if keys::asked() > 0 {
            return Err(error);
        }
        let is_taken = image.format == DiskFormat::ByContent && image.key.is_none();
        match as_raw(image, write).filter(|_| is_taken) {
            Some(device) if cairn_images::recognise(&*device).is_some() => match write {
                true => Err(container_kept(error)),
                false => Ok(device),
            },
            Some(device) if cairn_luks::recognise(&*device) => Ok(device),
            _ => Err(error),
        }
    })
}

fn as_raw(image: &ImageSpec, write: bool) -> Option<Arc<dyn BlockDevice>> {
    open_one(&ImageSpec { format: DiskFormat::Raw, ..image.clone() }, write).ok()
}

/// Refuses a container by its first bytes, unless the disk in it can be opened or its name says
/// `?format=raw`.
pub(crate) fn refuse_closed_container(image: &ImageSpec) -> Result<()> {
    let is_container = image.format == DiskFormat::ByContent
        && as_raw(image, false).is_some_and(|raw| cairn_images::recognise(&*raw).is_some());
    match is_container {
        true => open_one(image, false).map(drop).map_err(container_kept),
        false => Ok(()),
    }
}

const AS_A_WHOLE: &str = "; the container is replaced as a whole only as IMAGE?format=raw";

/// Refuses a container whose disk is encrypted, as long as no key is given: what may be overwritten
/// is that disk, not the container.
pub(crate) fn refuse_encrypted_container(image: &ImageSpec) -> Result<()> {
    let is_container = image.format == DiskFormat::ByContent
        && as_raw(image, false).is_some_and(|raw| cairn_images::recognise(&*raw).is_some());
    match is_container.then(|| open_one(image, false)) {
        Some(Err(error)) if matches!(error.cause(), Cause::Encrypted { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Why a container is not replaced as a whole.
fn container_kept(error: Error) -> Error {
    let name = error.image().to_owned();
    let cause = match error.into_cause() {
        Cause::Open(mut why) => {
            why.detail += AS_A_WHOLE;
            Cause::Open(why)
        }
        Cause::ReadOnly { why } => Cause::ReadOnly { why: why + AS_A_WHOLE },
        other => other,
    };
    Error::new(name, cause)
}

/// As [`open_one`], with what the image is made of.
pub(crate) fn open_linked(
    image: &ImageSpec,
    write: bool,
) -> Result<(Arc<dyn BlockDevice>, Vec<Link>)> {
    match &image.location {
        Location::File(path) => open_at(image, path, write, true),
        Location::Nbd(address) => {
            part_of(image, (remote::open(image, address, write)?, None), write)
        }
        Location::Objects(volume) => {
            part_of(image, (objects::open(image, volume, write)?, None), write)
        }
    }
}

/// As [`open_linked`], by another path to the file or device that `image` names. `claim`: a block
/// device that is written is claimed, too.
pub(crate) fn open_at(
    image: &ImageSpec,
    path: &Path,
    write: bool,
    claim: bool,
) -> Result<(Arc<dyn BlockDevice>, Vec<Link>)> {
    let error = |cause| Error::new(image, cause);
    if write
        && let Some(zoned) = HostZoned::open(path).map_err(|source| error(Cause::Open(source)))?
    {
        let link = Link::new("zoned block device", String::new(), &zoned);
        return narrow(image, Arc::new(zoned), write, vec![link]);
    }
    let options = OpenOptions { write, claim, ..OpenOptions::default() };
    let device = FileDevice::open(path, options).map_err(|source| error(Cause::Open(source)))?;
    part_of(image, direct::over(image, device)?, write)
}

/// Opens a single image that a mount has locked, for reading. What is read may change, unless the
/// mount is frozen.
pub(crate) fn open_unlocked(image: &ImageSpec) -> Result<Arc<dyn BlockDevice>> {
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let opened = match &image.location {
        Location::File(path) => {
            let file = FileDevice::open(path, options);
            direct::over(image, file.map_err(|source| Error::new(image, Cause::Open(source)))?)?
        }
        Location::Nbd(address) => (remote::open_unclaimed(image, address, false)?, None),
        Location::Objects(volume) => (objects::open_unclaimed(image, volume)?, None),
    };
    part_of(image, opened, false).map(|(device, _)| device)
}

/// While it lives, no other process may write the image, as while a volume in it is open for
/// writing.
#[derive(Debug)]
#[must_use]
pub struct Claim(#[expect(dead_code, reason = "it holds the lock")] FileDevice);

/// Claims a whole image file that is about to be replaced. What it holds does not matter.
///
/// # Errors
/// Another process uses it, the kernel has mounted it, or it cannot be opened.
pub fn claim(image: &ImageSpec) -> Result<Claim> {
    let path = only_file(image, "an image that is replaced")?;
    let open = |write| FileDevice::open(path, OpenOptions { write, ..OpenOptions::default() });
    let opened = open(true).or_else(|error| match error.kind {
        // A file that this user may not write can still be replaced in its directory.
        ErrorKind::PermissionDenied => open(false),
        _ => Err(error),
    });
    opened.map(Claim).map_err(|source| Error::new(image, Cause::Open(source)))
}

/// The image's path, where it must have one.
fn only_file<'a>(image: &'a ImageSpec, what: &str) -> Result<&'a Path> {
    image.file().ok_or_else(|| {
        let why = format!("{what} must be a file or block device of this system: give one");
        Error::new(image, Cause::Refused(why))
    })
}

/// As [`open_one`], for reading, of an image that is open already.
pub(crate) fn read_kept(image: &ImageSpec, kept: &KeptImage) -> Result<Arc<dyn BlockDevice>> {
    let device = kept.read().map_err(|source| Error::new(image, Cause::Open(source)))?;
    part_of(image, direct::over(image, device)?, false).map(|(device, _)| device)
}

/// The disk, or the part of it, on a device; with what is told of the way to the device.
fn part_of(
    image: &ImageSpec,
    (device, way): (Arc<dyn BlockDevice>, Option<String>),
    write: bool,
) -> Result<(Arc<dyn BlockDevice>, Vec<Link>)> {
    let error = |cause| Error::new(image, cause);
    let mut links = vec![Link::base(image, &*device, way)];
    let device = layers::disk(image, device, write, &mut links)
        .and_then(|disk| layers::check_offset(image, &*disk).map(|()| disk))
        .and_then(|disk| layers::decrypted(image, disk, write, &mut links))
        .map_err(error)?;
    let zoned = zoned::open_image(&device).map_err(|source| error(source.into()))?;
    let device = match zoned {
        None => device,
        Some(zoned) => {
            links.push(Link::new("zones", String::new(), &zoned));
            Arc::new(zoned)
        }
    };
    let (mut device, mut links) = narrow(image, device, write, links)?;
    if image.part != Part::Whole {
        device = layers::decrypted(image, device, write, &mut links).map_err(error)?;
    }
    if image.key.is_some() && links.iter().all(|link| link.kind != "LUKS") {
        return Err(error(Cause::Address(
            "a key is given, and the disk does not begin as one that LUKS has encrypted: leave \
             the key out, or, if it was encrypted, restore its header (cryptsetup \
             luksHeaderRestore)"
                .into(),
        )));
    }
    Ok((device, links))
}

fn narrow(
    image: &ImageSpec,
    device: Arc<dyn BlockDevice>,
    write: bool,
    mut links: Vec<Link>,
) -> Result<(Arc<dyn BlockDevice>, Vec<Link>)> {
    let error = |cause| Error::new(image, cause);
    let Some(range) = range_of(&*device, image.part, write).map_err(error)? else {
        return Ok((device, links));
    };
    let part = Partition::new(device, range.offset, range.len).map_err(|why| error(why.into()))?;
    let (kind, detail) = match image.part {
        Part::Partition(number) => ("partition", format!("{number}, from byte {}", range.offset)),
        _ => ("offset", format!("from byte {}", range.offset)),
    };
    links.push(Link::new(kind, detail, &part));
    Ok((Arc::new(part), links))
}

/// Where a part of a device is; `None` for all of it. What is only read may be cut off.
fn range_of(
    device: &dyn BlockDevice,
    part: Part,
    write: bool,
) -> Result<Option<partition::Range>, Cause> {
    match part {
        Part::Whole => Ok(None),
        Part::Partition(number) if write => partition::find(device, number).map(Some),
        Part::Partition(number) => partition::find_present(device, number).map(Some),
        Part::Offset(offset) => {
            let size = device.geometry().size;
            let len = size.checked_sub(offset).filter(|len| *len > 0);
            let len = len.ok_or(Cause::OffsetBeyondEnd { offset, size })?;
            Ok(Some(partition::Range { offset, len }))
        }
    }
}

/// Makes a loop device of the image, for the kernel to claim. Needs root.
///
/// # Errors
/// The image is no raw disk in a file of this system, cannot be opened or has no such part; the
/// system refuses a loop device.
pub fn attach(image: &ImageSpec, write: bool) -> Result<LoopDevice> {
    let error = |cause| Error::new(image, cause);
    let path = only_file(image, "what a loop device is made of")?;
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device = FileDevice::open(path, options).map_err(|source| error(Cause::Open(source)))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let mut links = Vec::new();
    let disk = layers::disk(image, device, false, &mut links)
        .and_then(|disk| layers::decrypted(image, disk, false, &mut links))
        .map_err(error)?;
    if let Some(link) = links.first() {
        let why =
            format!("a loop device shows raw disks alone, and this is {link}: leave loop out");
        return Err(error(Cause::Refused(why)));
    }
    let range = range_of(&*disk, image.part, true).map_err(error)?;
    let (offset, len) = range.map_or((0, None), |range| (range.offset, Some(range.len)));
    LoopDevice::attach(path, offset, len, write).map_err(|source| error(Cause::Open(source)))
}
