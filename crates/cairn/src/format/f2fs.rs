//! F2FS behind the facade.

use std::path::PathBuf;
use std::sync::Arc;

use cairn_base::options::Vocabulary;
use cairn_base::runtime::Runtime;
use cairn_block::BlockDevice;
use cairn_check::Fields;
use cairn_check::salvage::Salvage;
use cairn_f2fs::dump as structures;
use cairn_f2fs::mkfs::NamedDevice;
use cairn_f2fs::{Corrupt, Error, F2fs, Info, MountOptions, mkfs};
use cairn_vfs::FileSystem;
use uuid::Uuid;

use super::Format;
use crate::error::{Cause, Class};
use crate::mkfs::options::{MkfsOptions, Named};
use crate::structure::{Copies, Structure, only};
use crate::tune::options::{Ext4TuneOptions, Resized, TuneOptions};
use crate::volume::OpenOptions;

pub(super) use cairn_f2fs::check::ALL as KINDS;
pub(crate) use cairn_f2fs::devices::DeviceCheck;
pub(crate) use cairn_f2fs::has_checkpoint;

/// The only size of a block.
const BLOCK_SIZE: u32 = 4096;

pub(super) fn probe(device: &dyn BlockDevice) -> Result<bool, Cause> {
    Ok(cairn_f2fs::probe(device).map_err(cause)?.is_some())
}

/// Can a volume whose superblocks are damaged be checked?
pub(crate) fn is_checkable(device: &Arc<dyn BlockDevice>) -> Result<bool, Cause> {
    cairn_f2fs::check::has_superblock(device).map_err(cause)
}

pub(super) fn label(device: &dyn BlockDevice) -> Option<String> {
    cairn_f2fs::probe(device).ok()?.map(|probe| probe.superblock.label())
}

pub(super) fn inspect(device: &Arc<dyn BlockDevice>) -> Result<Option<Info>, Cause> {
    cairn_f2fs::inspect(device).map_err(cause)
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
    Ok(F2fs::open(device, runtime, &options).map_err(cause)?)
}

pub(super) fn other_devices(device: &dyn BlockDevice) -> Result<Vec<PathBuf>, Cause> {
    let paths = cairn_f2fs::devices::paths(device).map_err(cause)?;
    Ok(paths.into_iter().skip(1).map(PathBuf::from).collect())
}

pub(super) fn recognise(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Vec<DeviceCheck>, Cause> {
    cairn_f2fs::devices::recognise(devices).map_err(cause)
}

pub(super) fn assemble(devices: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<dyn BlockDevice>, Cause> {
    cairn_f2fs::devices::assemble(devices).map_err(cause)
}

/// The format's own options.
pub(crate) fn mkfs_options(options: &MkfsOptions) -> Result<mkfs::MkfsOptions, Cause> {
    if options.block_size.is_some_and(|bytes| bytes != BLOCK_SIZE) {
        return Err(Cause::Option("blocks of F2FS have 4096 bytes: leave their size out".into()));
    }
    options.refuse_ext4_options()?;
    let default = mkfs::MkfsOptions::default();
    Ok(mkfs::MkfsOptions {
        label: options.label.clone(),
        uuid: options.uuid,
        features: options.features.clone(),
        casefold: options.casefold.clone(),
        overprovision: options.overprovision,
        segments_per_section: options.segments_per_section.unwrap_or(default.segments_per_section),
        sections_per_zone: options.sections_per_zone.unwrap_or(default.sections_per_zone),
        large_nat_bitmap: options.large_nat_bitmap,
        zoned: options.zoned,
        reserved_sections: options.reserved_sections,
        time: options.time,
        root_owner: options.root_owner,
        ..default
    })
}

/// Sorts an error of mkfs by what the caller can do.
pub(crate) fn mkfs_cause(error: mkfs::Error) -> Cause {
    match error {
        mkfs::Error::Device(device) => Cause::Device(device),
        refused => Cause::Option(refused.to_string()),
    }
}

pub(super) fn make(
    devices: &[Named],
    options: &MkfsOptions,
    runtime: &dyn Runtime,
) -> Result<(), Cause> {
    let options = mkfs_options(options)?;
    let named = |(path, device): &Named| NamedDevice {
        path: path.display().to_string(),
        device: device.clone(),
    };
    let devices: Vec<NamedDevice> = devices.iter().map(named).collect();
    mkfs::make_on(&devices, &options, runtime).map_err(mkfs_cause)?;
    Ok(())
}

/// Sorts the format's error by what the caller can do.
pub(super) fn cause(error: Error) -> Cause {
    let class = match &error {
        Error::Device(device) => return Cause::Device(device.clone()),
        Error::NotF2fs { .. } => return Cause::UnknownFormat { hint: None },
        Error::Option(text) => return Cause::Option(text.clone()),
        Error::Refused(text) => return Cause::Refused(text.clone()),
        Error::Feature(_) => Class::Unsupported,
        Error::Corrupt(Corrupt::TooShort { .. }) => Class::TooShort,
        Error::Vfs(cairn_vfs::Error::Io(_)) => Class::Io,
        Error::Vfs(cairn_vfs::Error::ReadOnly(_) | cairn_vfs::Error::Unsupported(_)) => {
            Class::Unsupported
        }
        Error::Vfs(cairn_vfs::Error::Invalid(_) | cairn_vfs::Error::NoSpace) => Class::Usage,
        _ => Class::Corrupt,
    };
    Cause::Format { format: Format::F2fs, class, source: Box::new(error) }
}

pub(super) fn tune(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    options: &TuneOptions,
    uuid: Option<Uuid>,
) -> Result<(), Cause> {
    if options.ext4 != Ext4TuneOptions::default() {
        let why = "f2fs has label, UUID and lists of extensions: the other options are for ext4";
        return Err(Cause::Option(why.into()));
    }
    let options = cairn_f2fs::tune::TuneOptions {
        label: options.label.clone(),
        uuid,
        cold: options.cold.clone(),
        hot: options.hot.clone(),
    };
    cairn_f2fs::tune::tune(device, runtime, &options).map_err(cause)
}

pub(super) fn check(
    device: Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn cairn_check::Observer>,
) -> Result<cairn_check::Report, Cause> {
    cairn_f2fs::check::check(device, &runtime, observer).map_err(cause)
}

pub(super) fn size(device: &Arc<dyn BlockDevice>) -> Result<u64, Cause> {
    cairn_f2fs::resize::size(device).map_err(cause)
}

pub(super) fn check_size(device: &Arc<dyn BlockDevice>, size: u64) -> Result<(), Cause> {
    cairn_f2fs::resize::check(device, size).map_err(cause)
}

pub(super) fn room(device: &Arc<dyn BlockDevice>, size: u64) -> Result<u64, Cause> {
    cairn_f2fs::resize::needs(device, size).map_err(cause)
}

pub(super) fn resize(
    device: &Arc<dyn BlockDevice>,
    runtime: &Arc<dyn Runtime>,
    size: u64,
) -> Result<Resized, Cause> {
    let done = cairn_f2fs::resize::resize(device, runtime, size).map_err(cause)?;
    Ok(Resized { before: done.before, after: done.after })
}

pub(super) fn least_size(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
) -> Result<u64, Cause> {
    cairn_f2fs::resize::least(device, runtime).map_err(cause)
}

pub(super) fn plan_repair(
    device: &Arc<dyn BlockDevice>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn cairn_check::Observer>,
    scope: cairn_check::repair::Scope,
) -> Result<cairn_check::repair::Plan, Cause> {
    cairn_f2fs::repair::plan(device.clone(), runtime, observer, scope).map_err(cause)
}

/// The options that Cairn has for the format.
pub(super) fn settings() -> Vec<String> {
    MountOptions::TABLE.settings().collect()
}

/// The options of Linux's driver.
pub(super) fn vocabulary() -> &'static Vocabulary {
    MountOptions::TABLE.linux
}

pub(super) fn dump(
    device: Arc<dyn BlockDevice>,
    copies: Copies,
    structure: &Structure,
) -> Result<Fields, Cause> {
    let what = self::structure(structure)?;
    structures::dump(device, choice(copies)?, &what).map_err(cause)
}

pub(super) fn journal(device: Arc<dyn BlockDevice>, copies: Copies) -> Result<Fields, Cause> {
    structures::show_journal(device, choice(copies)?).map_err(cause)
}

pub(super) fn rescue(
    device: Arc<dyn BlockDevice>,
    copies: Copies,
) -> Result<Box<dyn Salvage>, Cause> {
    cairn_f2fs::rescue::open(device, choice(copies)?).map_err(cause)
}

fn choice(copies: Copies) -> Result<cairn_f2fs::Choice, Cause> {
    if copies.group.is_some() {
        let why = "F2FS has superblocks in blocks 0 and 1: choose one of them, and no backup";
        return Err(Cause::Option(why.into()));
    }
    Ok(cairn_f2fs::Choice { superblock: copies.superblock, pack: copies.pack })
}

fn structure(structure: &Structure) -> Result<structures::What, Cause> {
    use structures::What as W;
    const HAS: &str =
        "superblock, checkpoint, block, inode, nodes, extents, xattrs, nat, sit, segments, summary";
    let of = |what| Err(only(what, "ext4", HAS));
    Ok(match structure {
        Structure::Superblock => W::Superblock,
        Structure::Checkpoint => W::Checkpoint,
        Structure::Block(block) => W::Block(*block),
        Structure::Inode(word) => W::Inode(word.clone()),
        Structure::Nodes(word) | Structure::Extents(word) => W::Nodes(word.clone()),
        Structure::Xattrs(word) => W::Xattrs(word.clone()),
        Structure::Nat(nid) => W::Nat(*nid),
        Structure::Sit(segno) => W::Sit(*segno),
        Structure::Segments => W::Segments,
        Structure::Summary(segno) => W::Summary(*segno),
        Structure::Groups(_) => return of("groups"),
        Structure::Htree(_) => return of("htree"),
    })
}
