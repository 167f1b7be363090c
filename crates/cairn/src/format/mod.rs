//! The known formats, and the one place that chooses between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::repair::{Plan, Scope};
use cairn_check::{Kind, Observer, Report};
use cairn_vfs::{FileSystem, Timestamp};
use uuid::Uuid;

use crate::error::Cause;
use crate::mkfs::options::{MkfsOptions, Named};
use crate::recognise;
use crate::tune::options::{Resized, TuneOptions};
use crate::volume::OpenOptions;

mod dump;
pub(crate) mod ext4;
#[cfg(feature = "f2fs")]
pub(crate) mod f2fs;
#[cfg(not(feature = "f2fs"))]
#[path = "without_f2fs.rs"]
pub(crate) mod f2fs;
mod foreign;
mod name;

pub(crate) use dump::{dump, journal, rescue};
pub use name::Format;

/// The description of a volume. Serialises to the object that `cairn info --json` prints.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Info {
    /// Of an ext4 volume.
    Ext4(Box<cairn_ext4::Info>),
    /// Of an F2FS volume.
    #[cfg(feature = "f2fs")]
    F2fs(Box<cairn_f2fs::Info>),
}

/// What the formats say of a volume that can be written.
const READ_WRITE: &str = "read-write";

impl Info {
    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::Ext4(_) => Format::Ext4,
            #[cfg(feature = "f2fs")]
            Self::F2fs(_) => Format::F2fs,
        }
    }

    /// Can it be opened for writing?
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Ext4(info) => info.access == READ_WRITE,
            #[cfg(feature = "f2fs")]
            Self::F2fs(info) => info.access == READ_WRITE,
        }
    }

    /// The same, of a volume that can only be read.
    pub(crate) fn read_only(mut self, why: &str) -> Self {
        let access = match &mut self {
            Self::Ext4(info) => &mut info.access,
            #[cfg(feature = "f2fs")]
            Self::F2fs(info) => &mut info.access,
        };
        *access = format!("read-only: {why}");
        self
    }

    /// What was found: "clean", "needs recovery" and others.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Self::Ext4(info) => info.state,
            #[cfg(feature = "f2fs")]
            Self::F2fs(info) => info.state,
        }
    }

    /// The nearest time that an inode of the volume can have.
    #[must_use]
    pub fn storable_time(&self, time: Timestamp) -> Timestamp {
        let inode_size = match self {
            Self::Ext4(info) => Some(info.inode_size.into()),
            #[cfg(feature = "f2fs")]
            Self::F2fs(_) => None,
        };
        self.format().storable_time(time, inode_size)
    }
}

impl Format {
    /// The nearest time that an inode can have. `inode_size` is that of ext4's inodes; without it,
    /// they have the usual size.
    #[must_use]
    pub fn storable_time(self, time: Timestamp, inode_size: Option<u32>) -> Timestamp {
        match self {
            Self::Ext4 => ext4::storable_time(time, inode_size),
            Self::F2fs => time,
        }
    }
}

/// Why the volume should be checked before it is written, if its superblock says so. F2FS has no
/// such mark: its recovery follows from the checkpoint.
pub(crate) fn needs_check(
    format: Format,
    device: &Arc<dyn BlockDevice>,
    now: SystemTime,
) -> Option<String> {
    match format {
        Format::Ext4 => ext4::needs_check(device, now),
        Format::F2fs => None,
    }
}

/// The format on the device, if any. If no known format begins there, but valid backups of an ext4
/// superblock exist in usual places, it is ext4.
///
/// # Errors
/// The device fails.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Format>, Cause> {
    if ext4::probe(device)? {
        return Ok(Some(Format::Ext4));
    }
    if f2fs::probe(device)? {
        return Ok(Some(Format::F2fs));
    }
    let left = recognise::recognise(device).is_none() && ext4::probe_backups(device)?;
    Ok(left.then_some(Format::Ext4))
}

/// As [`probe`], of a volume that is to be checked or rescued: backups may be in all places, for
/// which up to 128 MiB are read. A damaged superblock of ext4 says the format, too: whoever opens
/// the volume looks for its backups.
///
/// # Errors
/// The device fails.
pub(crate) fn probe_damaged(device: &dyn BlockDevice) -> Result<Option<Format>, Cause> {
    if ext4::is_marked(device)? {
        return Ok(Some(Format::Ext4));
    }
    let found = probe(device)?;
    let left = found.is_none() && recognise::recognise(device).is_none();
    match left && (ext4::probe_all_backups(device)? || ext4::is_checkable(device)?) {
        true => Ok(Some(Format::Ext4)),
        false => Ok(found),
    }
}

/// As [`probe`], for a volume that is to be opened with these options, where it is found out
/// whether a superblock of ext4 is sound.
pub(crate) fn probe_for(
    device: &dyn BlockDevice,
    options: &OpenOptions,
) -> Result<Option<Format>, Cause> {
    if ext4::is_named(options) || ext4::is_marked(device)? {
        return Ok(Some(Format::Ext4));
    }
    probe(device)
}

/// Describes the volume on the device at the time `now`, if there is a known one.
///
/// # Errors
/// The device fails, or the superblock is damaged.
pub fn inspect(device: &Arc<dyn BlockDevice>, now: SystemTime) -> Result<Option<Info>, Cause> {
    if let Some(info) = ext4::inspect(device, now)? {
        return Ok(Some(Info::Ext4(Box::new(info))));
    }
    #[cfg(feature = "f2fs")]
    if let Some(info) = f2fs::inspect(device)? {
        return Ok(Some(Info::F2fs(Box::new(info))));
    }
    #[cfg(not(feature = "f2fs"))]
    if f2fs::probe(&**device)? {
        return Err(f2fs::absent());
    }
    if recognise::recognise(&**device).is_some() {
        return Ok(None);
    }
    Ok(ext4::inspect_backups(device, now)?.map(|info| Info::Ext4(Box::new(info))))
}

/// The volume's label, if it can be read.
pub(crate) fn label(format: Format, device: &dyn BlockDevice) -> Option<String> {
    match format {
        Format::Ext4 => ext4::label(device),
        Format::F2fs => f2fs::label(device),
    }
}

/// Checks options without opening a volume. Returns a line for each word that has no effect.
///
/// # Errors
/// An option that the format refuses.
pub fn check_options(format: Format, options: &OpenOptions) -> Result<Vec<String>, Cause> {
    foreign::refuse(format, &options.mount_options)?;
    match format {
        Format::Ext4 => ext4::check_options(options),
        Format::F2fs => f2fs::check_options(options),
    }
}

pub(crate) fn open(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &OpenOptions,
) -> Result<Arc<dyn FileSystem>, Cause> {
    foreign::refuse(format, &options.mount_options)?;
    match format {
        Format::Ext4 => ext4::open(device, runtime, options),
        Format::F2fs => f2fs::open(device, runtime, options),
    }
}

/// Makes a volume on the devices: the image, and the further ones of the options.
pub(crate) fn make(
    devices: Vec<Named>,
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<(), Cause> {
    match options.format {
        Format::Ext4 => match devices.into_iter().next() {
            Some((_, device)) => ext4::make(device, options, runtime),
            None => Err(Cause::Option("there is no device".into())),
        },
        Format::F2fs => f2fs::make(&devices, options, runtime),
    }
}

/// Paths of the devices that hold the rest of the volume on this one; none if it is whole.
pub(crate) fn other_devices(device: &dyn BlockDevice) -> Result<Vec<PathBuf>, Cause> {
    f2fs::other_devices(device)
}

/// Recognises the further devices by their contents.
pub(crate) fn recognise(
    devices: Vec<Arc<dyn BlockDevice>>,
) -> Result<Vec<f2fs::DeviceCheck>, Cause> {
    f2fs::recognise(devices)
}

/// All devices of a volume as one, in order.
pub(crate) fn assemble(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<dyn BlockDevice>, Cause> {
    f2fs::assemble(devices)
}

/// Changes a volume; see [`crate::tune`].
pub(crate) fn tune(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &TuneOptions,
    uuid: Option<Uuid>,
) -> Result<(), Cause> {
    match format {
        Format::Ext4 => ext4::tune(device, runtime, options, uuid),
        Format::F2fs => f2fs::tune(device, runtime, options, uuid),
    }
}

/// Bytes of a volume, which is recovered if it was not unmounted cleanly.
pub(crate) fn size(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> Result<u64, Cause> {
    match format {
        Format::Ext4 => ext4::size(device, runtime),
        Format::F2fs => f2fs::size(&device),
    }
}

/// Refuses a size that a volume cannot have, if its device had it.
pub(crate) fn check_size(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    size: u64,
) -> Result<(), Cause> {
    match format {
        Format::Ext4 => ext4::check_size(device, runtime, size),
        Format::F2fs => f2fs::check_size(&device, size),
    }
}

/// Bytes that a change to this size may write where a sparse image has no blocks of its host yet,
/// if that must be known before.
pub(crate) fn room(
    format: Format,
    device: &Arc<dyn BlockDevice>,
    size: u64,
) -> Result<Option<u64>, Cause> {
    match format {
        // It claims what it writes before it changes anything.
        Format::Ext4 => Ok(None),
        Format::F2fs => f2fs::room(device, size).map(Some),
    }
}

/// Gives a volume a size that its device has.
pub(crate) fn resize(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    size: u64,
) -> Result<Resized, Cause> {
    match format {
        Format::Ext4 => ext4::resize(device, runtime, size),
        Format::F2fs => f2fs::resize(&device, &runtime, size),
    }
}

/// Bytes of the smallest volume that this one can become.
pub(crate) fn least_size(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> Result<u64, Cause> {
    match format {
        Format::Ext4 => ext4::least_size(device, runtime),
        Format::F2fs => f2fs::least_size(&device, runtime),
    }
}

/// Checks a volume, which is only read.
pub(crate) fn check(
    format: Format,
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
) -> Result<Report, Cause> {
    match format {
        Format::Ext4 => ext4::check(device, runtime, observer),
        Format::F2fs => f2fs::check(device, runtime, observer),
    }
}

/// Plans the repair of a volume, which is only read.
pub(crate) fn plan_repair(
    format: Format,
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    scope: Scope,
) -> Result<Plan, Cause> {
    match format {
        Format::Ext4 => ext4::plan_repair(device, runtime, observer, scope),
        Format::F2fs => f2fs::plan_repair(device, runtime, observer, scope),
    }
}

/// All kinds of defects that a check finds, of all formats.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    cairn_ext4::check::ALL.iter().chain(f2fs::KINDS).copied()
}
