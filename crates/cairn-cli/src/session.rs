//! Opens a volume for one command, and closes it even if the command fails.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

use cairn::{ImageSpec, OpenOptions, Volume};
use cairn_base::names::Escaped;
use cairn_base::stats::Value;
use cairn_vfs::error_policy::DAMAGED;
use cairn_vfs::{FileSystem, Timestamp};

use crate::commands::live_mount;
use crate::failure::{self, Failure, Outcome, Status};
use crate::{log_ring, output, print, protection};

/// The image that a command works on.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageArg {
    /// The image: a file, a block device or an address. What can follow its name: cairn --help.
    #[arg(value_name = "IMAGE")]
    pub image: OsString,
    /// A further device of an F2FS volume that spans several. Give it once for each, in order.
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

impl ImageArg {
    /// The parsed name.
    ///
    /// # Errors
    /// The name cannot be parsed.
    pub fn spec(&self) -> Outcome<ImageSpec> {
        Ok(ImageSpec::parse(&self.image)?)
    }

    /// The files that hold the volume.
    ///
    /// # Errors
    /// The image's name cannot be parsed.
    pub fn files(&self) -> Outcome<Vec<FileId>> {
        let image = self.spec()?;
        let paths = image.file().into_iter().chain(self.devices.iter().map(PathBuf::as_path));
        let found = paths.filter_map(|path| std::fs::metadata(path).ok());
        Ok(found.map(|metadata| FileId::of(&metadata)).collect())
    }
}

/// Identifies a file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of the file with these attributes.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Whether a command changes the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads. Nothing is written, not even to replay the journal.
    Read,
    /// Writes; the image is clean on disk when the command is done.
    Write,
}

/// Runs `work` on the filesystem in an image. The first failure is reported: the work's, else the
/// unmount's.
///
/// # Errors
/// The image cannot be opened, the work fails, or the volume cannot be brought to the disk.
pub fn with_volume<T>(
    argument: &ImageArg,
    access: Access,
    work: impl FnOnce(&dyn FileSystem) -> Outcome<T>,
) -> Outcome<T> {
    with_opened(argument, access, |volume| {
        check_access(volume, access)?;
        work(&**volume.filesystem())
    })
}

/// Refuses to change a volume that can only be read.
///
/// # Errors
/// The volume's features, or its state, allow no changes.
pub fn check_access(volume: &Volume, access: Access) -> Outcome {
    match why_unwritable(&**volume.filesystem()).filter(|_| access == Access::Write) {
        Some(reason) => Err(Failure::new(Status::Unsupported, format!("read-only: {reason}"))),
        None => Ok(()),
    }
}

/// Why the volume is read-only, if it is.
#[must_use]
pub fn why_unwritable(fs: &dyn FileSystem) -> Option<String> {
    match fs.report().get("state")? {
        Value::Section(state) => state.text("read_only_reason").map(str::to_owned),
        _ => None,
    }
}

/// As [`with_volume`], for commands that need the format.
///
/// # Errors
/// As [`with_volume`].
pub fn with_opened<T>(
    argument: &ImageArg,
    access: Access,
    work: impl FnOnce(&Volume) -> Outcome<T>,
) -> Outcome<T> {
    let image = argument.spec()?;
    let devices = argument.devices.clone();
    let mut options =
        OpenOptions { read_only: access == Access::Read, devices, ..OpenOptions::default() };
    if access == Access::Write {
        options.fixed_time = source_date_epoch()?;
    }
    let volume =
        cairn::open(&image, &options).map_err(|error| of_mount_point(&image, error.into()))?;
    tell_of_interrupted(&image);
    tell_of_check(&image, volume.needs_check());
    let done = work(&volume).map_err(|failure| {
        let failure = protection::explain(&**volume.filesystem(), failure);
        failure.in_image(&image)
    });
    let closed = volume.filesystem().unmount();
    let closed = closed.map_err(|error| Failure::volume("unmount", &error).in_image(&image));
    let closed = closed.map_err(|failure| match access {
        Access::Write if done.is_ok() => failure.leaving(MISSING.to_owned()),
        _ => failure,
    });
    // Its lock ends.
    drop(volume);
    match done {
        Err(failure) if failure.status != Status::Success => {
            Err(settled(failure, argument, closed.is_err() && access == Access::Write))
        }
        done => {
            closed?;
            let is_damaged = access == Access::Write && log_ring::holds(DAMAGED);
            if done.is_ok() && is_damaged { Err(damaged(&image)) } else { done }
        }
    }
}

/// What a run that could not close the volume leaves.
const MISSING: &str = "what this run wrote may be missing: look what is there, and run it again";

/// The failure of a run that did what it was asked for on a volume that is damaged elsewhere. What
/// was found has been told.
fn damaged(image: &ImageSpec) -> Failure {
    let why = "it is done, but the volume is damaged: run `cairn check` on the image";
    Failure::new(Status::Corrupt, why.to_owned()).in_image(image)
}

/// The failure, with what it left on the image. If the volume could not be closed, the last commit
/// or checkpoint decides that: it is read again.
fn settled(failure: Failure, argument: &ImageArg, is_unclosed: bool) -> Failure {
    let options =
        OpenOptions { read_only: true, devices: argument.devices.clone(), ..Default::default() };
    let again = || cairn::open(&argument.spec().ok()?, &options).ok();
    let again = if is_unclosed { again() } else { None };
    let failure = failure
        .settled(&|file| again.as_ref().is_some_and(|volume| file.is_on(&**volume.filesystem())));
    if let Some(volume) = again {
        // It was only read.
        let _ = volume.filesystem().unmount();
    }
    match is_unclosed {
        true => failure.leaving("what this run wrote before may be missing".to_owned()),
        false => failure,
    }
}

/// The failure for a mount point that was given in place of an image.
fn of_mount_point(image: &ImageSpec, failure: Failure) -> Failure {
    match image.file().and_then(live_mount::image_at) {
        Some(source) => {
            let why = format!(
                "{}: {source} is mounted there: use ls, df and the like of this system",
                image.name().escaped()
            );
            Failure::new(failure.status, why)
        }
        None => failure,
    }
}

/// Prints why a volume should be checked before it is written, if it should.
pub fn tell_of_check(image: &ImageSpec, why: Option<&str>) {
    if let Some(why) = why {
        output::complain(format_args!("warning: {image}: {why}"));
    }
}

/// Warns of a volume that an interrupted repair has changed in part. Only who reads gets that far.
pub fn tell_of_interrupted(image: &ImageSpec) {
    if let Some(interrupted) = cairn::interrupted_repair(image) {
        output::complain(format_args!("warning: {image}: {}", failure::undo(&interrupted)));
    }
}

/// The time in `SOURCE_DATE_EPOCH`. If it is set, the written bytes depend only on the input
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
///
/// # Errors
/// It is not a number.
pub fn source_date_epoch() -> Outcome<Option<i64>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.trim().parse().ok());
    let wrong = || {
        format!(
            "SOURCE_DATE_EPOCH={}: not a number: give seconds since 1970, or unset it",
            text.escaped()
        )
    };
    seconds.map(Some).ok_or_else(|| Failure::usage(wrong()))
}

/// The present time: `SOURCE_DATE_EPOCH` if it is set, else the clock's.
///
/// # Errors
/// As [`source_date_epoch`].
pub fn now() -> Outcome<Timestamp> {
    if let Some(seconds) = source_date_epoch()? {
        return Ok(Timestamp { seconds, nanoseconds: 0 });
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    })
}

/// A path on a volume, for messages: they go to logs and terminals, so it is escaped.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    print::escaped(path)
}
