//! [`NewTable`]: the partition table of a new disk, which is a file.
//!
//! Sectors have 512 bytes. A GPT is written twice, behind a protective MBR and at the end; an MBR
//! has at most four partitions.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read, Seek, SeekFrom, Write};

use ::gpt::GptConfig;
use ::gpt::mbr::ProtectiveMBR;
use ::gpt::partition::Partition as GptEntry;
use ::gpt::partition_types::{OperatingSystem, Type};
use mbrman::{CHS, MBRHeader, MBRPartitionEntry};
use uuid::Uuid;

use super::new_kind::PartitionKind;
use super::table::Range;
use crate::error::Cause;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// What the starts of partitions, and the size of the disk, are multiples of.
pub const ALIGNMENT: u64 = 1 << 20;
/// Partitions of an MBR.
const MBR_MOST: usize = 4;
/// Partitions of a GPT.
const GPT_MOST: usize = 128;
/// UTF-16 units of a name in a GPT.
const NAME_MOST: usize = 36;
/// GPT: a BIOS may boot it.
const GPT_BOOTABLE: u64 = 1 << 2;
/// GPT: systemd enlarges its filesystem when it is mounted.
const GPT_GROW: u64 = 1 << 59;
/// GPT: it is mounted read-only.
const GPT_READ_ONLY: u64 = 1 << 60;
/// GPT: it is not mounted unless something asks for it.
const GPT_NO_AUTO: u64 = 1 << 63;
/// MBR: the partition is active.
const MBR_ACTIVE: u8 = 0x80;
/// MBR: the partition is not active.
const MBR_INACTIVE: u8 = 0;

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// DOS partition table.
    Mbr,
}

/// Marks of a new partition. Only the first one exists in an MBR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent bits of the format")]
pub struct Flags {
    /// A BIOS boots it: active, in an MBR.
    pub bootable: bool,
    /// systemd mounts it read-only.
    pub read_only: bool,
    /// systemd does not mount it by itself.
    pub no_auto: bool,
    /// systemd enlarges its filesystem to the partition.
    pub grow: bool,
}

/// A partition of a new table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// Its place.
    pub range: Range,
    /// Its type.
    pub kind: PartitionKind,
    /// Its name, in a GPT.
    pub name: String,
    /// Its UUID, in a GPT.
    pub uuid: Uuid,
    /// Its marks.
    pub flags: Flags,
}

/// A new table. The place of a partition in the list is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTable {
    /// Its kind.
    pub kind: TableKind,
    /// UUID of the disk; an MBR has its first four bytes.
    pub disk: Uuid,
    /// The partitions.
    pub partitions: Vec<NewPartition>,
}

impl TableKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        }
    }

    /// Bytes of a disk whose last partition ends at `end`.
    #[must_use]
    pub fn disk_size(self, end: u64) -> u64 {
        let end = end.next_multiple_of(ALIGNMENT);
        match self {
            Self::Gpt => end.saturating_add(ALIGNMENT),
            Self::Mbr => end,
        }
    }

    /// Where the last partition of a disk of `size` bytes ends at the latest.
    #[must_use]
    pub fn last_end(self, size: u64) -> u64 {
        // A GPT has a copy of 33 sectors at the end.
        let copy = if self == Self::Gpt { 33 * SECTOR } else { 0 };
        size.saturating_sub(copy) / ALIGNMENT * ALIGNMENT
    }

    /// Refuses what a table of this kind cannot say. For before anything is written.
    ///
    /// # Errors
    /// There are too many partitions, or the table has no such type, name or mark.
    pub fn check<'p>(
        self,
        partitions: impl IntoIterator<Item = (PartitionKind, &'p str, Flags)>,
    ) -> Result<(), String> {
        let mut count = 0;
        for (kind, name, flags) in partitions {
            count += 1;
            let missing = match self {
                Self::Gpt if kind.gpt.is_none() => Some("type: give a word or a UUID"),
                Self::Mbr if kind.mbr.is_none() => {
                    Some("type: give a word that an MBR has, or two hexadecimal digits")
                }
                Self::Mbr if flags.read_only || flags.no_auto || flags.grow => {
                    Some("mark: only `bootable` is possible")
                }
                _ => None,
            };
            if let Some(missing) = missing {
                return Err(format!(
                    "partition {count}: {} tables have no such {missing}",
                    self.name()
                ));
            }
            if name.encode_utf16().count() > NAME_MOST {
                return Err(format!(
                    "partition {count}: the name {name:?} is too long: give at most {NAME_MOST} \
                     UTF-16 units"
                ));
            }
        }
        let most = if self == Self::Gpt { GPT_MOST } else { MBR_MOST };
        if count > most {
            let other = if self == Self::Mbr { ", or make a GPT" } else { "" };
            return Err(format!(
                "{count} partitions: an {} has at most {most}: give fewer{other}",
                self.name()
            ));
        }
        Ok(())
    }
}

impl NewTable {
    /// Writes the table to a disk, whose size is that of the file.
    ///
    /// # Errors
    /// [`Cause::Option`] if the table cannot describe the partitions, or the file cannot be
    /// written.
    pub fn write<D: Read + Write + Seek + Debug>(&self, disk: &mut D) -> Result<(), Cause> {
        let described = self.partitions.iter().map(|one| (one.kind, one.name.as_str(), one.flags));
        self.kind.check(described).map_err(Cause::Option)?;
        match self.kind {
            TableKind::Gpt => self.write_gpt(disk),
            TableKind::Mbr => self.write_mbr(disk),
        }
    }

    fn write_gpt<D: Read + Write + Seek + Debug>(&self, disk: &mut D) -> Result<(), Cause> {
        let size = disk.seek(SeekFrom::End(0)).map_err(failed)?;
        let behind_first = (size / SECTOR).saturating_sub(1);
        let protective =
            ProtectiveMBR::with_lb_size(u32::try_from(behind_first).unwrap_or(u32::MAX));
        protective.overwrite_lba0(disk).map_err(failed)?;
        let config = GptConfig::new().writable(true);
        let mut table = config.create_from_device(disk, Some(self.disk)).map_err(failed)?;
        let mut entries = BTreeMap::new();
        for (number, one) in (1..).zip(&self.partitions) {
            let first = one.range.offset / SECTOR;
            let sectors = one.range.len.div_ceil(SECTOR);
            let flags = [
                (one.flags.bootable, GPT_BOOTABLE),
                (one.flags.grow, GPT_GROW),
                (one.flags.read_only, GPT_READ_ONLY),
                (one.flags.no_auto, GPT_NO_AUTO),
            ];
            let entry = GptEntry {
                part_type_guid: Type {
                    guid: one.kind.gpt.unwrap_or_default(),
                    os: OperatingSystem::None,
                },
                part_guid: one.uuid,
                first_lba: first,
                last_lba: first.saturating_add(sectors).saturating_sub(1),
                flags: flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum(),
                name: one.name.clone(),
            };
            entries.insert(number, entry);
        }
        table.update_partitions(entries).map_err(failed)?;
        table.write_inplace().map_err(failed)
    }

    fn write_mbr<D: Read + Write + Seek + Debug>(&self, disk: &mut D) -> Result<(), Cause> {
        let [a, b, c, d, ..] = self.disk.into_bytes();
        // fdisk shows it as a number: the first digits of the UUID.
        let mut header = MBRHeader::new([d, c, b, a]);
        for (number, one) in (1..).zip(&self.partitions) {
            let sectors = |bytes: u64| {
                u32::try_from(bytes.div_ceil(SECTOR)).map_err(|_| {
                    let why = format!("partition {number} does not lie below 2 TiB: make a GPT");
                    Cause::Option(why)
                })
            };
            let entry = MBRPartitionEntry {
                boot: if one.flags.bootable { MBR_ACTIVE } else { MBR_INACTIVE },
                first_chs: chs(one.range.offset / SECTOR),
                sys: one.kind.mbr.unwrap_or_default(),
                last_chs: chs((one.range.offset + one.range.len).div_ceil(SECTOR) - 1),
                starting_lba: sectors(one.range.offset)?,
                sectors: sectors(one.range.len)?,
            };
            if let Some(place) = header.get_mut(number) {
                *place = entry;
            }
        }
        header.write_into(disk).map_err(failed)
    }
}

/// The address that BIOSes before 1996 use, on the disk of 255 heads and 63 sectors that fdisk
/// assumes, or the last one that can be written.
fn chs(sector: u64) -> CHS {
    const HEADS: u64 = 255;
    const SECTORS: u64 = 63;
    const CYLINDERS: u64 = 1024;
    let cylinder = sector / (HEADS * SECTORS);
    let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
    if cylinder >= CYLINDERS {
        return CHS::new(1023, 254, 63);
    }
    let (head, sector) = (sector / SECTORS % HEADS, sector % SECTORS + 1);
    CHS::new(u16::try_from(cylinder).unwrap_or(u16::MAX), small(head), small(sector))
}

fn failed(error: impl std::error::Error) -> Cause {
    Cause::Option(format!("the partition table cannot be written: {error}"))
}
