//! Opening: image → device → probe → filesystem.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::runtime::Runtime;
use cairn_base::runtime::simulated::Simulated;
use cairn_base::runtime::threads::Threads;
use cairn_block::BlockDevice;
use cairn_block::file::{BlockClaim, KeptImage};
use cairn_block::wrap::Overlay;
use cairn_vfs::FileSystem;

use crate::chain::container;
use crate::contents::unknown;
use crate::device::{open_at, open_one, read_kept};
use crate::error::{Cause, Error, Result};
use crate::format::{self, Format, Info};
use crate::further;
use crate::image::{ImageSpec, Location, Part};
use crate::interrupted::interrupted_repair;
use crate::process::{Forked, Opener};
use crate::recognise::recognise;
use crate::reopen::{self, Reopened};

mod options;

pub use options::OpenOptions;

/// An open volume. [`crate::fs`] has its calls that take a path.
///
/// [`Volume::close`] writes everything and leaves it clean. So does dropping it, without a report,
/// unless somebody else has a clone of its filesystem: then the volume is that one's to unmount. A
/// program that ends without either is a crash, from which the next open recovers.
pub struct Volume {
    format: Format,
    filesystem: Arc<dyn FileSystem>,
    needs_check: Option<String>,
    claim: Option<BlockClaim>,
    is_closed: bool,
    opener: Opener,
}

impl Volume {
    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The filesystem.
    #[must_use]
    pub fn filesystem(&self) -> &Arc<dyn FileSystem> {
        &self.filesystem
    }

    /// Writes everything, marks the volume clean and closes it.
    ///
    /// # Errors
    /// As [`FileSystem::unmount`].
    pub fn close(mut self) -> cairn_vfs::Result<()> {
        if !self.is_here() {
            return Ok(());
        }
        self.is_closed = true;
        self.filesystem.unmount()
    }

    /// What to tell who calls a volume in a forked child.
    pub const FORKED: &str = Forked::TEXT;

    /// True in the process that opened the volume. A child that this one has forked shares neither
    /// its threads nor what they do: it can drop or close the volume, which changes nothing, and
    /// must open the image itself. Calls of [`crate::fs`] fail there with EPERM.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.opener.is_here()
    }

    /// The filesystem, in the process that has its threads.
    pub(crate) fn here(&self) -> std::io::Result<&Arc<dyn FileSystem>> {
        self.opener.require()?;
        Ok(&self.filesystem)
    }

    /// Why the volume, which was opened for writing, should have been checked before, and what to
    /// do. For messages: nothing is refused.
    #[must_use]
    pub fn needs_check(&self) -> Option<&str> {
        self.needs_check.as_deref()
    }

    /// Why nothing can be written, if that is so: how the volume was opened, its features, the
    /// device, or an error that has stopped it.
    #[must_use]
    pub fn read_only_reason(&self) -> Option<String> {
        self.filesystem.report().text("state.read_only_reason").map(str::to_owned)
    }

    /// The claim on the block device that the volume is on, if it was opened with
    /// [`OpenOptions::hand_over`]. Once it is dropped, the kernel can claim the device for a mount.
    /// The locks, which keep other users of Cairn and QEMU away, stay.
    #[must_use]
    pub fn take_claim(&mut self) -> Option<BlockClaim> {
        self.claim.take()
    }

    /// Lets a volume that was opened read-only be remounted writable: see [`crate::reopen`].
    fn writable_later(
        self,
        options: &OpenOptions,
        again: reopen::Open,
        can_write: reopen::CanWrite,
    ) -> Self {
        if !options.read_only {
            return self;
        }
        let (format, needs_check) = (self.format, self.needs_check.clone());
        let check = move |options: &OpenOptions| {
            format::check_options(format, options).map(drop).map_err(|cause| cause.to_string())?;
            can_write()
        };
        let filesystem = Reopened::new(self.filesystem.clone(), options, again, Box::new(check));
        let filesystem = Arc::new(filesystem);
        Self {
            format,
            filesystem,
            needs_check,
            claim: None,
            is_closed: false,
            opener: Opener::this(),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.is_here() {
            // Its threads are not here, so it cannot end.
            std::mem::forget(self.filesystem.clone());
            return;
        }
        if self.is_closed || Arc::strong_count(&self.filesystem) > 1 {
            return;
        }
        let was_sound = self.filesystem.check_stopped().is_ok();
        if let Err(error) = self.filesystem.unmount()
            && was_sound
        {
            tracing::error!("a volume that was dropped is not clean: {error}");
        }
    }
}

/// Opens the volume in `image` with threads of its own.
///
/// # Errors
/// The image cannot be opened or holds no known volume, or the format refuses it.
pub fn open(image: &ImageSpec, options: &OpenOptions) -> Result<Volume> {
    match &image.location {
        Location::File(path) if options.hand_over && options.writes_image() => {
            open_claimed(image, path, options)
        }
        _ if !options.read_only => {
            open_first(image, open_one(image, options.writes_image())?, options)
        }
        Location::File(path) => open_file(image, path, options),
        Location::Nbd(_) | Location::Objects(_) => open_remote(image, options),
    }
}

/// Opens what is no file for reading.
fn open_remote(image: &ImageSpec, options: &OpenOptions) -> Result<Volume> {
    let first = open_whole(image, open_one(image, false)?, options)?;
    let image = image.clone();
    let again = move |options: &OpenOptions| {
        let volume = open_one(&image, options.writes_image())
            .and_then(|first| open_first(&image, first, options))
            .map_err(|error| error.to_string())?;
        Ok(volume.filesystem.clone())
    };
    // Whether it can be written is found out when it is opened for that.
    Ok(first.writable_later(options, Box::new(again), Box::new(|| Ok(()))))
}

/// Opens a volume for writing. If it is on a whole block device, that is claimed separately.
fn open_claimed(image: &ImageSpec, path: &Path, options: &OpenOptions) -> Result<Volume> {
    let is_block = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    if !is_block || image.part != Part::Whole {
        return open_first(image, open_one(image, true)?, options);
    }
    let claim = BlockClaim::take(path).map_err(|source| Error::new(image, Cause::Open(source)))?;
    let mut volume = open_first(image, open_at(image, path, true, false)?.0, options)?;
    volume.claim = Some(claim);
    Ok(volume)
}

/// Opens a file or block device for reading.
fn open_file(image: &ImageSpec, path: &Path, options: &OpenOptions) -> Result<Volume> {
    // The name may lead to another file when the volume is remounted writable. This keeps the
    // image.
    let kept = KeptImage::open(path).map_err(|source| Error::new(image, Cause::Open(source)))?;
    let kept = Arc::new(kept);
    let first = open_whole(image, read_kept(image, &kept)?, options)?;
    let image = image.clone();
    let named = {
        let name = path.to_string_lossy().into_owned();
        move |path: &Path, why: String| {
            let why = why.replace(&*path.to_string_lossy(), &name);
            why.replace(&format!("{name}: open {name}: "), &format!("{name}: "))
        }
    };
    let can_write = {
        let (image, kept, named) = (image.clone(), kept.clone(), named.clone());
        move || {
            let path = kept.path().map_err(|error| error.to_string())?;
            let why = |error| named(&path, Error::new(&image, Cause::Open(error)).to_string());
            kept.check_writable().map_err(why)
        }
    };
    let again = move |options: &OpenOptions| {
        if options.read_only {
            let volume =
                read_kept(&image, &kept).and_then(|first| open_whole(&image, first, options));
            return volume
                .map(|volume| volume.filesystem.clone())
                .map_err(|error| error.to_string());
        }
        let path = kept.path().map_err(|error| error.to_string())?;
        let volume = open_at(&image, &path, options.writes_image(), true)
            .and_then(|(first, _)| open_first(&image, first, options))
            .map_err(|error| named(&path, error.to_string()))?;
        if let Some(why) = volume.needs_check() {
            tracing::warn!("{image}: {why}");
        }
        Ok(volume.filesystem.clone())
    };
    Ok(first.writable_later(options, Box::new(again), Box::new(can_write)))
}

fn open_first(
    image: &ImageSpec,
    first: Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Volume> {
    if let Some(interrupted) = interrupted_repair(image).filter(|_| options.writes_image()) {
        return Err(Error::new(image, Cause::Undo(interrupted)));
    }
    open_whole(image, first, options)
}

fn open_whole(
    image: &ImageSpec,
    first: Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Volume> {
    let mut device = further::open(image, first, &options.devices, options.writes_image())?;
    if options.ephemeral && !options.read_only {
        let overlay = Overlay::new(device);
        device = Arc::new(overlay.map_err(|error| Error::new(image, error.into()))?);
    }
    probe_and_open(device, runtime(options.fixed_time), options)
        .map_err(|cause| Error::new(image, cause))
}

/// The runtime: threads with the system's clock and randomness; or, with a fixed time, one thread
/// and numbers that follow from that time.
pub(crate) fn runtime(fixed_time: Option<i64>) -> Arc<dyn Runtime> {
    match fixed_time {
        Some(seconds) => Simulated::standing_at(seconds),
        None => Threads::new(),
    }
}

/// Opens the volume on a device of the caller's, under the caller's runtime.
///
/// # Errors
/// As [`open`].
pub fn open_on(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &OpenOptions,
) -> Result<Volume, Cause> {
    let first = probe_and_open(device.clone(), runtime.clone(), options)?;
    let again = move |options: &OpenOptions| {
        let volume = probe_and_open(device.clone(), runtime.clone(), options)
            .map_err(|cause| cause.to_string())?;
        Ok(volume.filesystem.clone())
    };
    Ok(first.writable_later(options, Box::new(again), Box::new(|| Ok(()))))
}

fn probe_and_open(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &OpenOptions,
) -> Result<Volume, Cause> {
    let Some(format) = format::probe_for(&*device, options)? else {
        return Err(Cause::UnknownFormat {
            hint: recognise(&*device).or_else(|| unknown(&*device)),
        });
    };
    // The mark is read before the volume gets a mark of its own.
    let is_written = !options.read_only && !device.geometry().read_only;
    let needs_check =
        is_written.then(|| format::needs_check(format, &device, runtime.now())).flatten();
    let filesystem = format::open(format, device, runtime, options)?;
    let volume = Volume {
        format,
        filesystem,
        needs_check,
        claim: None,
        is_closed: false,
        opener: Opener::this(),
    };
    let must_write = options.must_write && !options.read_only;
    match must_write.then(|| volume.read_only_reason()).flatten() {
        Some(why) => Err(Cause::ReadOnly { why }),
        None => Ok(volume),
    }
}

/// Describes the volume in `image`. Reads only the superblock, the checkpoint and the root's inode,
/// so it works on volumes that cannot be opened. `devices`: see [`OpenOptions::devices`].
///
/// # Errors
/// The image cannot be opened, holds no volume we know, or its superblock is damaged.
pub fn inspect(image: &ImageSpec, devices: &[PathBuf]) -> Result<Info> {
    let device = open_device(image, devices, false)?;
    let now = runtime(None).now();
    let info = format::inspect(&device, now).map_err(|cause| Error::new(image, cause))?;
    // What a file compressed with zstd holds can only be read.
    let is_compressed = || container(image).is_some_and(|link| link.kind == "zstd");
    let info = info.map(|info| match info.is_writable() && is_compressed() {
        true => info.read_only("it is compressed with zstd: decompress it (zstd -d) to write it"),
        false => info,
    });
    info.ok_or_else(|| {
        Error::new(
            image,
            Cause::UnknownFormat { hint: recognise(&*device).or_else(|| unknown(&*device)) },
        )
    })
}

/// Opens and locks the file or block device, and narrows it to the part that `image` names. If the
/// volume has further devices, opens these, too, and returns all as one device. `devices` names
/// them; if it is empty, they are looked for beside the image and must be recognised ([`further`]).
///
/// # Errors
/// The file or a further device cannot be opened or is in use, the file has no such part, or a
/// repair of it was interrupted and it is to be written.
pub fn open_device(
    image: &ImageSpec,
    devices: &[PathBuf],
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let device = open_interrupted(image, devices, write)?;
    // A repair that goes on has the lock, and its undo file.
    if write && let Some(interrupted) = interrupted_repair(image) {
        return Err(Error::new(image, Cause::Undo(interrupted)));
    }
    Ok(device)
}

/// As [`open_device`], also if a repair was interrupted.
///
/// # Errors
/// As [`open_device`].
pub(crate) fn open_interrupted(
    image: &ImageSpec,
    devices: &[PathBuf],
    write: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let first = open_one(image, write)?;
    further::open(image, first, devices, write)
}
