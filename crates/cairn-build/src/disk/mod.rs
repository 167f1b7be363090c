//! Disks: a partition table, and what is in the partitions.
//!
//! The partitions follow each other in the order in which they are asked for, and begin at
//! multiples of 1 MiB. Volumes are made in place, each when it is known where it begins. The table
//! comes last. Nothing of it is left to chance: UUIDs follow from what the partitions are.

mod contents;
mod machine;
pub(crate) mod options;
mod swap;

use std::ops::Range;

use cairn::Format;
use cairn::partition::{
    ALIGNMENT, Flags, NewPartition, NewTable, PartitionKind, Range as Bytes, TableKind,
};
use cairn_base::names::Escaped;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::estimate::BLOCK;
use crate::options::{Built, Free, Options, Size};
use crate::output::Unfinished;
use crate::read::Source;
use crate::rules::Rules;
use crate::volume::{self, Made, Place};

use self::contents::Image;
use self::options::{Contents, DiskOptions, KindWish, PartitionOptions};

/// A disk that can be written: what can be refused in advance has been.
pub(crate) struct Plan {
    table: TableKind,
    uuid: Option<Uuid>,
    platform: Option<String>,
    partitions: Vec<Planned>,
}

struct Planned {
    options: PartitionOptions,
    /// The file whose bytes it holds.
    image: Option<Image>,
}

impl Planned {
    /// Its size, if that is known before it is written.
    fn len(&self) -> Option<u64> {
        self.options.size.or(self.image.as_ref().map(|image| image.size))
    }

    fn gets_the_rest(&self) -> bool {
        matches!(self.options.contents, Contents::Sources) && self.options.size.is_none()
    }
}

/// A partition whose contents are written.
struct Written {
    kind: PartitionKind,
    range: Bytes,
    volume: Option<Made>,
}

impl Plan {
    /// Opens the files, and refuses what is not possible.
    ///
    /// # Errors
    /// A file cannot be opened or does not fit, a size is missing, or the table cannot describe a
    /// partition.
    pub(crate) fn new(disk: DiskOptions, build: &Options) -> Result<Self> {
        let mut partitions = disk.partitions;
        let of_sources = |one: &&PartitionOptions| matches!(one.contents, Contents::Sources);
        match partitions.iter().filter(of_sources).count() {
            0 if !build.sources.is_empty() || partitions.is_empty() => {
                partitions.push(root());
            }
            0 | 1 => {}
            _ => {
                let why = "two partitions would hold the sources: give one of them file=, source= \
                           or empty";
                return Err(Error::Usage(why.into()));
            }
        }
        // A root has a type in both kinds of tables.
        let linux = PartitionKind::linux();
        let described = partitions.iter().map(|one| {
            let kind = if let KindWish::Is(kind) = one.kind { kind } else { linux };
            (kind, one.name.as_str(), one.flags)
        });
        disk.table.check(described).map_err(Error::Usage)?;
        let plan = |(options, number): (PartitionOptions, usize)| {
            check(&options, number, build)?;
            let image = match &options.contents {
                Contents::File(path) => Some(Image::open(path, options.size)?),
                _ => None,
            };
            Ok(Planned { options, image })
        };
        let partitions = partitions.into_iter().zip(1..).map(plan).collect::<Result<_>>()?;
        let plan = Self { table: disk.table, uuid: disk.uuid, platform: disk.platform, partitions };
        plan.check_uuids()?;
        plan.check_size(build)?;
        Ok(plan)
    }

    /// Refuses two partitions with one UUID, by which systems find them.
    fn check_uuids(&self) -> Result<()> {
        let given = |planned: &Planned| planned.options.uuid;
        for (number, planned) in (1..).zip(&self.partitions) {
            let Some(uuid) = given(planned) else { continue };
            let same = |other: &Planned| given(other) == Some(uuid);
            let first = self.partitions.iter().position(same).map_or(number, |index| index + 1);
            if first != number || self.uuid == Some(uuid) {
                let other = match first == number {
                    true => "the disk".to_owned(),
                    false => format!("partition {first}"),
                };
                return Err(Error::Usage(format!(
                    "partition {number}: it has the same UUID as {other}: give it its own, or \
                     leave uuid= out"
                )));
            }
        }
        Ok(())
    }

    /// With a size of the disk, the partition of the sources gets what the others leave. So those
    /// behind it must have a size.
    fn check_size(&self, build: &Options) -> Result<()> {
        let Size::Exact(size) = build.size else { return Ok(()) };
        if !size.is_multiple_of(BLOCK) {
            let why = "the size of a disk is a multiple of 4096: give one, such as 8G";
            return Err(Error::Usage(why.into()));
        }
        let Some(rest) = self.partitions.iter().position(Planned::gets_the_rest) else {
            return Ok(());
        };
        for (number, planned) in (1..).zip(&self.partitions).skip(rest + 1) {
            if planned.len().is_none() {
                return Err(Error::Usage(format!(
                    "partition {number}: the disk has the given size, and partition {} gets \
                     what the others leave: give this one size=",
                    rest + 1
                )));
            }
        }
        Ok(())
    }

    /// The size of the volume with the sources, which begins at `offset`.
    fn size_of_sources(&self, number: usize, offset: u64, build: &Options) -> Result<Size> {
        let Size::Exact(size) = build.size else { return Ok(build.size) };
        let behind = self.partitions.iter().skip(number).filter_map(Planned::len);
        let behind: u64 = behind.map(|len| len.next_multiple_of(ALIGNMENT)).sum();
        let end = self.table.last_end(size).saturating_sub(behind);
        match end.checked_sub(offset) {
            Some(len) if len > 0 => Ok(Size::Exact(len)),
            _ => Err(self.too_small(size, offset.saturating_add(behind))),
        }
    }

    fn too_small(&self, size: u64, needed: u64) -> Error {
        let least = self.table.disk_size(needed);
        Error::Usage(format!(
            "the disk would need {least} bytes or more, and has {size}: give a larger size, or \
             auto"
        ))
    }

    /// Writes the disk. Returns what was built, and the ranges of bytes that nothing uses.
    ///
    /// # Errors
    /// As for a volume; or a file cannot be read.
    pub(crate) fn write(
        &self,
        build: &Options,
        file: &Unfinished,
    ) -> Result<(Built, Vec<Range<u64>>)> {
        let mut written = Vec::new();
        let mut end = ALIGNMENT;
        for (planned, number) in self.partitions.iter().zip(1..) {
            let place = Place { file, offset: end.next_multiple_of(ALIGNMENT) };
            let one = self.write_partition(planned, number, build, place)?;
            end = place.offset.saturating_add(one.range.len);
            written.push(one);
        }
        let size = match build.size {
            Size::Exact(size) if self.table.last_end(size) < end => {
                return Err(self.too_small(size, end));
            }
            Size::Exact(size) => size,
            Size::Auto | Size::Min => self.table.disk_size(end),
        };
        file.resize(size)?;
        let table = self.table(&written);
        let failed = |cause| Error::image(cairn::Error::new(build.output.escaped(), cause));
        table.write(&mut file.file()).map_err(failed)?;
        for (planned, one) in self.partitions.iter().zip(&table.partitions) {
            if matches!(planned.options.contents, Contents::Swap) {
                let uuid = Uuid::new_v5(&one.uuid, b"swap");
                swap::write(file.file(), one.range.offset, one.range.len, uuid)
                    .map_err(|error| Error::host(&build.output, error))?;
            }
        }
        let volumes = || written.iter().filter_map(|one| Some((one, one.volume.as_ref()?)));
        let free = volumes().flat_map(|(one, volume)| {
            let at = one.range.offset;
            volume.free.iter().map(move |free| at + free.start..at + free.end)
        });
        let inodes = volumes().map(|(_, volume)| volume.tree.nodes().len() as u64).sum();
        let passes = volumes().map(|(_, volume)| volume.passes).max().unwrap_or(1);
        Ok((Built { size, uuid: table.disk, inodes, passes }, free.collect()))
    }

    fn write_partition(
        &self,
        planned: &Planned,
        number: usize,
        build: &Options,
        place: Place<'_>,
    ) -> Result<Written> {
        let options = &planned.options;
        let made = match &options.contents {
            Contents::Sources => {
                let size = match options.size {
                    Some(size) => Size::Exact(size),
                    None => self.size_of_sources(number, place.offset, build)?,
                };
                let made = volume::make(&Options { size, ..build.clone() }, place, "");
                Some(made.map_err(|error| of_disk(error, options.size, build.size))?)
            }
            Contents::Volume { sources, format, label } => {
                let build = volume_options(options, sources, *format, label.clone(), build);
                Some(volume::make(&build, place, &format!(" partition {number}"))?)
            }
            Contents::File(_) | Contents::Swap | Contents::Nothing => None,
        };
        let needed = made.as_ref().map(|made| made.size);
        let needed = needed.or(planned.image.as_ref().map(|image| image.size));
        let len = options.size.max(needed).unwrap_or_default();
        place.file.resize(place.offset.saturating_add(len))?;
        if let Some(image) = &planned.image {
            image.copy(place.file.file(), place.offset, &build.output)?;
        }
        let kind = match options.kind {
            KindWish::Is(kind) => kind,
            KindWish::Root => {
                let tree = made.as_ref().map(|made| &*made.tree);
                machine::root_kind(self.platform.as_deref(), tree)
            }
        };
        Ok(Written { kind, range: Bytes { offset: place.offset, len }, volume: made })
    }

    fn table(&self, written: &[Written]) -> NewTable {
        let mut facts = self.table.name().to_owned();
        for (planned, one) in self.partitions.iter().zip(written) {
            let volume = one.volume.as_ref().map(|volume| volume.uuid);
            let Written { kind, range, .. } = one;
            facts += &format!(" {kind:?} {range:?} {volume:?} {:?}", planned.options.name);
        }
        let disk =
            self.uuid.unwrap_or_else(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, facts.as_bytes()));
        let partition = |((planned, one), number): ((&Planned, &Written), usize)| {
            let options = &planned.options;
            let derived = || Uuid::new_v5(&disk, format!("partition {number}").as_bytes());
            NewPartition {
                range: one.range,
                kind: one.kind,
                name: options.name.clone(),
                uuid: options.uuid.unwrap_or_else(derived),
                flags: options.flags,
            }
        };
        let partitions = self.partitions.iter().zip(written).zip(1..).map(partition).collect();
        NewTable { kind: self.table, disk, partitions }
    }
}

/// A volume that got the rest of a disk is too small: so is the disk.
fn of_disk(error: Error, own: Option<u64>, disk: Size) -> Error {
    match (error, own, disk) {
        (Error::TooSmall { size, need }, None, Size::Exact(disk)) => {
            let others = disk.saturating_sub(size);
            let whole = |need: u64| need.saturating_add(others).next_multiple_of(ALIGNMENT);
            Error::TooSmall { size, need: need.map(whole) }
        }
        (error, ..) => error,
    }
}

/// The one that is added if none gets the sources.
fn root() -> PartitionOptions {
    PartitionOptions {
        kind: KindWish::Root,
        contents: Contents::Sources,
        size: None,
        name: "root".into(),
        uuid: None,
        flags: Flags::default(),
    }
}

/// Refuses what cannot be made.
fn check(partition: &PartitionOptions, number: usize, build: &Options) -> Result<()> {
    let wrong = |why: &str| Err(Error::Usage(format!("partition {number}: {why}")));
    match (&partition.contents, partition.size) {
        (Contents::Swap | Contents::Nothing, None) => {
            wrong("nothing says how large it is: give size=, such as size=1G")
        }
        (Contents::Swap, Some(size)) if size < swap::LEAST => {
            wrong("the swap area is too small: give size=40K or more")
        }
        (Contents::Sources, Some(_)) if build.size == Size::Min => wrong(
            "it has a size by size=, and the disk is to be the smallest: leave one of them out",
        ),
        (_, Some(size)) if size == 0 || !size.is_multiple_of(BLOCK) => {
            wrong("its size is no multiple of 4096: give one, such as size=64M")
        }
        _ => Ok(()),
    }
}

/// The build of a volume of its own: owners, times and what is left out as in all volumes.
fn volume_options(
    partition: &PartitionOptions,
    sources: &[Source],
    format: Format,
    label: Option<String>,
    build: &Options,
) -> Options {
    Options {
        sources: sources.to_vec(),
        format,
        label,
        size: partition.size.map_or(Size::Auto, Size::Exact),
        free: Free::Bytes(0),
        uuid: None,
        features: Vec::new(),
        casefold: None,
        inodes: None,
        reserved_percent: 0.0,
        tuning: cairn::Tuning::default(),
        root_owner: None,
        read_only: false,
        rules: Rules { manifests: Vec::new(), ..build.rules.clone() },
        ..build.clone()
    }
}
