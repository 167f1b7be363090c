//! `cairn mkfs`.

use std::ffi::OsString;
use std::path::PathBuf;

use cairn::{Cause, Format, ImageSpec, ImageZones, MkfsOptions};
use uuid::Uuid;

use super::chown::Owner;
use super::f2fs_features::F2fsFeatures;
use crate::confirm;
use crate::failure::Outcome;
use crate::session::source_date_epoch;
use crate::usage::number;

/// Most segments (of 2 MiB) of an F2FS volume.
const MOST_SEGMENTS: u32 = 8_388_608;

/// Arguments of `mkfs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cairn mkfs -t ext4 -L root --size 2G root.img
  cairn mkfs --size 20G disk.qcow2
  cairn mkfs -t f2fs -O extra_attr,inode_checksum --size 2G data.img
  cairn mkfs -t f2fs -g android -C utf8:strict --size 2G userdata.img
  cairn mkfs -t f2fs -m --size 1G --zone-size 8M --conventional-zones 8 z.img
  cairn mkfs -t f2fs -m -Z 8 -c /dev/nullb0 /dev/sdb

An image that is not empty is overwritten only with --force. Without it mkfs asks on a terminal, \
and refuses elsewhere. The root directory belongs to you, unless --root-owner says otherwise; \
with -g android it belongs to root.
With SOURCE_DATE_EPOCH set, the same options make the same bytes, the UUID included. So do cairn \
put and the other commands that write.")]
pub struct Args {
    /// Type of filesystem: ext4, ext3 (no extents, no checksums), ext2 (no journal either) or f2fs.
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4",
        value_parser = parse_kind)]
    kind: Kind,
    /// Volume label: at most 16 bytes on ext4, 511 UTF-16 units on f2fs.
    #[arg(short = 'L', short_alias = 'l', long)]
    label: Option<String>,
    /// UUID of the volume. [default: random]
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Features to add or, with ^, to leave out. The names are those of mke2fs and mkfs.f2fs, as in
    /// -O ^has_journal,^metadata_csum.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// Features beside those of -O.
    #[command(flatten)]
    f2fs: F2fsFeatures,
    /// Block size in bytes: a power of two from 1024 to 65536; f2fs has only 4096. Linux mounts
    /// blocks up to its page size.
    #[arg(short = 'b', long, value_name = "BYTES", value_parser = parse_block_size)]
    block_size: Option<u32>,
    /// Size of the image file, such as 512M or 2G. Needed to create the file; enlarges a smaller
    /// one. A new file whose name ends in .qcow2 becomes a qcow2 disk of that size.
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// f2fs: percentage of the main area kept for cleaning. [default: what leaves users most space]
    #[arg(short = 'o', long, value_name = "PERCENT", value_parser = number(0.01..=99.0, 5.0))]
    overprovision: Option<f64>,
    /// f2fs: segments (of 2 MiB) in a section, the unit of cleaning.
    #[arg(short = 's', long, value_name = "N", value_parser = number(1..=MOST_SEGMENTS, 4))]
    segments_per_section: Option<u32>,
    /// f2fs: sections in a zone.
    #[arg(short = 'z', long, value_name = "N", value_parser = number(1..=MOST_SEGMENTS, 1))]
    sections_per_zone: Option<u32>,
    /// f2fs: a large NAT bitmap, for more files on a large volume.
    #[arg(short = 'i', long)]
    large_nat_bitmap: bool,
    /// f2fs: for zoned devices, whose zones must be written in order. A section is then one zone.
    #[arg(short = 'm', long)]
    zoned: bool,
    /// f2fs: a further device of the volume; with -m usually the one with the zones. May be
    /// repeated.
    #[arg(short = 'c', long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// f2fs with -m: sections kept for cleaning, at least 8.
    #[arg(short = 'Z', long, value_name = "N", value_parser = number(8..=MOST_SEGMENTS, 8))]
    reserved_sections: Option<u32>,
    /// Make an image with empty zones of this size. Its first --conventional-zones can be written
    /// in any order.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "size")]
    zone_size: Option<u64>,
    /// With --zone-size: number of conventional zones.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "zone_size",
        value_parser = number(0..=u32::MAX, 8))]
    conventional_zones: u32,
    /// With --zone-size: bytes of a zone that can be written. [default: the whole zone]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "zone_size")]
    zone_capacity: Option<u64>,
    /// With --zone-size: zones that can be open at once; 0 is any number.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "zone_size",
        value_parser = number(0..=u32::MAX, 6))]
    max_open_zones: u32,
    /// With --zone-size: zones that can be partly written at once; 0 is any number.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "zone_size",
        value_parser = number(0..=u32::MAX, 8))]
    max_active_zones: u32,
    /// Overwrite what the image and the devices of -c contain.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// Owner of the root directory. [default: you]
    #[arg(long, value_name = "UID:GID", value_parser = super::chown::parse_owner)]
    root_owner: Option<Owner>,
    /// The image: a file, a block device or an address. With --size a file, or a volume in an
    /// object store, is made if it does not exist. What can follow its name: cairn --help.
    image: OsString,
}

/// A format, and the features that an older type lacks.
#[derive(Clone, Copy, Debug)]
struct Kind {
    format: Format,
    without: [&'static [&'static str]; 2],
}

/// What ext3 lacks of ext4's default features, and what ext2 lacks of ext3's.
pub(super) const NOT_IN_EXT3: &[&str] = &[
    "^extent",
    "^64bit",
    "^flex_bg",
    "^metadata_csum",
    "^metadata_csum_seed",
    "^orphan_file",
    "^huge_file",
    "^dir_nlink",
    "^extra_isize",
];
pub(super) const NOT_IN_EXT2: &[&str] = &["^has_journal"];

fn parse_kind(name: &str) -> Result<Kind, String> {
    let (format, without) = match name {
        "ext2" => (Some(Format::Ext4), [NOT_IN_EXT3, NOT_IN_EXT2]),
        "ext3" => (Some(Format::Ext4), [NOT_IN_EXT3, &[]]),
        _ => (Format::from_name(name), [&[][..]; 2]),
    };
    let format = format.ok_or("the types are: ext4, ext3, ext2, f2fs")?;
    Ok(Kind { format, without })
}

fn parse_size(text: &str) -> Result<u64, String> {
    let size = cairn_base::options::parse_size(text).filter(|size| *size > 0);
    size.ok_or_else(|| "give bytes, or a whole number with K, M, G or T, such as 512M".into())
}

fn parse_block_size(text: &str) -> Result<u32, String> {
    let size = cairn_base::options::parse_size(text).and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| size.is_power_of_two() && (1024..=65536).contains(size));
    size.ok_or_else(|| "give 1024, 2048, 4096, 8192, 16384, 32768 or 65536".into())
}

pub(super) fn parse_uuid(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| {
        "give 32 hexadecimal digits, such as 123e4567-e89b-42d3-a456-426614174000".into()
    })
}

/// Makes the filesystem.
///
/// # Errors
/// The image cannot be created, is in use, or holds something; the parameters do not fit.
pub fn run(args: &Args) -> Outcome {
    let image = ImageSpec::parse(&args.image)?;
    let mut options = options(args)?;
    loop {
        match cairn::mkfs(&image, &options) {
            Err(error) => match error.cause() {
                Cause::WouldOverwrite { found } if confirm::can_ask() => {
                    confirm::ask(&format!("{} holds {found}. Overwrite it?", error.image()))?;
                    options.overwrite = true;
                }
                _ => return Err(error.into()),
            },
            Ok(()) => return Ok(()),
        }
    }
}

fn options(args: &Args) -> Outcome<MkfsOptions> {
    let (uid, gid) = match args.f2fs.has_preset() {
        true => (0, 0),
        false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let owner = args.root_owner.unwrap_or(Owner { uid: None, gid: None });
    Ok(MkfsOptions {
        root_owner: Some((owner.uid.unwrap_or(uid), owner.gid.unwrap_or(gid))),
        time: source_date_epoch()?,
        overwrite: args.force,
        format: args.kind.format,
        label: args.label.clone(),
        uuid: args.uuid,
        features: args
            .kind
            .without
            .concat()
            .into_iter()
            .map(|name| name.to_owned())
            .chain(args.f2fs.preset(args.kind.format)?)
            .chain(args.features.clone())
            .collect(),
        casefold: args.f2fs.casefold.clone(),
        block_size: args.block_size,
        inodes: None,
        reserved_percent: None,
        tuning: cairn::Tuning::default(),
        size: args.size,
        overprovision: args.overprovision,
        segments_per_section: args.segments_per_section,
        sections_per_zone: args.sections_per_zone,
        large_nat_bitmap: args.large_nat_bitmap,
        zoned: args.zoned,
        reserved_sections: args.reserved_sections,
        devices: args.devices.clone(),
        zones: args.zone_size.map(|size| ImageZones {
            size,
            capacity: args.zone_capacity,
            conventional: args.conventional_zones,
            max_open: args.max_open_zones,
            max_active: args.max_active_zones,
        }),
    })
}
