//! ext4 behind the facade.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_base::runtime::Runtime;
use cairn_block::{BlockDevice, ErrorKind};
use cairn_ext4::{Corrupt, Error, Ext4, Info, MountOptions};
use cairn_vfs::{FileSystem, Timestamp};
use uuid::Uuid;

use super::Format;
use crate::error::{Cause, Class};
use crate::mkfs::MkfsOptions;
use crate::tune::options::{Resized, TuneOptions};
use crate::volume::OpenOptions;

/// Size of inodes that have no room for more than seconds, in 32 bits.
const NARROW_INODE: u32 = 128;

pub(super) fn storable_time(time: Timestamp, inode_size: Option<u32>) -> Timestamp {
    let is_wide = inode_size.is_none_or(|size| size > NARROW_INODE);
    cairn_ext4::storable_time(time, is_wide)
}

pub(super) fn probe(device: &dyn BlockDevice) -> Result<bool, Cause> {
    Ok(cairn_ext4::probe(device).map_err(cause)?.is_some())
}

/// Whether a superblock is there, sound or not.
pub(super) fn is_marked(device: &dyn BlockDevice) -> Result<bool, Cause> {
    cairn_ext4::is_marked(device).map_err(cause)
}

/// Whether usual places have backup superblocks of a volume whose first superblock is lost.
pub(super) fn probe_backups(device: &dyn BlockDevice) -> Result<bool, Cause> {
    Ok(cairn_ext4::probe_backups(device).map_err(cause)?.is_some())
}

/// As [`probe_backups`], in all places: reads up to 128 MiB.
pub(super) fn probe_all_backups(device: &dyn BlockDevice) -> Result<bool, Cause> {
    Ok(cairn_ext4::probe_all_backups(device).map_err(cause)?.is_some())
}

/// Can a volume whose superblock is damaged, and has no backup, be checked?
pub(super) fn is_checkable(device: &dyn BlockDevice) -> Result<bool, Cause> {
    cairn_ext4::check::has_superblock(device).map_err(cause)
}

/// Whether the options name a superblock (`sb=`). The volume is then ext4, or none.
pub(super) fn is_named(options: &OpenOptions) -> bool {
    parse(options).is_ok_and(|options| options.superblock.is_some_and(|kib| kib != 1))
}

pub(super) fn inspect(
    device: &Arc<dyn BlockDevice>,
    now: SystemTime,
) -> Result<Option<Info>, Cause> {
    Info::of_device(device, seconds(now)).map_err(cause)
}

pub(super) fn inspect_backups(
    device: &Arc<dyn BlockDevice>,
    now: SystemTime,
) -> Result<Option<Info>, Cause> {
    let found = cairn_ext4::probe_backups(&**device).map_err(cause)?;
    Ok(found.map(|probe| {
        probe.warn();
        Info::of_probe(&probe, device, seconds(now))
    }))
}

pub(super) fn needs_check(device: &Arc<dyn BlockDevice>, now: SystemTime) -> Option<String> {
    // With a backup the volume is only read.
    let is_sound = cairn_ext4::is_sound(&**device);
    let info = is_sound.then(|| Info::of_device(device, seconds(now)).ok()).flatten()?;
    info?.needs_check
}

fn seconds(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn label(device: &dyn BlockDevice) -> Option<String> {
    let first = cairn_ext4::probe(device).ok()?;
    let probe = first.or_else(|| cairn_ext4::probe_backups(device).ok()?);
    probe.map(|probe| probe.label())
}

fn parse(options: &OpenOptions) -> Result<MountOptions, Cause> {
    MountOptions::parse(&options.as_mount_options()).map_err(cause)
}

pub(super) fn check_options(options: &OpenOptions) -> Result<Vec<String>, Cause> {
    parse(options)?;
    Ok(MountOptions::TABLE.notes(&options.mount_options))
}

pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &OpenOptions,
) -> Result<Arc<dyn FileSystem>, Cause> {
    let options = parse(options)?;
    Ok(Ext4::open(device, runtime, &options).map_err(cause)?)
}

pub(super) fn make(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<(), Cause> {
    cairn_ext4::mkfs::make(device, &mkfs_options(options)?, runtime).map_err(cause)?;
    Ok(())
}

/// The options of ext4's mkfs.
pub(crate) fn mkfs_options(options: &MkfsOptions) -> Result<cairn_ext4::mkfs::MkfsOptions, Cause> {
    options.refuse_f2fs_options()?;
    Ok(cairn_ext4::mkfs::MkfsOptions {
        label: options.label.clone(),
        uuid: options.uuid,
        features: options.features.clone(),
        block_size: options.block_size,
        inodes: options.inodes,
        inode_size: options.tuning.inode_size,
        inode_ratio: options.tuning.inode_ratio,
        journal_size: options.tuning.journal_size,
        hash_seed: options.tuning.hash_seed,
        reserved_percent: options.reserved_percent,
        time: options.time,
        root_owner: options.root_owner,
        ..Default::default()
    })
}

/// Sorts the format's error by what the caller can do.
pub(crate) fn cause(error: Error) -> Cause {
    let class = match &error {
        Error::Device(device) => return Cause::Device(device.clone()),
        Error::NotExt4 { .. } => return Cause::UnknownFormat { hint: None },
        Error::Option(text) => return Cause::Option(text.clone()),
        Error::Refused(text) => return Cause::Refused(text.clone()),
        Error::Feature(_) => Class::Unsupported,
        Error::Unreplayable(_) => Class::Unreplayable,
        Error::Corrupt(Corrupt::TooShort { .. }) => Class::TooShort,
        Error::Journal(error) => return journal_cause(error.clone()),
        Error::Vfs(cairn_vfs::Error::Io(_)) => Class::Io,
        Error::Vfs(cairn_vfs::Error::ReadOnly(_) | cairn_vfs::Error::Unsupported(_)) => {
            Class::Unsupported
        }
        Error::Vfs(cairn_vfs::Error::Invalid(_) | cairn_vfs::Error::NoSpace) => Class::Usage,
        // It says itself what to do.
        Error::Unfinished { source, .. } => match cause((**source).clone()) {
            Cause::Device(error) if error.kind == ErrorKind::NoSpace => Class::Usage,
            _ => Class::Io,
        },
        _ => Class::Corrupt,
    };
    Cause::Format { format: Format::Ext4, class, source: Box::new(error) }
}

fn journal_cause(error: cairn_jbd2::Error) -> Cause {
    use cairn_jbd2::Error as E;
    let class = match error {
        E::Device(device) => return Cause::Device(device),
        E::Corrupt { .. } | E::Checksum { .. } => Class::Corrupt,
        E::UnknownFeatures { .. } => Class::Unsupported,
        E::Threshold { .. } => Class::Usage,
        _ => Class::Io,
    };
    Cause::Format { format: Format::Ext4, class, source: Box::new(error) }
}

pub(super) fn tune(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &TuneOptions,
    uuid: Option<Uuid>,
) -> Result<(), Cause> {
    if !options.cold.is_empty() || !options.hot.is_empty() {
        let why = "ext4 has no lists of extensions: that is an option of f2fs";
        return Err(Cause::Option(why.into()));
    }
    let label = options.label.clone();
    let options = cairn_ext4::tune::TuneOptions { label, uuid, ..options.ext4.clone() };
    cairn_ext4::tune::tune(device, runtime, &options).map_err(cause)
}

pub(super) fn size(device: Arc<dyn BlockDevice>, runtime: Arc<dyn Runtime>) -> Result<u64, Cause> {
    cairn_ext4::resize::size(device, runtime).map_err(cause)
}

pub(super) fn check_size(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    size: u64,
) -> Result<(), Cause> {
    cairn_ext4::resize::check(device, runtime, size).map_err(cause)
}

pub(super) fn resize(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    size: u64,
) -> Result<Resized, Cause> {
    cairn_ext4::resize::resize(device, runtime, size).map_err(cause)
}

pub(super) fn least_size(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> Result<u64, Cause> {
    cairn_ext4::resize::least(device, runtime).map_err(cause)
}

pub(super) fn check(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn cairn_check::Observer>,
) -> Result<cairn_check::Report, Cause> {
    cairn_ext4::check::check(device, runtime, observer).map_err(cause)
}

pub(super) fn plan_repair(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn cairn_check::Observer>,
    scope: cairn_check::repair::Scope,
) -> Result<cairn_check::repair::Plan, Cause> {
    cairn_ext4::check::repair::plan(device, runtime, observer, scope).map_err(cause)
}
