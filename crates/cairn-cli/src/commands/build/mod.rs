//! `cairn build`.

mod parts;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use cairn::partition::TableKind;
use cairn::{Format, ImageSpec};
use cairn_base::names::Escaped;
use cairn_base::options::parse_size as bytes;
use cairn_base::shell::quoted;
use cairn_build::{DiskOptions, Error, Free, Options, Shape, Size};
use uuid::Uuid;

use super::f2fs_features::F2fsFeatures;
use super::mkfs::parse_uuid;
use super::source_options::SourceOptions;
use crate::failure::{Failure, Outcome, Status};
use crate::output;
use crate::session::now;
use crate::signals::remove_unfinished;
use crate::usage::{number, unit_forgotten};
use parts::{DiskId, Part};

/// Arguments of `build`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn build root.img rootfs/
  cairn build -t f2fs -L root --size 2G root.img rootfs/
  tar -c rootfs | cairn build --exclude '*.tmp' root.img -
  cairn build -t f2fs new.img 'disk.img#2'
  cairn build --manifest rootfs.mtree --sparse root.simg rootfs/
  cairn build - rootfs/ | gzip >root.img.gz
  cairn build file-store:///srv/pool@root rootfs/
  cairn build -F 'disk.img#2' rootfs/
  cairn build --partition gpt --part type=esp,file=esp.fat gpt.img rootfs/
  cairn build --partition gpt disk.qcow2 rootfs/

A source is a directory (with a slash at its end what is in it, else the directory under its \
name), an archive (tar or cpio, also compressed with gzip, zstd or xz; - is standard input), a \
container image (an OCI layout, or an archive of docker save), or another image of ext4 or f2fs, \
as disk.img#2. Later sources are put over earlier ones. Owners, devices and extended attributes \
come from the sources, and need no privileges. The same sources give the same bytes, the UUID \
included. OUT has its name when it is whole. It can also be a block device, an NBD export or a \
part of a disk (disk.img#2): the volume fills it, unless --size, --free or --read-only says \
otherwise. docs/build.md has more, and cairn --help what addresses can say.

FIELDS of a partition, with commas between them: type=WORD (esp, root, root-arm64, home, swap, \
linux..., the UUID of a GPT type, or the digits of an MBR type), size=1G, name=NAME, uuid=UUID, \
bootable, read-only, no-auto, grow; and one of file=FILE (it holds the bytes of a file), \
source=SOURCE (repeatable; a volume of its own, with fs=ext4|f2fs and label=LABEL), and empty. \
Without these, it holds the volume with the sources of the command line. A value with commas \
stands in \"quotes\".")]
pub struct Args {
    /// Type of filesystem: ext4 or f2fs.
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4",
        value_parser = parse_format)]
    format: Format,
    /// Size of the image: auto (what the sources and --free need; of a device, all of it), min (as
    /// small as possible), or a number of bytes such as 2G. With --partition, that is the size of
    /// the disk, of which the root gets what the other partitions leave.
    #[arg(long, default_value = "auto", value_parser = parse_size)]
    size: Size,
    /// Space to leave free, such as 64M, or 20% of the image.
    #[arg(long, value_name = "SPACE", default_value = "0", value_parser = parse_free)]
    free: Free,
    /// Volume label: at most 16 bytes on ext4, 511 UTF-16 units on f2fs.
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// UUID of the volume. [default: from names, attributes and sizes]
    #[arg(short = 'U', long, value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Features to add or, with ^, to leave out, as for mkfs.
    #[arg(short = 'O', long, value_delimiter = ',')]
    features: Vec<String>,
    /// Features beside those of -O.
    #[command(flatten)]
    f2fs: F2fsFeatures,
    /// ext4: no journal.
    #[arg(long)]
    no_journal: bool,
    /// ext4: for a volume that nobody will write: no journal, nothing free unless it is asked for,
    /// and a mark, so that Linux mounts it read-only. With -O shared_blocks equal files are stored
    /// once.
    #[arg(long)]
    read_only: bool,
    /// ext4: number of inodes. [default: those of the sources, 5 % more, and some for free space]
    #[arg(short = 'N', long, value_name = "N", value_parser = number(16..=u32::MAX, 10_000))]
    inodes: Option<u32>,
    /// ext4: percentage of the blocks reserved for root.
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = number(0.0..=50.0, 5.0))]
    reserved: Option<f64>,
    /// What the sources are changed by.
    #[command(flatten)]
    changes: SourceOptions,
    /// Make holes of the blocks of files that hold only zeros. Files are read twice for that.
    #[arg(long)]
    dig_holes: bool,
    /// Write OUT as a sparse image of Android.
    #[arg(long)]
    sparse: bool,
    /// With --sparse: add a checksum of the image.
    #[arg(long, requires = "sparse")]
    crc: bool,
    /// Write OUT as a qcow2 disk, as for a name that ends in .qcow2.
    #[arg(long, conflicts_with = "sparse")]
    qcow2: bool,
    /// Make a disk with a partition table, gpt or mbr. What --part does not say otherwise is in one
    /// partition, the root.
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    partition: Option<TableKind>,
    /// A partition of the disk, see below. May be repeated; they follow each other on the disk.
    #[arg(long, value_name = "FIELDS", requires = "partition", value_parser = parts::parse)]
    part: Vec<Part>,
    /// UUID of the disk; for an mbr also 0x and eight digits. [default: from what the partitions
    /// are]
    #[arg(long, value_name = "UUID", requires = "partition", value_parser = parts::parse_disk_id)]
    disk_uuid: Option<DiskId>,
    /// Replace OUT if it exists.
    #[arg(short = 'F', short_alias = 'f', long)]
    force: bool,
    /// The image, as OUT: then all operands are sources.
    #[arg(short = 'o', long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// The image to make; - is standard output.
    #[arg(required_unless_present = "output")]
    out: Option<PathBuf>,
    /// What to put in.
    #[arg(value_name = "SOURCE")]
    sources: Vec<OsString>,
}

impl Args {
    /// The image and the sources.
    fn operands(&self) -> Outcome<(PathBuf, Vec<OsString>)> {
        let first = self.out.clone();
        match (self.output.clone(), first) {
            (Some(out), None) => Ok((out, self.sources.clone())),
            (Some(out), Some(first)) => {
                let first = [first.into_os_string()];
                Ok((out, [&first, self.sources.as_slice()].concat()))
            }
            (None, Some(out)) => Ok((out, self.sources.clone())),
            (None, None) => Err(Failure::usage("no image is named: give OUT")),
        }
    }

    /// The disk, if one is asked for.
    fn disk(&self) -> Outcome<Option<DiskOptions>> {
        let Some(table) = self.partition else { return Ok(None) };
        let uuid = match self.disk_uuid {
            Some(DiskId { is_short: true, .. }) if table == TableKind::Gpt => {
                return Err(Failure::usage("--disk-uuid: a GPT has a whole UUID: give one"));
            }
            id => id.map(|id| id.uuid),
        };
        let partitions =
            self.part.iter().map(|part| part.options(self.format, &self.changes.platform));
        let platform = self.changes.platform.clone();
        Ok(Some(DiskOptions { table, uuid, platform, partitions: partitions.collect() }))
    }
}

/// No volume is smaller.
const LEAST_SIZE: u64 = 64 << 10;
/// Less free space than this is none.
const BLOCK: u64 = 4096;

fn parse_format(name: &str) -> Result<Format, String> {
    Format::from_name(name).ok_or_else(|| "the types are: ext4, f2fs".into())
}

fn parse_table(name: &str) -> Result<TableKind, String> {
    match name {
        "gpt" => Ok(TableKind::Gpt),
        "mbr" | "dos" => Ok(TableKind::Mbr),
        _ => Err("the tables are: gpt, mbr".into()),
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    if let Some(why) = unit_forgotten(text, LEAST_SIZE) {
        return Err(why);
    }
    match text {
        "auto" => Ok(Size::Auto),
        "min" => Ok(Size::Min),
        text => bytes(text)
            .filter(|size| *size > 0)
            .map(Size::Exact)
            .ok_or_else(|| "give auto, min, or bytes with K, M, G or T, such as 512M".into()),
    }
}

fn parse_free(text: &str) -> Result<Free, String> {
    if text != "0"
        && let Some(why) = unit_forgotten(text, BLOCK)
    {
        return Err(format!("{why} or {text}%"));
    }
    let wrong = || "give bytes such as 64M, or a percentage up to 95 such as 20%".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| (0.0..=95.0).contains(percent));
            percent.map(Free::Percent).ok_or_else(wrong)
        }
        None => bytes(text).map(Free::Bytes).ok_or_else(wrong),
    }
}

/// Operands as in `cairn build rootfs/ root.img` would have a source replaced by an image. An image
/// that is to be replaced is not meant as a source.
fn check_order(out: &Path, sources: &[OsString], is_forced: bool) -> Outcome {
    let [image] = sources else { return Ok(()) };
    if is_forced && !out.is_dir() {
        return Ok(());
    }
    let (source, is_new) = (quoted(out), !Path::new(image).exists() && image != "-");
    if !out.exists() || !is_new || ImageSpec::parse(image).is_ok_and(|of| of.exists()) {
        return Ok(());
    }
    let (shown, image) = (image.escaped(), quoted(image));
    Err(Failure::usage(format!(
        "{shown}: no such source: the image comes first: cairn build {image} {source}"
    )))
}

/// What the image is written as.
fn shape(args: &Args, out: &Path) -> Outcome<Shape> {
    let is_named = out.extension().is_some_and(|end| end.eq_ignore_ascii_case("qcow2"));
    match (args.sparse, args.qcow2 || is_named) {
        (true, true) => {
            let why = "is the name of a qcow2 disk, which --sparse is not: give another name";
            Err(Failure::usage(format!("{}: {why}", out.escaped())))
        }
        (true, false) => Ok(Shape::AndroidSparse { crc: args.crc }),
        (false, true) => Ok(Shape::Qcow2),
        (false, false) => Ok(Shape::Raw),
    }
}

/// Builds the image.
///
/// # Errors
/// A source cannot be read or is damaged, the image cannot be made, or the sources do not fit.
pub fn run(args: &Args) -> Outcome {
    remove_unfinished()?;
    let mut features = args.f2fs.preset(args.format)?;
    features.extend(args.features.clone());
    if args.no_journal {
        if args.format == Format::F2fs {
            return Err(Failure::usage("--no-journal: f2fs has no journal: leave it out"));
        }
        features.push("^has_journal".into());
    }
    if args.format == Format::F2fs && (args.inodes.is_some() || args.reserved.is_some()) {
        return Err(Failure::usage("-N and -m are options of ext4: leave them out for f2fs"));
    }
    if args.size != Size::Auto && args.free != Free::Bytes(0) {
        return Err(Failure::usage("--free goes with --size auto: leave one of them out"));
    }
    let (out, sources) = args.operands()?;
    output::refuse_terminal(&out)?;
    check_order(&out, &sources, args.force)?;
    let shape = shape(args, &out)?;
    let rules = args.changes.rules()?;
    let options = Options {
        output: out,
        sources: args.changes.sources(&sources),
        format: args.format,
        size: args.size,
        free: args.free,
        label: args.label.clone(),
        uuid: args.uuid,
        features,
        casefold: args.f2fs.casefold.clone(),
        inodes: args.inodes,
        reserved_percent: args.reserved.unwrap_or(0.0),
        time: rules.latest.map(|latest| latest.seconds),
        rules,
        now: now()?,
        overwrite: args.force,
        shape,
        dig_holes: args.dig_holes,
        tuning: cairn::Tuning::default(),
        root_owner: None,
        read_only: args.read_only,
        disk: args.disk()?,
    };
    cairn_build::build(options).map(drop).map_err(failure)
}

/// The exit status of an error: that of opening an image, of a damaged source, or of usage.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::Image { text, source } if text == source.to_string() => Failure::from(*source),
        // It names the output, not the image that is made on the way.
        Error::Image { text, source } => Failure::new(Failure::from(*source).status, text),
        Error::Usage(text) => Failure::usage(text),
        // The library names no options.
        Error::Exists { subject } => {
            let text = format!("{subject}: exists: add --force to replace it");
            Failure::new(Status::Failed, text)
        }
        Error::TooSmall { size, need } => {
            let what = need.map_or_else(
                || "a larger --size".to_owned(),
                |need| format!("--size {}K or more", need.div_ceil(1024)),
            );
            let text = format!("the sources do not fit in {size} bytes: give {what}");
            Failure::new(Status::Failed, format!("{text}, or leave it out"))
        }
        // Only standard output has a reader that can go. It has a part of what was asked for, which
        // no list could be: the status says so.
        Error::Host { source, .. } if source.kind() == ErrorKind::BrokenPipe => {
            Failure::told(Status::Failed as i32)
        }
        Error::Host { subject, source } => Failure::host_named(&subject, &source),
        Error::Source { .. } | Error::Member { .. } => {
            Failure::new(Status::Corrupt, error.to_string())
        }
        Error::Volume { subject, source } if concerns_device(&source) => {
            Failure::volume(subject, &source)
        }
        error => Failure::new(Status::Failed, error.to_string()),
    }
}

/// True if a volume or what holds it has failed, and not the call alone.
const fn concerns_device(error: &cairn_vfs::Error) -> bool {
    use cairn_vfs::Error as E;
    matches!(error, E::Io(_) | E::Corrupt(_) | E::Stale)
}
